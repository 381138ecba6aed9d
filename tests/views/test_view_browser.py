"""The live view in a real browser: what is shown, and that nothing jumps or acts."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from views import stories
from views.harness import ViewPage
from views.in_page import Clock
from views.stories import Story

from op_jupyter.views.model import TurnModel

pytestmark = pytest.mark.browser
Open = Callable[..., ViewPage]
Wire = dict[str, Any]


def state_of(story: Story) -> Wire:
    model = TurnModel()
    for envelope in story.updates:
        model.apply(envelope)
    return model.to_json()


def updates(story: Story) -> Wire:
    return {"kind": "updates", "items": story.updates}


def loaded(open_view: Open, story: Story, theme: str = "light", **more: Any) -> ViewPage:
    view = open_view(theme)
    view.load(state_of(story), **more)
    return view


def test_a_view_says_that_it_is_ready_each_time_it_is_drawn(open_view: Open) -> None:
    view = open_view()
    assert view.sent == [{"kind": "ready"}]
    view.page.evaluate("() => { window.show('second'); }")
    assert view.sent == [{"kind": "ready"}] * 2


def test_a_running_turn_shows_answer_plan_calls_and_graph(open_view: Open) -> None:
    page = loaded(open_view, stories.running()).page
    assert page.locator(".opv-hd .opv-st").inner_text() == "Running"
    header = page.locator(".opv-hd").inner_text()
    assert "step 2" in header
    assert "writing the answer" in header
    assert "7,000 in / 402 out tokens" in header
    assert page.locator(".opv-md h3").inner_text() == "Two months stand out"
    assert page.locator(".opv-md td.opv-num").first.inner_text() == "182,440"
    assert page.locator(".opv-plan li.opv-now").inner_text().endswith("Explain the outliers")
    calls = [" ".join(text.split()) for text in page.locator(".opv-call summary").all_inner_texts()]
    assert calls[0] == "update_plan 4 steps done 0.1 s"
    assert calls[1].endswith("done, allowed once 2.8 s")
    assert calls[2] == 'read_file path="notes/2023.md" failed 0.1 s'
    assert page.get_by_role("option").count() == 8
    assert (
        page.get_by_role(
            "option",
            name=re.compile(
                "^review_month ×12 loop, all done done .*, function, called by python$"
            ),
        ).count()
        == 1
    )
    assert page.get_by_role("button", name="Stop: interrupt this turn").is_visible()


def test_fed_live_or_loaded_late_the_page_is_the_same(open_view: Open) -> None:
    live = open_view()
    live.load(TurnModel().to_json())
    story = stories.running()
    for start in range(0, len(story.updates), 7):
        live.deliver({"kind": "updates", "items": story.updates[start : start + 7]})
    late = loaded(open_view, story)
    text = "() => document.getElementById('view').innerText.replace(/\\d+ s/g, '')"
    assert live.page.evaluate(text) == late.page.evaluate(text)


def test_updates_that_are_known_already_change_nothing(open_view: Open) -> None:
    story = stories.running()
    view = loaded(open_view, story)
    before = view.page.locator("#view").inner_text()
    view.deliver(updates(story))
    assert view.page.locator("#view").inner_text() == before


def test_arguments_and_result_of_a_call_open_on_demand(open_view: Open) -> None:
    page = loaded(open_view, stories.running()).page
    page.locator(".opv-call summary").nth(1).click()
    assert page.get_by_label("Arguments").inner_text() == stories.CODE
    assert page.get_by_label("Result").inner_text() == "12 labels: 10 normal, 2 outlier"
    page.get_by_label("Arguments").locator(".opv-k").first.wait_for()


def test_a_thousand_calls_are_drawn_as_they_come_into_sight(open_view: Open) -> None:
    story = Story().start()
    for number in range(1000):
        story.call(f"c{number}", "python", f'{{"code":"print({number})"}}', str(number))
    view = loaded(open_view, story)
    page = view.page
    assert page.locator(".opv-call .opv-state").count() < 100
    last = page.locator(".opv-call summary").last
    assert last.inner_text() == "python done"
    last.scroll_into_view_if_needed()
    last.locator(".opv-state").wait_for()
    assert "print(999)" in last.inner_text()
    last.click()
    assert page.get_by_label("Result").inner_text() == "999"


def test_a_finished_turn_has_its_answer_and_no_stop_button(open_view: Open) -> None:
    page = loaded(open_view, stories.completed()).page
    assert page.locator(".opv-st").inner_text() == "Completed"
    assert "incomplete and not low" in page.locator(".opv-md").inner_text()
    assert page.locator(".opv-cursor").count() == 0
    assert not page.get_by_role("button", name="Stop").is_visible()


@pytest.mark.parametrize(
    ("end", "word", "note"),
    [
        ({"status": "cancelled"}, "Cancelled", "You stopped the turn."),
        (
            {"status": "failed", "code": "model_error", "message": "connection closed"},
            "Failed",
            "model_error: connection closed",
        ),
        ({"status": "failed", "code": "permission_denied"}, "Denied", "The call was denied."),
    ],
)
def test_a_turn_without_an_answer_says_what_happened(
    open_view: Open, end: Wire, word: str, note: str
) -> None:
    page = loaded(open_view, Story().start().text("half").finish(**end)).page
    assert page.locator(".opv-st").inner_text() == word
    assert note in page.locator(".opv-outcome").inner_text()
    assert "half" not in page.locator("#view").inner_text()


def test_a_running_tool_shows_its_last_line_and_its_output_so_far(open_view: Open) -> None:
    story = Story().start().tell("tool_call_started", id="c", name="python", arguments="{}")
    view = loaded(open_view, story.tell("tool_call_progress", id="c", text="one"))
    view.page.locator(".opv-call summary").click()
    view.deliver(updates(story.tell("tool_call_progress", id="c", text="two")))
    assert view.page.locator(".opv-arg").inner_text() == "two"
    assert view.page.get_by_label("Output so far").inner_text() == "one\ntwo\n"


def test_tool_calls_in_the_graph_show_their_arguments_in_short(open_view: Open) -> None:
    story = Story().start().node("t", "tool", "python", '{"code":"a = 1"}')
    story.call("c", "python", '{"code":"a = 1"}', node_id="t")
    page = loaded(open_view, story).page
    assert page.locator(".opv-text").inner_text() == "a = 1"


def test_stop_asks_the_kernel_once(open_view: Open) -> None:
    view = loaded(open_view, stories.running())
    stop = view.page.get_by_role("button", name="Stop: interrupt this turn")
    stop.dblclick()
    assert view.sent[1:] == [{"kind": "cancel"}]
    assert stop.is_disabled()
    assert stop.inner_text() == "Stopping…"


def test_without_a_kernel_the_saved_words_are_shown(open_view: Open) -> None:
    view = open_view()
    view.page.evaluate("window.saved = {status: 'completed', answer: '**42**'}")
    view.page.get_by_text("No kernel answers for this view").wait_for()
    assert view.page.locator(".opv-md strong").inner_text() == "42"
    assert view.page.locator(".opv-st").inner_text() == "Done"


def test_a_view_asks_again_for_an_answer_that_was_lost(open_view: Open) -> None:
    view = open_view()
    view.page.get_by_text("No kernel answers for this view").wait_for()
    assert view.sent == [{"kind": "ready"}] * 2

    view.load(state_of(stories.asking(stories.request("c1"))))

    assert view.page.get_by_role("button", name="Allow once").is_visible()
    assert not view.page.get_by_text("No kernel answers for this view").is_visible()


def test_a_view_that_is_removed_stops_listening(open_view: Open) -> None:
    view = loaded(open_view, Story().start())
    view.page.evaluate("window.cleanup()")
    view.deliver(updates(Story().start().text("later")))
    assert "later" not in view.page.locator("#view").inner_text()


NOTEBOOK = """(id) => {
  const outputs = [{data: {"application/vnd.jupyter.widget-view+json": {model_id: id}}}];
  outputs.get = (at) => outputs[at];
  window.model.widget_manager = {context: {model: {cells: [{}, {outputs}]}}};
}"""


@pytest.mark.parametrize(("inside", "cleared"), [("w1", False), ("another", True)])
def test_a_view_that_is_removed_says_whether_its_output_was_cleared(
    open_view: Open, inside: str, cleared: bool
) -> None:
    view = loaded(open_view, stories.running(), place="w1")
    view.page.evaluate(NOTEBOOK, inside)
    view.deliver({"kind": "who"})
    view.page.evaluate("window.cleanup()")
    assert view.sent[-2:] == [{"kind": "here"}, {"kind": "removed", "cleared": cleared}]


def test_finished_paragraphs_keep_their_elements_while_the_answer_grows(open_view: Open) -> None:
    story = Story().start().phase("running_model", 1).text("first\n\nsec")
    view = loaded(open_view, story)
    view.page.evaluate("window.kept = document.querySelector('.opv-md p')")
    view.deliver(updates(story.text("ond\n\nthird")))
    assert view.page.evaluate("window.kept === document.querySelector('.opv-md p')")
    assert view.page.locator(".opv-md p").all_inner_texts() == ["first", "second", "third"]


# -- the graph


def test_a_new_node_moves_no_row(open_view: Open) -> None:
    story = stories.running()
    view = loaded(open_view, story)
    tops = "() => [...document.querySelectorAll('.opv-row')].map((row) => row.style.top)"
    before = view.page.evaluate(tops)
    view.deliver(updates(story.node("x1", "tool", "python", caller="n13")))
    assert view.page.evaluate(tops)[: len(before)] == before


def test_arrow_keys_move_through_the_graph_and_fill_the_details(open_view: Open) -> None:
    view = loaded(open_view, stories.running(), details=True, actions=["fork"])
    page = view.page
    page.get_by_role("listbox").focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    selected = page.locator("[aria-selected=true]")
    assert "read_file" in selected.inner_text()
    active = page.get_by_role("listbox").get_attribute("aria-activedescendant")
    assert selected.get_attribute("id") == active
    assert {"kind": "details", "id": "n12"} in view.sent
    told = {"input": "read_file(path)", "output": "gone", "permission": "allowed by mode: auto"}
    view.deliver({"kind": "details", "id": "n12", **told})
    panel = page.get_by_label("Node details")
    assert panel.get_by_label("Output").inner_text() == "gone"
    assert panel.get_by_label("Permission").inner_text() == "allowed by mode: auto"
    assert panel.get_by_role("button", name="Fork here").count() == 0  # a call inside


def test_a_node_of_the_conversation_can_be_gone_back_to(open_view: Open) -> None:
    actions = ["fork", "rewind", "show_prompt", "undo"]
    story = stories.running()
    view = loaded(open_view, story, details=True, actions=actions)
    page, panel = view.page, view.page.get_by_label("Node details")
    view.deliver(updates(story.node("x1", "function", "mood")))  # a call that a cell made
    page.get_by_role("option", name="mood").click()
    assert panel.get_by_role("button", name="Rewind here").count() == 1
    page.get_by_role("option").nth(1).click()
    for name, action in (("Fork", "fork"), ("Rewind", "rewind"), ("Show prompt", "show_prompt")):
        panel.get_by_role("button", name=name).click()
        assert view.sent[-1] == {"kind": "node_action", "action": action, "id": "n9"}
    view.deliver({"kind": "note", "id": "n9", "action": "fork", "text": "the next cell forks"})
    assert "the next cell forks" in panel.inner_text()
    assert panel.get_by_role("button", name="Put files back").count() == 0
    view.deliver({"kind": "expire"})
    for name in ("Fork here", "Rewind here", "Show prompt"):
        assert panel.get_by_role("button", name=name).is_disabled()
    assert panel.get_by_role("button", name="Copy id").is_enabled()


def test_files_are_put_back_once_they_were_shown_and_that_was_confirmed(open_view: Open) -> None:
    view = loaded(open_view, stories.running(), details=True, actions=["undo"])
    page, panel = view.page, view.page.get_by_label("Node details")
    page.get_by_role("option").nth(3).click()
    view.deliver({"kind": "details", "id": "n11", "input": "", "output": "", "changes": ["a<b>"]})
    panel.get_by_role("button", name="Put files back").click()
    assert "a<b>" in panel.inner_text()
    assert page.evaluate("document.activeElement.textContent") == "Leave them"
    panel.get_by_role("button", name="Leave them").click()
    assert {"kind": "node_action", "action": "undo", "id": "n11"} not in view.sent
    panel.get_by_role("button", name="Put files back").click()
    panel.get_by_role("button", name="Put back", exact=True).click()
    assert view.sent[-1] == {"kind": "node_action", "action": "undo", "id": "n11"}


def test_the_header_tells_what_the_calls_cost_where_prices_are_known(open_view: Open) -> None:
    story = stories.running()
    view = loaded(open_view, story)
    assert "cost" not in view.page.locator(".opv-hd").inner_text()
    view.deliver(updates(story.tell("node_updated", id="n9", cost=0.0625)))
    assert "cost 0.0625" in view.page.locator(".opv-hd").inner_text()


def test_each_call_of_a_loop_can_be_looked_at(open_view: Open) -> None:
    page = loaded(open_view, stories.running()).page
    page.get_by_role("option", name=re.compile("^review_month")).click()
    panel = page.get_by_label("Node details")
    assert "call 1 of 12" in panel.inner_text()
    panel.get_by_role("button", name="Next call").click()
    assert 'month="2024-02"' in panel.inner_text()
    assert "all done" in panel.inner_text()
    panel.get_by_role("button", name="python").click()
    assert "python" in page.locator("[aria-selected=true]").inner_text()


def test_loops_unfold_by_hand_and_fold_again(open_view: Open) -> None:
    page = loaded(open_view, stories.running()).page
    fold = page.get_by_role("button", name="Fold loops")
    fold.click()
    assert page.locator(".opv-rows").evaluate("e => e.offsetHeight") == 16 + 30 * 28
    fold.click()
    assert page.locator(".opv-rows").evaluate("e => e.offsetHeight") == 16 + 8 * 28


def big(count: int) -> Story:
    story = Story().start().node("u", "user", "user", "go")
    story.node("m", "model", "model", "many calls", predecessor="u")
    for index in range(count):
        story.node(f"t{index}", "tool", "python", f"call {index}", caller="m")
    return story


def test_a_long_graph_only_draws_the_rows_in_view(open_view: Open) -> None:
    view = loaded(open_view, big(2000))
    page = view.page
    assert page.get_by_role("option").count() < 80
    page.get_by_role("listbox").focus()
    page.keyboard.press("End")
    view.settle()
    assert "call 1999" in page.locator("[aria-selected=true]").inner_text()
    page.keyboard.press("Home")
    view.settle()
    assert "user" in page.locator("[aria-selected=true]").inner_text()
    assert page.get_by_role("option").count() < 80


def test_an_update_of_a_long_graph_touches_few_elements(open_view: Open) -> None:
    story = big(2000)
    view = loaded(open_view, story)
    view.page.evaluate(
        """() => {
          window.touched = 0;
          new MutationObserver((all) => { for (const one of all)
            window.touched += one.addedNodes.length + one.removedNodes.length;
          }).observe(document.querySelector('.opv-rows'), {childList: true, subtree: true});
        }"""
    )
    story.sequence = 10_000
    one_more = Story()
    one_more.sequence = 20_000
    view.deliver(updates(one_more.tell("node_updated", id="t3", status="error")))
    assert view.page.evaluate("window.touched") < 20


def test_lanes_beyond_the_gutter_scroll_to_the_row_that_is_chosen(open_view: Open) -> None:
    story = Story().start()
    for depth in range(12):
        story.node(f"f{depth}", "function", f"f{depth}", caller=f"f{depth - 1}" if depth else None)
    view = loaded(open_view, story)
    page = view.page
    assert "lanes 7–12 of 12" in page.locator(".opv-lanes").inner_text()
    page.get_by_role("listbox").focus()
    page.keyboard.press("Home")
    assert "lanes 1–6 of 12" in page.locator(".opv-lanes").inner_text()
    page.get_by_role("button", name="Lanes to the right").click()
    assert "lanes 2–7 of 12" in page.locator(".opv-lanes").inner_text()


def test_a_node_whose_call_waits_on_the_card_is_told_as_waiting(open_view: Open) -> None:
    view = loaded(open_view, stories.asking(stories.request("c1")))
    row = view.page.get_by_role("option", name=re.compile("^python waiting, tool"))
    row.wait_for()
    resolved = Story()
    resolved.sequence = 1000
    view.deliver(
        updates(resolved.tell("permission_resolved", id="c1", answer="allow", how="click"))
    )
    view.page.get_by_role("option", name=re.compile("^python running, tool")).wait_for()


# -- Markdown


def test_endless_nesting_and_unclosed_marks_do_not_hang_the_page(open_view: Open) -> None:
    story = Story().start().phase("running_model", 1)
    for text in (
        "> " * 3000,
        "*a " * 20_000,
        "[" * 20_000,
        "`" * 9999 + " " + "``" * 5000,
        "[a](" * 9000,
        "- " * 2000,
        "_*" * 20_000,
        "|" * 20_000,
    ):
        story.text(text, "\n\n")
    view = open_view()
    clock = Clock(view.page)
    before = clock.seconds()
    view.load(state_of(story))
    assert clock.seconds() - before < 20  # what hangs takes minutes


def test_markdown_is_rendered_as_models_write_it(open_view: Open) -> None:
    source = (
        "# T\n\nA *b* **c** ~~d~~ `e` ***f*** snake_case_name 2*3*4 <b>g</b> &amp; \\*h\\*\n"
        "next  \nbroken\n\n> quote\n> more\n\n1. one\n2. two\n   - inner\n     text\n\n"
        "- a\n\n  second\n- b\n\n***\n\n```python\ndef f(): return '<x>'\n```\n\n"
        "|a|b|\n|:-|-:|\n|`x\\|y`|**2**|\n\n"
        'https://example.org/a_b(c). <https://example.org/d> [e **f**](https://example.org/f "t")\n'
        "[no](javascript:alert(1)) ![pic](https://example.org/p.png)\n\nSetext\n---\nend"
    )
    page = loaded(open_view, Story().start().finish(source)).page
    html = re.sub(
        r' (class|target|rel|title|tabindex)="[^"]*"', "", page.locator(".opv-md").inner_html()
    )
    for part in [
        "<h3>T</h3>",
        "<em>b</em> <strong>c</strong> <s>d</s> <code>e</code>",
        "<strong>f</strong>",
        "snake_case_name 2<em>3</em>4 &lt;b&gt;g&lt;/b&gt; &amp; *h*",
        "next<br>",
        "<blockquote><p>quote\nmore</p></blockquote>",
        "<ol><li>one</li><li>two<ul><li>inner\ntext</li></ul></li></ol>",
        "<ul><li><p>a</p><p>second</p></li><li><p>b</p></li></ul>",
        "<hr>",
        "<td><code>x|y</code></td><td><strong>2</strong></td>",
        '<a href="https://example.org/a_b(c)">https://example.org/a_b(c)</a>. ',
        '<a href="https://example.org/d">https://example.org/d</a>',
        '<a href="https://example.org/f">e <strong>f</strong></a>',
        "<span>no</span>",
        "[image: pic]",
        "<h4>Setext</h4><p>end</p>",
    ]:
        assert part in html, part


def test_words_for_a_screen_reader_come_by_step_not_by_token(open_view: Open) -> None:
    story = Story().start().phase("running_model", 1).text("a")
    view = loaded(open_view, story)
    view.page.evaluate(
        """() => { window.spoken = 0;
          new MutationObserver((all) => { window.spoken += all.length; }).observe(
            document.querySelector('[role=status][aria-live]'),
            {childList: true, characterData: true, subtree: true}); }"""
    )
    for piece in "bcdef":
        view.deliver(updates(story.text(piece)))
    assert view.page.evaluate("window.spoken") == 0
    view.deliver(updates(story.phase("running_model", 2)))
    status = view.page.locator("[role=status][aria-live]")
    assert status.inner_text() == "Step 2. Writing the answer."
