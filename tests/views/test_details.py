"""One node as readable text."""

from typing import Any

import pytest

from op_jupyter.core.messages import TextBlock, ToolUseBlock, block_to_json
from op_jupyter.core.nodes import Node
from op_jupyter.views.details import decision_text, node_details


def details(role: Any = "code", **fields: Any) -> dict[str, str]:
    return node_details(Node("n", role, "review", status="completed", **fields))


def test_a_call_reads_like_code() -> None:
    assert details(input={"month": "2024-01", "n": 3}, output="normal") == {
        "input": 'review(month="2024-01", n=3)',
        "output": "normal",
    }


def test_long_arguments_take_a_line_each() -> None:
    text = details(input={"first": "x" * 40, "second": "y" * 40})["input"]
    assert text.split("\n")[1].startswith("       second=")


def test_messages_read_as_what_they_say() -> None:
    blocks = [
        block_to_json(TextBlock("Let me look.")),
        block_to_json(ToolUseBlock("c", "py", "{}")),
    ]
    shown = details("llm", output={"role": "assistant", "content": blocks})
    assert shown["output"] == "Let me look.\n→ py {}"


def test_an_error_shows_its_traceback() -> None:
    error = {"type": "ValueError", "message": "no", "traceback": "Traceback …"}
    assert details(metadata={"error": error})["output"] == "ValueError: no\n\nTraceback …"


def test_a_huge_value_is_cut() -> None:
    assert len(details(output="x" * 1_000_000)["output"]) < 25_000


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        ({"answer": "allow", "how": "mode", "mode": "auto"}, "allowed by mode: auto"),
        ({"answer": "deny", "how": "rule", "rule": "python"}, "denied by rule: python"),
        ({"answer": "deny", "how": "protected"}, "denied because it is protected"),
        (
            {"answer": "allow_session", "how": "click", "waited_seconds": 3.25},
            "allowed for this session (click, after 3.25 s)",
        ),
        (
            {"answer": "allow", "how": "stdin", "edited": {"a": 1}, "overruled_by": "rule"},
            'allowed once (stdin)\nedited: {"a": 1}\nit did not run all the same: denied by rule',
        ),
        ({"answer": ["odd"], "how": None, "waited_seconds": "x"}, "['odd'] (None)"),
    ],
)
def test_a_decision_reads_as_who_decided_what(decision: dict[str, Any], text: str) -> None:
    assert decision_text(decision) == text
    assert node_details(Node("n", "code", "f"), decision)["permission"] == text
