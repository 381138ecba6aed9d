"""What stays in the file: the same bytes in every run, and nothing in it that acts."""

import json
import re
from collections import Counter
from html.parser import HTMLParser
from typing import Any

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbconvert import HTMLExporter
from views import stories
from views.hostile import HOSTILE
from views.stories import Story
from views.strategies import graphs, texts, updates
from views.twins import Twins

from op_jupyter.views.layout import lay_out
from op_jupyter.views.model import TurnModel
from op_jupyter.views.static_html import plain_text, static_bundle, turn_html, turn_json

Wire = dict[str, Any]


def state_of(told: Story | list[Wire]) -> Wire:
    model = TurnModel()
    for envelope in told.updates if isinstance(told, Story) else told:
        model.apply(envelope)
    return model.to_json()


def test_the_answer_and_one_line_of_summary_are_the_plain_text() -> None:
    text = static_bundle(state_of(stories.completed()))["text/plain"]
    assert text.startswith("## Two months stand out\n")
    assert text.endswith(
        "\n\nOpenProgram: completed · 2 steps · 3 tool calls, 1 failed · 1 allowed once"
    )


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (
            {"status": "failed", "code": "model_error", "message": "connection closed"},
            "connection closed\n\nOpenProgram: failed (model_error) · 2 steps",
        ),
        (
            {"status": "failed", "code": "permission_denied", "message": "python was denied"},
            "python was denied\n\nOpenProgram: denied · 2 steps",
        ),
        ({"status": "cancelled"}, "The turn was cancelled.\n\nOpenProgram: cancelled · 2 steps"),
    ],
)
def test_a_turn_without_an_answer_says_why(end: Wire, expected: str) -> None:
    state = state_of(Story().start().finish(**end))
    assert plain_text(state) == expected
    assert expected.split("\n")[0] in turn_html(state)


def test_the_plan_is_a_checklist_and_left_out_where_there_is_none() -> None:
    html = turn_html(state_of(stories.completed()))
    assert "<summary>Plan, 2 of 4</summary>" in html
    assert "<li>☑ Sum revenue by month</li>" in html
    assert "<li>▶ Explain the outliers</li>" in html
    story = Story().start().tell("plan_updated", steps=[{"text": "<b>", "status": "pending"}])
    assert "<li>☐ &lt;b&gt;</li>" in turn_html(state_of(story.finish("ok")))
    assert "plan" not in turn_json(state_of(Story().start().finish("ok")))


def test_the_json_has_the_shape_that_the_lab_extension_reads() -> None:
    bundle = turn_json(state_of(stories.completed()))
    members = ["version", "answer_markdown", "status", "summary", "graph", "calls", "plan"]
    assert list(bundle) == members
    assert bundle["plan"][0] == {"text": "Sum revenue by month", "status": "completed"}
    assert (bundle["version"], bundle["status"]) == (1, "completed")
    assert bundle["calls"][1] == {
        "name": "python",
        "arguments": stories.CODE,
        "result": "12 labels: 10 normal, 2 outlier",
        "status": "done, allowed once",
    }
    nodes = bundle["graph"]["nodes"]
    assert nodes[0] == {
        "id": 1,
        "role": "user",
        "kind": "user",
        "name": "user",
        "label": "Which months are outliers?",
        "status": "completed",
        "row": 0,
        "lane": 0,
        "predecessor": None,
        "caller": None,
    }
    assert {node["row"] for node in nodes if node["name"] == "review_month"} == {4}


def test_tool_calls_are_labelled_with_their_arguments_in_short() -> None:
    story = Story().start().node("t", "tool", "python", '{"code":"a = 1\\nb = 2"}')
    story.call("c", "python", '{"code":"a = 1\\nb = 2"}', node_id="t")
    state = state_of(story.finish("x"))
    assert turn_json(state)["graph"]["nodes"][0]["label"] == "a = 1; b = 2"
    assert ">a = 1; b = 2</text>" in turn_html(state)


def test_a_card_that_was_taken_away_is_no_answer() -> None:
    story = stories.asking(stories.request("c1"))
    story.tell("permission_resolved", id="c1", answer="cancelled", how="")
    story.tell("tool_call_finished", id="c1", name="python", state="cancelled", text="")
    state = state_of(story.finish(status="cancelled"))
    assert turn_json(state)["calls"][0]["status"] == "cancelled"
    assert plain_text(state).endswith("cancelled · 2 steps · 1 tool call, 1 cancelled")


def renamed(told: list[Wire], shift: int) -> list[Wire]:
    """The same turn in another run: other ids, other times."""

    def change(value: Any, key: str = "") -> Any:
        match value:
            case dict():
                return {k: change(v, k) for k, v in value.items()}
            case list():
                return [change(item, key) for item in value]
            case str() if key in ("id", "node_id", "caller", "predecessor", "turn_id"):
                return f"other-{value}-{shift}"
            case str() if key in ("session_id", "client_request_id"):
                return f"{value}-{shift}"
            case _:
                return value

    changed = [change(envelope) for envelope in told]
    for envelope in changed:
        envelope["occurred_at_ms"] += shift * envelope["sequence"]
        for key in ("seconds", "input_tokens", "output_tokens", "usage"):
            if key in envelope["data"]:
                envelope["data"][key] = shift
    return changed


def in_bytes(state: Wire) -> str:
    return json.dumps(static_bundle(state), ensure_ascii=False)


