"""`decision.make`: let the model choose, and get what was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, Unpack

from op_jupyter.engine.call_options import AskOptions, Content
from op_jupyter.engine.runtime import llm
from op_jupyter.errors import UsageError

Options: TypeAlias = Mapping[str, Any] | Sequence[str]
"""Names with what each stands for, or names that stand for themselves."""


class _Decision:
    """A choice that the model makes."""

    def make(self, prompt: Content, options: Options, **more: Unpack[AskOptions]) -> Any:
        """The value of the option that the model chose; a function is called for its result.

        *more* as in `Runtime.async_exec`, which also says what is raised.
        """
        return llm(prompt, choices=_named(options), **more)

    async def async_make(
        self, prompt: Content, options: Options, **more: Unpack[AskOptions]
    ) -> Any:
        """The same from async code."""
        return await llm.aio(prompt, choices=_named(options), **more)


def _named(options: Options) -> Mapping[str, Any]:
    if isinstance(options, Mapping):
        return options
    if isinstance(options, str) or not all(isinstance(name, str) for name in options):
        raise UsageError("options are names: a mapping of names to values, or a list of texts")
    return {name: name for name in options}


decision = _Decision()
