"""Replies that are values: the format that is asked for, and what a reply says in it.

A format has a JSON Schema, which the provider enforces or asks for in words, and reads the reply
itself: what a service promises is checked all the same.  JSON Schemas and pydantic types are in
`engine.schemas`, which is loaded when one is used.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NoReturn, Protocol

from op_jupyter.core.messages import TextBlock
from op_jupyter.core.values import dataclass
from op_jupyter.engine import loop
from op_jupyter.errors import UsageError
from op_jupyter.tools.threads import in_thread

_FENCED: Final = re.compile(r"```[\w-]*[ \t]*\n(.*?)```", re.DOTALL)


class Misfit(Exception):
    """A reply that does not fit.

    Attributes:
        told: what is wrong, for the model, which knows its reply.
        shown: the same without anything out of the reply.
    """

    def __init__(self, told: str, shown: str) -> None:
        super().__init__(shown)
        self.told = told
        self.shown = shown


class ReplyFormat(Protocol):
    """What a reply has to be."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema that the provider is given."""

    @property
    def question(self) -> tuple[TextBlock, ...]:
        """What is asked beyond the content."""

    def read(self, reply: str) -> Any:
        """The value that *reply* says.

        Raises:
            Misfit: it says none.
        """


def format_of(response_format: Any, choices: Mapping[str, Any] | None) -> ReplyFormat | None:
    """The format that the arguments of a call name; None: the reply is text.

    Raises:
        UsageError: they cannot be used, or both are given.
    """
    if choices is not None:
        if response_format is not None:
            raise UsageError("give response_format= or choices=, not both")
        return Choices(choices)
    if response_format is None:
        return None
    # pydantic and the schema checker take 150 ms, and most calls want text.
    from op_jupyter.engine.schemas import schema_format

    return schema_format(response_format)


def json_text(reply: str) -> str:
    """The JSON in *reply*, which may stand in a code fence.

    Raises:
        Misfit: there is none.
    """
    fenced: list[str] = _FENCED.findall(reply)
    candidates = [reply.strip(), *(text.strip() for text in fenced if len(fenced) == 1)]
    problem = "it is empty"
    for text in candidates:
        try:
            json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            problem = f"it is not JSON ({error})"
        else:
            return text
    raise Misfit(problem, problem)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


@dataclass(frozen=True, slots=True)
class Picked:
    """An option that is a function, to be called where the caller is."""

    function: Callable[[], Any]


class Choices:
    """One of several options, each with a name.

    Raises:
        UsageError: there is none, or a name that is no text.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        if not isinstance(options, Mapping) or not options:
            raise UsageError("choices= is a mapping of at least one name to a value or function")
        if not all(isinstance(name, str) and name.strip() == name != "" for name in options):
            raise UsageError("the names of choices are texts without spaces around them")
        self._options = dict(options)

    @property
    def schema(self) -> Mapping[str, Any]:
        """An object with the one property ``choice``: services ask for an object."""
        return {
            "type": "object",
            "properties": {"choice": {"type": "string", "enum": list(self._options)}},
            "required": ["choice"],
            "additionalProperties": False,
        }

    @property
    def question(self) -> tuple[TextBlock, ...]:
        """The names, and what the functions say of themselves."""
        lines = [f"- {name}{_about(value)}" for name, value in self._options.items()]
        return (TextBlock("Choose exactly one of these:\n" + "\n".join(lines)),)

    def read(self, reply: str) -> Any:
        """The chosen value, or `Picked`.  A reply that is just a name is taken as well."""
        name = self._name(reply)
        value = self._options[name]
        return Picked(value) if callable(value) else value

    def _name(self, reply: str) -> str:
        bare = reply.strip().strip("\"'`.")
        for name in (reply.strip(), bare):
            if name in self._options:
                return name
        said = json.loads(json_text(reply))
        chosen = said.get("choice") if isinstance(said, Mapping) else said
        if isinstance(chosen, str) and chosen in self._options:
            return chosen
        names = ", ".join(json.dumps(name, ensure_ascii=False) for name in self._options)
        problem = f"its choice is none of {names}"
        raise Misfit(problem, problem)


def _about(value: Any) -> str:
    """What a function says of itself; what its class says is nothing about it."""
    own = callable(value) and value.__doc__ != type(value).__doc__
    text = (inspect.getdoc(value) or "").strip() if own else ""
    return f": {text.splitlines()[0]}" if text else ""


def settle(value: Any) -> Any:
    """*value*, or the result of the function that was picked, called in this thread."""
    if not isinstance(value, Picked):
        return value
    result = value.function()
    return loop.run_sync(_awaited, result) if inspect.isawaitable(result) else result


async def settle_async(value: Any) -> Any:
    """The same from async code; a plain function never blocks the background loop."""
    if not isinstance(value, Picked):
        return value
    function = value.function
    if loop.on_background_loop() and not inspect.iscoroutinefunction(function):
        result = await in_thread(function)
    else:
        result = function()
    return await result if inspect.isawaitable(result) else result


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value
