"""A turn and its graph as plain lines."""

from views import stories
from views.stories import Story, node

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node
from op_jupyter.views.model import TurnModel
from op_jupyter.views.svg import session_svg
from op_jupyter.views.terminal import call_line, graph_lines, session_lines


def lines_of(story: Story) -> list[str]:
    model = TurnModel()
    for envelope in story.updates:
        model.apply(envelope)
    return [call_line(call) for call in model.to_json()["calls"]]


def test_a_call_is_a_line_with_its_arguments_and_how_it_ended() -> None:
    lines = lines_of(stories.completed())
    assert lines[0] == "[update_plan] 4 steps: done"
    assert lines[2] == '[read_file] path="notes/2023.md": failed'


def test_escape_sequences_never_reach_the_terminal() -> None:
    story = Story().start().call("c1", "x\x1b[2J", '{"code": "\\u001b]0;t\\u0007"}', "")
    assert "\x1b" not in "\n".join(lines_of(story.finish("\x1b[31mred")))


def test_rows_stand_in_their_lanes_and_loops_fold() -> None:
    nodes = [node("u", "user", "user", "hello"), node("m", "model", "model", predecessor="u")]
    nodes += [node("t", "tool", "python", caller="m", status="error")]
    nodes += [node(f"f{i}", "function", "review", caller="t") for i in range(3)]
    assert graph_lines(nodes) == [
        "o      user  hello",
        "*      model  [done]",
        "  t    python  [failed]",
        "    f  review ×3  [done]",
    ]


def session() -> Dag:
    """Two prompts on the active line, and one that was left behind."""
    dag = Dag("s1")
    for index, (node_id, role, before) in enumerate(
        [("u1", "user", None), ("m1", "llm", "u1"), ("u2", "user", "m1"), ("u3", "user", "m1")]
    ):
        made = Node(node_id, role, role, status="completed", predecessor=before, seq=index + 1)
        dag.add(made)
    dag.add(Node("c", "code", "helper", caller="u2", status="completed", seq=9))
    dag.point("main", "u3", activate=True)
    return dag


def test_what_the_active_line_left_behind_is_told_apart() -> None:
    assert session_lines(session()) == [
        "o      user",
        "*      llm  [done]",
        "o      (user)",
        "  o    user (fork)",
        "    f  (helper  [done])",
    ]
    assert session_svg(session()).count('opacity="0.7" font-family="monospace"') == 2
