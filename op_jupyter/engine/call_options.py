"""What a model can be asked, and with which options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

from op_jupyter.core.messages import Block, ImageBlock, ModelDelta, TextBlock
from op_jupyter.engine.retry import is_whole
from op_jupyter.errors import ConfigurationError, EmptyInput
from op_jupyter.tools.toolset import Toolset

Content: TypeAlias = str | TextBlock | ImageBlock | Sequence[str | TextBlock | ImageBlock]
"""What can be asked: text, an image, or several of them in order."""


class AskOptions(TypedDict, total=False):
    """What `llm` and `agent` pass on; see `Runtime.async_exec`."""

    model: str | None
    system: str | None
    timeout: float | None
    max_retries: int | None
    on_stream: Callable[[ModelDelta], None] | None


class AgentOptions(AskOptions, total=False):
    """What `agent` takes; *tools* None: the session's."""

    tools: Sequence[Any] | Toolset | None
    max_steps: int


class ExecOptions(AskOptions, total=False):
    """All options of `Runtime.async_exec`."""

    tools: Sequence[Any] | Toolset
    max_steps: int


class _Formats(TypedDict, total=False):
    """What makes the answer a value."""

    response_format: Any
    choices: Mapping[str, Any] | None


class AllAskOptions(AskOptions, _Formats, total=False):
    """`AskOptions`, and what makes the answer a value."""


class AllAgentOptions(AgentOptions, _Formats, total=False):
    """`AgentOptions`, and what makes the answer a value."""


class AllExecOptions(ExecOptions, _Formats, total=False):
    """`ExecOptions`, and what makes the answer a value."""


def check_options(max_steps: int, model: Any, system: Any, on_stream: Any) -> None:
    """Refuse options that mean nothing.

    Raises:
        ConfigurationError: names the option.
    """
    if not is_whole(max_steps, 1):
        raise ConfigurationError(f"max_steps is {max_steps!r:.60}; give a whole number from 1 up")
    for option, text in (("model", model), ("system", system)):
        if not isinstance(text, str | None):
            raise ConfigurationError(f"{option} is {text!r:.60}; give a text, or None")
    if on_stream is not None and not callable(on_stream):
        raise ConfigurationError(f"on_stream is {on_stream!r:.60}; give a function, or None")


def to_blocks(content: Content) -> tuple[Block, ...]:
    """*content* as blocks.

    Raises:
        EmptyInput: there is nothing in it.
        TypeError: something that is neither text nor an image.
    """
    items = (content,) if isinstance(content, str | TextBlock | ImageBlock) else content
    # Nothing else is walked through: of a table that gives the names of its columns.
    if not isinstance(items, list | tuple):
        raise TypeError(
            f"the content is a {type(content).__name__}; pass text, image blocks, or a list of "
            "them (a value as text: `str(value)`, or as an argument of an agentic function)"
        )
    blocks: list[Block] = []
    for item in items:
        if isinstance(item, str):
            blocks.append(TextBlock(str(item)))
        elif isinstance(item, TextBlock | ImageBlock):
            blocks.append(item)
        else:
            raise TypeError(
                f"content holds a {type(item).__name__}; pass text, image blocks, or a list of them"
            )
    if not any(not isinstance(b, TextBlock) or b.text.strip() for b in blocks):
        raise EmptyInput("there is nothing to ask: the content is empty")
    return tuple(blocks)
