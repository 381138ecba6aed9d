"""A tool in the words of the two common wire formats, for loops that are not ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from op_jupyter.core.messages import ToolSpec
from op_jupyter.tools.functions import as_tool


def anthropic_tool(item: Callable[..., Any] | ToolSpec) -> dict[str, Any]:
    """*item* as the Messages API of Anthropic takes it in ``tools``.

    Args:
        item: an agentic function, any typed function, a tool, or a tool's spec.

    Raises:
        ToolDefinitionError: a model could not call it; the message says what to change.
    """
    spec = _spec(item)
    return {
        "name": spec.name,
        "description": spec.description,
        "input_schema": dict(spec.input_schema),
    }


def openai_tool(item: Callable[..., Any] | ToolSpec) -> dict[str, Any]:
    """*item* as the Chat Completions API of OpenAI, and servers like it, take it in ``tools``.

    Arguments and errors as of `anthropic_tool`.
    """
    spec = _spec(item)
    function = {
        "name": spec.name,
        "description": spec.description,
        "parameters": dict(spec.input_schema),
    }
    return {"type": "function", "function": function}


def _spec(item: Callable[..., Any] | ToolSpec) -> ToolSpec:
    return item if isinstance(item, ToolSpec) else as_tool(item).spec
