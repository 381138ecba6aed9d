"""How long a call may take, unless the user's settings say otherwise."""

from __future__ import annotations

from op_jupyter.engine.memory_tools import Recall, Remember
from op_jupyter.tools import shell
from op_jupyter.tools.files import file_tools
from op_jupyter.tools.mcp import McpTool


def test_a_command_has_two_minutes_and_what_reads_or_writes_has_one() -> None:
    assert shell.SECONDS == 120.0
    assert {tool.timeout for tool in (*file_tools(), McpTool, Remember, Recall)} == {60.0}
