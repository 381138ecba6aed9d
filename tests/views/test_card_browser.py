"""The permission card in a real browser: what it shows, and that it takes one answer."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator
from views import stories
from views.harness import ViewPage
from views.stories import Story

from op_jupyter.views.model import TurnModel

pytestmark = pytest.mark.browser
Open = Callable[..., ViewPage]
Wire = dict[str, Any]


def asked(open_view: Open, ask: Wire) -> tuple[ViewPage, Locator]:
    return asked_in(open_view(), ask)


def asked_in(view: ViewPage, ask: Wire) -> tuple[ViewPage, Locator]:
    model = TurnModel()
    for envelope in stories.asking(ask, tool=ask["tool"]).updates:
        model.apply(envelope)
    view.load(model.to_json())
    return view, view.page.locator(".opv-card")


def decisions(view: ViewPage) -> list[Wire]:
    return [message for message in view.sent if message["kind"] == "decide"]


def resolve(view: ViewPage, answer: str, how: str = "click") -> None:
    story = Story()
    story.sequence = 1000
    story.tell("permission_resolved", id="c1", answer=answer, how=how)
    view.deliver({"kind": "updates", "items": story.updates})


def armed(view: ViewPage) -> None:
    """Wait until keys decide: one that was pressed as the card opened was not meant for it."""
    view.settle()
    now = view.page.evaluate("performance.now()")
    view.page.wait_for_function("now => performance.now() - now > 260", arg=now)


def focused(view: ViewPage) -> str:
    return str(view.page.evaluate("document.activeElement.dataset.answer ?? ''"))


def test_everything_needed_to_decide_is_visible_in_order(open_view: Open) -> None:
    _, card = asked(open_view, stories.dangerous_request())
    text = card.inner_text()
    parts = [
        "Run this Python code?",
        "dangerous: deletes files",
        "Deleting always asks",
        "accept_edits",
        "build/cache/",
        "A copy of the workspace",
        "shutil.rmtree(run)",
        "deletes folders",
        "Allow once",
        "Allow for this session…",
        "Edit first",
        "Deny",
        "Deny with message…",
        "back to the notebook",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert card.locator(".opv-bad").count() == 2


def test_the_safe_answer_has_the_focus_and_the_card_is_announced(open_view: Open) -> None:
    view, card = asked(open_view, stories.dangerous_request())
    assert focused(view) == "deny"
    alert = view.page.locator("[role=alert]").inner_text()
    assert alert == "Approval needed. Run this Python code? Dangerous: Deletes files."
    assert card.get_attribute("role") == "group"


def test_the_focus_is_not_taken_from_somebody_who_writes(open_view: Open) -> None:
    view = open_view()
    view.page.evaluate("document.body.append(document.createElement('textarea'))")
    view.page.locator("body > textarea").press_sequentially("half a sen")
    model = TurnModel()
    for envelope in stories.asking(stories.request("c1")).updates:
        model.apply(envelope)
    view.load(model.to_json())
    assert view.page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    assert "Approval needed" in view.page.locator("[role=alert]").inner_text()


@pytest.mark.parametrize(("name", "answer"), [("Allow once", "allow"), ("Deny", "deny")])
def test_one_click_is_one_answer_also_when_doubled(open_view: Open, name: str, answer: str) -> None:
    view, card = asked(open_view, stories.request("c1"))
    card.get_by_role("button", name=name, exact=True).dblclick()
    assert decisions(view) == [{"kind": "decide", "id": "c1", "answer": answer}]
    assert card.get_by_role("button", name=name, exact=True).is_disabled()
    assert "sent, waiting for the kernel" in card.inner_text()


def test_an_answered_card_folds_to_one_line_until_its_call_is_done(open_view: Open) -> None:
    view, _ = asked(open_view, stories.request("c1"))
    resolve(view, "allow_session", how="stdin")
    assert view.page.locator(".opv-card").count() == 0
    line = view.page.locator(".opv-answered").inner_text()
    assert "allowed for this session (stdin)" in line.replace("\n", " ")
    story = Story()
    story.sequence = 2000
    story.tell("tool_call_finished", id="c1", name="python", state="succeeded", text="ok")
    view.deliver({"kind": "updates", "items": story.updates})
    assert view.page.locator(".opv-answered").count() == 0


@pytest.mark.parametrize(("key", "answer"), [("a", "allow"), ("d", "deny"), ("D", "deny")])
def test_letters_answer_while_the_card_has_the_focus(
    open_view: Open, key: str, answer: str
) -> None:
    view, _ = asked(open_view, stories.request("c1"))
    armed(view)
    view.page.keyboard.press(key)
    assert [message["answer"] for message in decisions(view)] == [answer]


def test_letters_do_nothing_elsewhere_and_with_modifiers(open_view: Open) -> None:
    view, _ = asked(open_view, stories.request("c1"))
    armed(view)
    view.page.keyboard.press("Control+a")
    view.page.evaluate("document.activeElement.blur()")
    view.page.keyboard.press("a")
    assert decisions(view) == []


@pytest.mark.parametrize("key", ["a", "d", "Enter", " "])
def test_a_key_that_was_meant_for_something_else_decides_nothing(open_view: Open, key: str) -> None:
    view = open_view()
    model = TurnModel()
    for envelope in stories.asking(stories.request("c1")).updates:
        model.apply(envelope)
    # In one task: the card opens, and the key arrives at once.
    view.page.evaluate(
        """async ([message, key]) => {
          window.deliver(message);
          await new Promise((done) => requestAnimationFrame(done));
          const event = new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true});
          // What a browser does with Enter and space on a button, unless it is told not to.
          const goesOn = document.activeElement.dispatchEvent(event);
          if (goesOn && key.length !== 1 || goesOn && key === ' ') document.activeElement.click();
        }""",
        [{"kind": "snapshot", "state": model.to_json(), "now_ms": 0, "expired": False}, key],
    )
    assert decisions(view) == []


def test_a_card_that_did_not_take_the_focus_still_hears_keys(open_view: Open) -> None:
    view = open_view()
    view.page.evaluate("document.body.append(document.createElement('textarea'))")
    view.page.locator("body > textarea").press_sequentially("half")
    asked_in(view, stories.request("c1"))
    view.page.get_by_role("button", name="Deny", exact=True).focus()
    view.page.keyboard.press("a")
    assert [message["answer"] for message in decisions(view)] == ["allow"]


def test_the_keyboard_alone_reaches_every_answer(open_view: Open) -> None:
    view, _ = asked(open_view, stories.request("c1"))
    armed(view)
    view.page.keyboard.press("Tab")
    assert focused(view) == "message"
    for expected in ("deny", "edit", "session", "allow"):
        view.page.keyboard.press("Shift+Tab")
        assert focused(view) == expected
    view.page.keyboard.press("Enter")
    assert decisions(view)[0]["answer"] == "allow"


def test_escape_closes_the_drawer_then_leaves_and_decides_nothing(open_view: Open) -> None:
    view, card = asked(open_view, stories.request("c1"))
    view.page.keyboard.press("m")
    assert view.page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    view.page.keyboard.type("a d s")
    view.page.keyboard.press("Escape")
    assert card.locator("textarea").count() == 0
    assert focused(view) == "message"
    view.page.keyboard.press("Escape")
    assert not view.page.evaluate("document.querySelector('.opv').contains(document.activeElement)")
    assert decisions(view) == []


def test_the_session_rule_is_shown_in_full_before_it_is_added(open_view: Open) -> None:
    rule = "python(code:\nimport shutil\nshutil.rmtree(run))"
    view, card = asked(open_view, stories.request("c1", rule=rule))
    card.get_by_role("button", name="Allow for this session…").click()
    assert card.get_by_label("The rule").inner_text() == rule
    assert decisions(view) == []
    card.get_by_role("button", name="Add rule and allow").click()
    assert decisions(view)[0]["answer"] == "allow_session"


def test_one_drawer_is_open_at_a_time(open_view: Open) -> None:
    _, card = asked(open_view, stories.request("c1"))
    for name in ("Allow for this session…", "Edit first", "Deny with message…"):
        card.get_by_role("button", name=name).click()
        assert card.locator(".opv-drawer").count() == 1
        assert card.locator("[aria-expanded=true]").count() == 1
    card.get_by_role("button", name="Deny with message…").click()
    assert card.locator(".opv-drawer").count() == 0


def test_a_message_goes_with_the_denial_and_an_empty_one_does_not(open_view: Open) -> None:
    view, card = asked(open_view, stories.request("c1"))
    card.get_by_role("button", name="Deny with message…").click()
    card.get_by_role("button", name="Deny and send").click()
    assert decisions(view) == []
    card.get_by_label("Message to the agent").fill("  Use a copy.  ")
    card.get_by_role("button", name="Deny and send").click()
    assert decisions(view) == [
        {"kind": "decide", "id": "c1", "answer": "deny_message", "message": "Use a copy."}
    ]


def test_edited_code_is_sent_as_the_whole_arguments(open_view: Open) -> None:
    code = "a = 1\nb = 2"
    view, card = asked(
        open_view, stories.request("c1", code=code, arguments={"code": code, "timeout": 5})
    )
    assert '"timeout": 5' in card.get_by_label("Other arguments").inner_text()
    card.get_by_role("button", name="Edit first").click()
    area = card.get_by_label("Edit the code, then allow")
    assert area.input_value() == code
    area.fill("a = 1\nb = 3")
    assert "1 line differs from the proposal" in card.inner_text()
    card.get_by_role("button", name="Allow edited").click()
    assert decisions(view)[0]["arguments"] == {"code": "a = 1\nb = 3", "timeout": 5}
    assert decisions(view)[0]["answer"] == "allow"


def test_an_unchanged_edit_is_a_plain_allow(open_view: Open) -> None:
    view, card = asked(open_view, stories.request("c1"))
    card.get_by_role("button", name="Edit first").click()
    card.get_by_role("button", name="Allow edited").click()
    assert decisions(view) == [{"kind": "decide", "id": "c1", "answer": "allow"}]


def test_an_edit_of_a_file_shows_a_diff_and_edits_the_new_text(open_view: Open) -> None:
    view, card = asked(open_view, stories.diff_request())
    assert card.locator("h3").inner_text() == "Edit src/clean.py?"
    assert "+2 −1 lines" in card.inner_text()
    assert card.locator(".opv-add").count() == 2
    assert card.locator(".opv-del").all_inner_texts()[0].startswith("13")
    card.get_by_role("button", name="Edit first").click()
    card.get_by_label("Edit the new text, then allow").fill("pass")
    card.get_by_role("button", name="Allow edited").click()
    assert decisions(view)[0]["arguments"]["new"] == "pass"
    assert decisions(view)[0]["arguments"]["path"] == "src/clean.py"


def test_other_arguments_are_json_and_a_broken_edit_is_not_sent(open_view: Open) -> None:
    ask = stories.request("c1", tool="fetch", arguments={"url": "https://example.org", "n": 1})
    ask["display"] = {"kind": "json"}
    view, card = asked(open_view, ask)
    assert card.locator("h3").inner_text() == "Call fetch?"
    assert '"n": 1' in card.get_by_role("region").inner_text()
    card.get_by_role("button", name="Edit first").click()
    area = card.get_by_label("Edit the arguments, then allow")
    for broken in ('{"url": ', "[1]", "3"):
        area.fill(broken)
        card.get_by_role("button", name="Allow edited").click()
        assert "not a JSON object" in card.inner_text()
    assert decisions(view) == []
    area.fill('{"url": "https://example.org/x"}')
    card.get_by_role("button", name="Allow edited").click()
    assert decisions(view)[0]["arguments"] == {"url": "https://example.org/x"}


def test_huge_arguments_are_cut_but_dangerous_lines_never(open_view: Open) -> None:
    lines = [f"x{index} = {index}" for index in range(1000)]
    lines[700] = "shutil.rmtree('/')"
    code = "\n".join(lines)
    ask = stories.request("c1", code=code)
    ask["display"]["lines"] = {"701": "deletes folders"}
    _, card = asked(open_view, ask)
    region = card.get_by_role("region", name="Full arguments")
    assert "x900 =" not in region.inner_text()
    assert "shutil.rmtree('/')" in region.inner_text()
    card.get_by_role("button", name="Show all 1000 lines (800 more)").click()
    assert "x900 =" in region.inner_text()
    assert region.evaluate("e => e.scrollHeight > e.clientHeight")


def test_one_endless_line_is_cut_and_can_be_seen_whole(open_view: Open) -> None:
    code = "x = '" + "a" * 50_000 + "END'"
    _, card = asked(open_view, stories.request("c1", code=code))
    region = card.get_by_role("region", name="Full arguments")
    assert "END" not in region.inner_text()
    card.get_by_role("button", name="Show all").click()
    assert "END" in region.inner_text()


def test_a_long_line_is_wrapped_so_that_its_dangerous_end_is_seen_on_a_narrow_page(
    open_view: Open,
) -> None:
    command = "find . -name '*.py' -print0 | xargs -0 grep -l pandas | head -50 && rm -rf build/"
    shown = {"kind": "code", "language": "shell", "code": command, "lines": {"1": "deletes"}}
    view, card = asked(open_view, stories.request(code=command, tool="shell", display=shown))
    view.page.add_style_tag(content="main{width:400px !important}")
    beyond, end, label = view.page.evaluate(
        """() => {
          const box = document.querySelector('.opv-code');
          const all = document.createRange();
          all.selectNodeContents(box.querySelector('u'));
          const label = document.createRange();
          label.selectNodeContents(box.querySelector('.opv-why'));
          const [code, words] = [all, label].map((range) => range.getBoundingClientRect());
          return [box.scrollWidth - box.clientWidth, code.right, words.left];
        }"""
    )
    assert beyond <= 0 and end <= label
    buttons = [card.get_by_role("button", name=name).first for name in ("Allow once", "Deny")]
    assert all(button.bounding_box()["x"] < 400 for button in buttons)


def test_characters_that_hide_code_are_written_out(open_view: Open) -> None:
    code = "access = 'user\u202e \u2066# check\u2069 \u2066'"
    _, card = asked(open_view, stories.request("c1", code=code))
    assert "[U+202E]" in card.get_by_role("region", name="Full arguments").inner_text()


def test_a_card_whose_kernel_has_ended_is_expired_and_has_no_answers(open_view: Open) -> None:
    view, _ = asked(open_view, stories.dangerous_request())
    view.deliver({"kind": "expire"})
    card = view.page.locator(".opv-card")
    assert "expired" in card.inner_text()
    assert "did not run" in card.inner_text()
    assert card.get_by_role("button").count() == 0
    assert view.page.locator(".opv-st").inner_text() == "Interrupted"
    assert view.page.locator(".opv-call .opv-state").inner_text() == "interrupted"
    assert "interrupted" in view.page.get_by_role("option").last.inner_text()
    assert not view.page.get_by_role("button", name="Stop").is_visible()


def test_a_view_that_loses_its_kernel_expires_its_card(open_view: Open) -> None:
    view, _ = asked(open_view, stories.request("c1"))
    view.page.evaluate("window.fire('comm_live_update')")
    view.settle()
    assert "expired" in view.page.locator(".opv-card").inner_text()


def test_a_page_that_reloads_gets_the_card_back(open_view: Open) -> None:
    view, _ = asked(open_view, stories.request("c1"))
    model = TurnModel()
    for envelope in stories.asking(stories.request("c1")).updates:
        model.apply(envelope)
    view.page.evaluate("window.cleanup(); document.getElementById('view').remove()")
    view.page.evaluate("window.sent = []")
    view.page.evaluate("() => { window.cleanup = window.show('again'); }")
    assert view.sent == [{"kind": "ready"}]
    view.load(model.to_json())
    view.page.get_by_role("button", name="Allow once").click()
    assert decisions(view)[0]["id"] == "c1"


def test_two_views_of_one_turn_both_close_their_card(open_view: Open) -> None:
    view, _ = asked(open_view, stories.request("c1"))
    view.page.evaluate("() => { window.show('second'); }")
    model = TurnModel()
    for envelope in stories.asking(stories.request("c1")).updates:
        model.apply(envelope)
    view.load(model.to_json())
    assert view.page.locator(".opv-card").count() == 2
    view.page.locator("#second").get_by_role("button", name="Allow once").click()
    resolve(view, "allow")
    assert view.page.locator(".opv-card").count() == 0


def test_a_key_that_is_pressed_again_after_the_answer_goes_nowhere(open_view: Open) -> None:
    view, card = asked(open_view, stories.request("c1"))
    view.page.evaluate("document.body.addEventListener('keydown', () => { window.leaked = true; })")
    armed(view)
    view.page.keyboard.press("d")
    view.page.keyboard.press("d")
    assert [message["answer"] for message in decisions(view)] == ["deny"]
    assert card.evaluate("e => e === document.activeElement")
    assert view.page.evaluate("window.leaked") is None


def test_the_notebooks_own_keys_for_interrupting_stop_the_turn(open_view: Open) -> None:
    view, _ = asked(open_view, stories.request("c1"))
    view.page.keyboard.press("i")
    assert {"kind": "cancel"} not in view.sent
    view.page.keyboard.press("i")
    view.page.keyboard.press("i")
    assert view.sent.count({"kind": "cancel"}) == 1


def test_everything_that_takes_the_focus_keeps_its_keys_from_the_notebook(open_view: Open) -> None:
    view, card = asked(open_view, stories.request("c1"))
    card.get_by_role("button", name="Edit first").click()
    free = view.page.evaluate(
        "[...document.querySelectorAll('.opv :is(button, textarea, summary, [tabindex])')]"
        ".filter((e) => !e.hasAttribute('data-lm-suppress-shortcuts')).length"
    )
    assert free == 0


def test_an_answer_that_nobody_takes_is_said_to_be_lost(open_view: Open) -> None:
    view = open_view(alone=True)
    view.page.clock.install()
    view, card = asked_in(view, stories.request("c1"))
    card.get_by_role("button", name="Allow once").click()
    view.page.clock.run_for(7000)
    assert "the kernel has not replied" in card.inner_text()
