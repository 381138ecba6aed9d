"""Claude Code's own tools, as far as our gate has to know them."""

from __future__ import annotations

from typing import Any, Final

from op_jupyter.core.messages import ToolSpec
from op_jupyter.providers.base import OwnTool


def _text(**properties: str) -> dict[str, Any]:
    """The schema of an object with these texts; further properties are the CLI's to judge."""
    return {
        "type": "object",
        "properties": {
            name: {"type": "string", "description": told} for name, told in properties.items()
        },
        "required": [next(iter(properties))],
    }


OWN_TOOLS: Final = (
    OwnTool(
        ToolSpec(
            "Bash",
            "Run a shell command.",
            _text(command="the command", description="what it is for"),
        ),
        "execute",
        code="command",
        language="shell",
    ),
    OwnTool(
        ToolSpec("Read", "Read a file.", _text(file_path="absolute path")),
        "read",
        reads=("file_path",),
    ),
    OwnTool(
        ToolSpec(
            "Write", "Write a file.", _text(file_path="absolute path", content="the new text")
        ),
        "write",
        writes=("file_path",),
    ),
    OwnTool(
        ToolSpec(
            "Edit",
            "Replace text in a file.",
            _text(file_path="absolute path", old_string="what is there", new_string="what is not"),
        ),
        "write",
        writes=("file_path",),
    ),
    OwnTool(
        ToolSpec("Glob", "Find files by name.", _text(pattern="a glob", path="folder")),
        "read",
        reads=("path",),
    ),
    OwnTool(
        ToolSpec("Grep", "Find text in files.", _text(pattern="a regex", path="file or folder")),
        "read",
        reads=("path",),
    ),
    OwnTool(
        ToolSpec("WebFetch", "Read a page of the web.", _text(url="address", prompt="question")),
        "network",
    ),
    OwnTool(ToolSpec("WebSearch", "Search the web.", _text(query="what to look for")), "network"),
)
"""The CLI's tools that are offered.  It describes them to the model itself; the schemas here are
what the gate needs of them."""
