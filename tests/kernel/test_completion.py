"""Tab over the kernel protocol: what a notebook offers behind ``%agent`` and ``%%agent``."""

from __future__ import annotations

import pytest
from kernel.harness import Kernel

from op_jupyter.testing.fake_messages import FakeMessages, Reply, text


def offered(kernel: Kernel, line: str) -> list[str]:
    reply = kernel.request("complete_request", {"code": line, "cursor_pos": len(line)})
    assert reply["status"] == "ok"
    # A match may be a whole argument or what IPython thinks is the last word.
    return [str(match) for match in reply["matches"]]


@pytest.mark.parametrize("ipykernel", ["newest"], indirect=True)
def test_a_notebook_is_offered_commands_flags_and_what_there_is(
    notebook: Kernel, fake: FakeMessages
) -> None:
    fake.script(Reply([text("Four.")]))
    notebook.run("%%agent --model claude-haiku-5-5\nHello", allow_stdin=False)
    notebook.check("def my_tool(): ...")
    session, prompt = notebook.check(
        "import op_jupyter\nhere = op_jupyter.current_session().agent\n"
        "print(here.session_id, here.dag.spine()[0].id)"
    ).split()
    for line, expected in (
        ("%agent sta", "status"),
        ("%agent show --pro", "--prompt"),
        ("%agent mode acc", "accept_edits"),
        ("%agent resume nb", session),
        ("%agent show user", prompt),
        ("%agent fork user", prompt),
        ("%agent diff ma", "main"),
        ("%agent model claude-h", "claude-haiku-5-5"),
        ("%agent provider olla", "ollama"),
        ("%agent tools +", "+shell"),
        ("%%agent --bud", "--budget"),
        ("%%agent --session nb", session),
        ("%%agent --model claude-h", "claude-haiku-5-5"),
        ("%%agent --tools my_t", "my_tool"),
        ("%%agent --tools python,insp", "inspect"),
    ):
        assert expected in offered(notebook, line), (line, offered(notebook, line))
    assert not {"status", "--help"} & set(offered(notebook, "%agent nothing s"))