@settings(deadline=None, max_examples=60)
@given(told=updates(), nodes=graphs(max_size=10, prefix="node"), shift=st.integers(1, 10**6))
def test_two_runs_with_other_ids_and_times_give_the_same_bytes(
    told: list[Wire], nodes: list[Wire], shift: int
) -> None:
    story = Story()
    for node in nodes:
        story.tell("node_appended", **node)
    others = [e for e in told if not e["kind"].startswith("node_")]
    told = story.updates + others
    told = [{**envelope, "sequence": index} for index, envelope in enumerate(told, start=1)]
    assert in_bytes(state_of(told)) == in_bytes(state_of(renamed(told, shift)))


def test_the_design_turn_is_the_same_in_two_runs() -> None:
    one, other = stories.completed().updates, renamed(stories.completed().updates, 77)
    assert in_bytes(state_of(one)) == in_bytes(state_of(other))


def test_addresses_of_objects_and_ids_in_messages_are_left_out() -> None:
    def run(address: str, turn: str) -> str:
        story = Story(turn_id=turn).start()
        story.call("c1", "python", "{}", f"<Thing object at {address}>")
        message = f"turn {turn} broke"
        return in_bytes(state_of(story.finish(status="failed", code="x", message=message)))

    assert run("0x7f00aa12", "turn-aaaa") == run("0x7fffbb34", "turn-bbbb")


@settings(deadline=None, max_examples=80)
@given(nodes=graphs())
def test_the_saved_graph_is_drawn_again_as_it_was(twins: Twins, nodes: list[Wire]) -> None:
    story = Story()
    for node in nodes:
        story.tell("node_appended", **node)
    saved = turn_json(state_of(story))["graph"]["nodes"]
    drawn = twins("layOut", {"nodes": saved, "changes": [], "fold": True})
    layout = lay_out(nodes)
    assert [(row["row"], row["lane"]) for row in drawn] == [(r.row, r.lane) for r in layout.rows]
    assert [len(row["members"]) for row in drawn] == [len(r.members) for r in layout.rows]


# -- hostile text

VOID = {"br", "hr"}
ACTIVE = {"script", "iframe", "object", "embed", "style", "link", "img", "foreignobject", "form"}


class Reader(HTMLParser):
    """Collects what a browser would do with the HTML."""

    def __init__(self, *, strict: bool = False) -> None:
        super().__init__()
        self.strict = strict  # every element has to be closed, in order
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        if self.strict:
            assert self.open.pop() == tag


def read(html: str) -> Reader:
    reader = Reader(strict=True)
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def hostile_turn(text: str) -> Wire:
    story = Story().start(text)
    story.node("u", "user", text, text).node("f", "function", text, text, status="error")
    arguments = json.dumps({"code": text})
    story.tell("tool_call_started", id="c", name=text, arguments=arguments, node_id="f")
    story.tell("tool_call_finished", id="c", name=text, state="failed", text=text, node_id="f")
    story.call("d", text, text, text)
    return state_of(story.finish(text))


def assert_inert(html: str) -> None:
    reader = read(html)
    assert not reader.tags & ACTIVE
    for name, value in reader.attributes:
        assert not name.startswith("on")
        if name in ("href", "src", "xlink:href", "action"):
            assert value is not None
            assert re.match(r"https?://", value), value
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", html)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_inert_in_the_saved_html(text: str) -> None:
    state = hostile_turn(text)
    assert_inert(turn_html(state))
    failed = {**state, "answer": "", "status": "failed"}
    failed["outcome"] = {**state["outcome"], "code": text, "message": text}
    assert_inert(turn_html(failed))


@settings(deadline=None, max_examples=100)
@given(text=st.lists(st.sampled_from(HOSTILE) | texts, max_size=4).map("\n\n".join))
def test_any_mixture_of_hostile_text_is_inert(text: str) -> None:
    assert_inert(turn_html(hostile_turn(text)))


@pytest.mark.parametrize("template", ["lab", "classic", "basic"])
def test_hostile_text_is_inert_in_the_output_of_nbconvert(template: str) -> None:
    def active(*outputs: Wire) -> tuple[Counter[str], int]:
        """How many elements there are that act, and attributes that run something."""
        cell = nbformat.v4.new_code_cell("%%agent\nhello", outputs=list(outputs))
        notebook = nbformat.v4.new_notebook(cells=[cell])
        html, _ = HTMLExporter(template_name=template).from_notebook_node(notebook)
        assert "\u202e" not in html
        reader = Reader()
        reader.feed(html)
        running = [name for name, _ in reader.attributes if name.startswith("on")]
        return Counter(tag for tag in reader.open if tag in ACTIVE), len(running)

    bundle = static_bundle(hostile_turn("\n\n".join(HOSTILE)))
    assert "window.pwned = 1&lt;/script&gt;" in bundle["text/html"]
    assert active(nbformat.v4.new_output("display_data", data=bundle)) == active()


def test_the_html_reads_in_order_with_every_tag_removed() -> None:
    text = re.sub(r"<[^>]+>", "", turn_html(state_of(stories.completed())))
    words = [line.strip() for line in text.splitlines() if line.strip()]
    assert words[0] == "Two months stand out"
    assert words.index("Graph, 30 nodes") < words.index("– Which months are outliers?")
    assert words[-1].startswith("OpenProgram: completed")
    assert "<script" not in turn_html(state_of(stories.completed()))


def test_long_results_are_cut_in_the_file() -> None:
    story = Story().start().call("c1", "python", "{}", "x" * 100_000)
    html = turn_html(state_of(story.finish("done")))
    assert len(html) < 20_000
    assert "characters cut" in html
