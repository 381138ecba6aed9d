"""Hostile text is inert wherever it is shown: all of it in one page, in every place at once."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from views import stories
from views.harness import QuestionPage, ViewPage
from views.hostile import HOSTILE
from views.stories import Story

from op_jupyter.core.questions import FormField, Question
from op_jupyter.core.visible import visible
from op_jupyter.views.model import TurnModel
from op_jupyter.views.question_view import question_bundle
from op_jupyter.views.static_html import static_bundle
from op_jupyter.views.terminal import call_line, graph_lines
from op_jupyter.views.text import storable

pytestmark = pytest.mark.browser
Wire = dict[str, Any]

# What acts, and attributes that run something or fetch, of which the view has none; what can be
# read, and how wide the page is.
ACTING = """(place) => {
  const found = [];
  const acts = 'script,img,image,iframe,object,embed,style,link,base,meta,foreignObject,animate,'
    + 'set,math,video,audio,[autofocus],form:not(.opv-question)';
  for (const element of document.querySelectorAll(`${place} *`)) {
    if (element.matches(acts)) found.push(element.outerHTML.slice(0, 200));
    for (const {name, value} of element.attributes) {
      const link = /^(href|src|xlink:href|action|formaction|srcdoc|poster|data)$/.test(name);
      if (name.startsWith('on') || (link && !/^https?:\\/\\//.test(value)))
        found.push(`${name}=${value.slice(0, 200)}`);
    }
  }
  if (window.pwned !== undefined) found.push('pwned');
  if (document.title !== 'Turn') found.push(document.title);
  const shown = document.querySelector(place).innerText;
  return [found, shown, document.documentElement.scrollWidth];
}"""
INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)


def hostile_story() -> Story:
    """A turn in which everything that may be text is hostile."""
    story = Story().start("".join(HOSTILE)[:500]).phase("running_model", 1)
    for number, text in enumerate(HOSTILE):
        story.node(f"u{number}", "user", text, text)
        story.node(f"f{number}", "function", text, text, caller=f"u{number}", status="error")
        story.node(f"t{number}", "tool", text, "", caller=f"f{number}")
        arguments = json.dumps({"code": text, text: text})
        story.call(f"a{number}", text, arguments, text, node_id=f"t{number}")
        story.call(f"b{number}", text, text, text, "failed")
        story.text(text, "\n\n")
        story.tell("reasoning_delta", text=text)
        story.tell("draft_cleared")
    story.tell("plan_updated", steps=[{"text": text, "status": text} for text in HOSTILE])
    return story.text(*(f"{text}\n\n" for text in HOSTILE))


def state_of(story: Story) -> Wire:
    model = TurnModel()
    for envelope in story.updates:
        model.apply(envelope)
    return storable(model.to_json())


def updates(story: Story) -> Wire:
    return {"kind": "updates", "items": story.updates}


def hostile_cards() -> Iterator[Wire]:
    """Each text in a card, in turn of each kind; and one of each kind that holds all texts."""
    for number, text in enumerate(HOSTILE):
        yield card(number % 3, text)
    for kind in range(3):
        yield card(kind, "\n".join(HOSTILE))


def card(kind: int, text: str) -> Wire:
    more = {"reason": text, "rule": text, "touches": [text], "undo": text, "mode": text}
    more |= {"dangers": [text, text], "tool": text}
    if kind == 0:
        code = stories.request("c", code=text, **more)
        code["display"]["lines"] = {"1": text}
        return code
    if kind == 1:
        path = "src/" + text
        diff = f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{text}\n+{text}\n"
        shown = {"kind": "diff", "path": path, "diff": diff}
        return stories.request("c", arguments={"path": path, "new": text}, display=shown, **more)
    return stories.request("c", arguments={text: {text: [text]}}, display={}, **more)


def judge(page: Any, what: str, place: str = "main") -> None:
    acting, shown, width = page.evaluate(ACTING, place)
    assert acting == [], what
    assert INVISIBLE.search(shown) is None, what
    assert width <= 880, what


def open_all(page: Any, *, wanted: bool) -> None:
    script = "(wanted) => document.querySelectorAll('details').forEach((e) => { e.open = wanted; })"
    page.evaluate(script, wanted)


def press(page: Any, answer: str) -> None:
    """Click one of the card's buttons, without waiting for a place to click at."""
    page.evaluate("(name) => document.querySelector(`[data-answer=${name}]`)?.click()", answer)


def test_in_the_live_view_and_its_details(shared_page: Any) -> None:
    view = ViewPage(shared_page)
    view.load(state_of(hostile_story()), details=True, actions=["fork"])
    page = view.page
    open_all(page, wanted=True)
    judge(page, "everything open")
    open_all(page, wanted=False)
    page.get_by_role("listbox").focus()
    for number, text in enumerate(map(storable, HOSTILE)):
        page.keyboard.press("Home" if number == 0 else "ArrowDown")
        node = view.sent[-1]["id"]
        told = {"input": text, "output": text, "permission": text}
        page.evaluate("(m) => window.deliver(m)", {"kind": "details", "id": node, **told})
        page.evaluate("(m) => window.deliver(m)", {"kind": "note", "id": node, "text": text})
        judge(page, f"details: {text!r:.200}", ".opv-dag")
    view.leave()
    assert view.problems == []


def test_in_the_permission_card(shared_page: Any) -> None:
    view = ViewPage(shared_page)
    page = view.page
    view.load(state_of(Story().start()))
    told = Story().start()
    for ask in hostile_cards():
        told.updates.clear()
        view.deliver(updates(told.tell("permission_requested", **storable(ask))))
        press(page, "session")
        judge(page, f"card: {ask!r:.300}")
        press(page, "edit")
        told.updates.clear()
        view.deliver(updates(told.tell("permission_resolved", id="c", answer="allow")))
        judge(page, f"answered: {ask!r:.300}")
    view.leave()
    assert view.problems == []


def test_in_the_form_of_a_question(shared_page: Any) -> None:
    options = tuple(storable(text) for text in HOSTILE)
    fields = tuple(
        FormField(text, kind, text, text, options=(text, "other"), default=None)
        for text in options
        for kind in ("text", "choice")
    )
    for values in ({"kind": "ask", "options": options}, {"kind": "form", "fields": fields}):
        asked = Question("q", "s", "t", prompt=" ".join(options), **values)  # type: ignore[arg-type]
        form = QuestionPage(shared_page, asked.to_json())
        form.deliver({"kind": "problem", "text": " ".join(options)})
        judge(form.page, values["kind"])
        form.leave()
        assert form.problems == []


def test_in_what_is_saved(shared_page: Any) -> None:
    """As a page shows it that sanitises nothing."""
    answers = "\n\n".join(map(storable, HOSTILE))
    state = state_of(hostile_story().finish(answers))
    failed = {**state, "answer": "", "status": "failed"}
    failed["outcome"] = {**state["outcome"], "code": answers, "message": answers}
    short = "\n".join(text for text in answers.split("\n") if len(text) < 200)
    view = ViewPage(shared_page)
    for saved in (static_bundle(state), static_bundle(failed), question_bundle(short, short)):
        view.page.evaluate(
            """(html) => { const out = document.getElementById('out'); out.replaceChildren();
              out.append(document.createRange().createContextualFragment(html)); }""",
            saved["text/html"],
        )
        judge(view.page, saved["text/plain"][:200])
        assert INVISIBLE.search(saved["text/html"]) is None
        assert INVISIBLE.search(saved["text/plain"]) is None
    assert view.page.locator("svg").count() == 0  # the last one has none; the first ones were drawn
    view.leave()
    assert view.problems == []


def test_in_plain_text() -> None:
    state = state_of(hostile_story())
    for line in (*map(call_line, state["calls"]), *graph_lines(state["nodes"])):
        assert INVISIBLE.search(line.replace("\n", "")) is None


@pytest.mark.parametrize("text", ["👩\u200d👩\u200d👧\u200d👦", "שלום", "é", "x"])
def test_what_is_not_hostile_stays_as_it_is(text: str) -> None:
    assert visible(text) == text
