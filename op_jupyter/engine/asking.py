"""Who answers when something asks: for permission, or a question of the program's.

The actor puts a card up and starts its `Asker` at the same time; a click reaches the actor
through `AgentSession.resolve_permission`.  The first answer wins, the other is called off.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import select
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

from op_jupyter.core.permissions import Answer, PermissionAnswer, PermissionRequest
from op_jupyter.core.questions import (
    BadAnswer,
    Question,
    QuestionAnswer,
    field_lines,
    prompt_lines,
    read_form,
    read_line,
)
from op_jupyter.core.visible import visible
from op_jupyter.engine import hooks
from op_jupyter.errors import CannotAsk, UsageError
from op_jupyter.tools.threads import in_thread

Check: TypeAlias = Callable[[Any], Any]
"""Gives the answer that something said is, or raises `BadAnswer`."""

_LOOK_SECONDS: Final = 0.1


async def called(handler: Callable[[Any], Any], argument: object) -> Any:
    """What a host's function says; a plain one may block, so it has a thread of its own."""
    if inspect.iscoroutinefunction(handler):
        return await handler(argument)
    said = await in_thread(lambda: handler(argument))
    return await said if inspect.isawaitable(said) else said


_DECISIONS: Final = ("allow", "allow_session", "deny")


async def host_decision(request: PermissionRequest) -> PermissionAnswer | None:
    """What the host decides; None: it has no handler, or leaves it to the other ways.

    Raises:
        UsageError: its handler says something else.
    """
    handler = hooks.permission_handler()
    said = None if handler is None else await called(handler, request)
    if said is None:
        return None
    if isinstance(said, PermissionAnswer):
        return replace(said, how="handler")
    if said in _DECISIONS:
        return PermissionAnswer(said, "handler")
    raise UsageError(
        f"the handler of set_permission_handler returned {said!r:.60}; return one of "
        f"{', '.join(map(repr, _DECISIONS))}, a PermissionAnswer or None"
    )


class Asker(Protocol):
    """One way, or a chain of ways, to get an answer."""

    @property
    def interactive(self) -> bool:
        """Whether a person can answer.  If not, the gate denies at once and names the rule."""

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        """The answer.  It may take for ever: a click may come first, or the turn be cancelled."""

    def answered(self, request: PermissionRequest, answer: PermissionAnswer) -> None:
        """Hear what was answered, whoever answered it."""

    @property
    def can_ask(self) -> bool:
        """Whether `question` can get an answer."""

    async def question(self, question: Question, check: Check) -> QuestionAnswer:
        """The answer to *question*; it may take for ever, and be called off.

        What *check* refuses is said to the person, who may try again.

        Raises:
            CannotAsk: nobody can answer.
        """


class HeadlessAsker:
    """Nobody is there."""

    @property
    def interactive(self) -> bool:
        """Nobody can answer."""
        return False

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        """Deny, and say which rule would have allowed it."""
        return PermissionAnswer("deny_message", "policy", message=nobody_can_answer(request.rule))

    def answered(self, request: PermissionRequest, answer: PermissionAnswer) -> None:
        """Nothing to do."""

    @property
    def can_ask(self) -> bool:
        """Nobody can be asked."""
        return False

    async def question(self, question: Question, check: Check) -> QuestionAnswer:
        """Say that nobody can be asked."""
        raise CannotAsk(NOBODY)


class ScriptAsker(HeadlessAsker):
    """A program: its host may decide, and questions may reach a terminal; nobody clicks."""

    @property
    def interactive(self) -> bool:
        """Whether a host decides."""
        return hooks.permission_handler() is not None

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        """What the host decides, if it does."""
        return await host_decision(request) or await super().decide(request)

    @property
    def can_ask(self) -> bool:
        """Whether both ends of the terminal are a person's."""
        return has_terminal()

    async def question(self, question: Question, check: Check) -> QuestionAnswer:
        """Ask on the terminal."""
        if not self.can_ask:
            return await super().question(question, check)
        read = _TerminalReader()
        try:
            return await asyncio.to_thread(ask_in_text, question, "terminal", read, check)
        finally:
            read.call_off()


class TerminalAsker(ScriptAsker):
    """A person at a terminal, who is asked for permission there, too."""

    @property
    def interactive(self) -> bool:
        """Whether both ends of the terminal are a person's, or a host decides."""
        return has_terminal() or super().interactive

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        """Ask on the terminal, unless the host decides."""
        if (decided := await host_decision(request)) is not None:
            return decided
        if not has_terminal():
            return await HeadlessAsker.decide(self, request)
        read = _TerminalReader()
        try:
            return await asyncio.to_thread(ask_by_text, request, "terminal", read)
        finally:
            read.call_off()


class ParkedAsker(HeadlessAsker):
    """Whoever follows the session answers, in their time: `AgentSession.resolve_permission`."""

    @property
    def interactive(self) -> bool:
        """Somebody can, later."""
        return True

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        """Wait for it."""
        await asyncio.Event().wait()
        raise AssertionError("nothing ends that wait but being called off")


NOBODY: Final = (
    "nobody can be asked here: there is no page that takes clicks, no input and no terminal; "
    "check `can_ask()` first, or register `set_ask_handler(...)`"
)


def nobody_can_answer(rule: str) -> str:
    """What the model, and the person who reads the notebook later, are told."""
    return (
        f"denied: this asks for permission and nobody can answer here; the rule `{rule}` "
        f"would allow it (`%agent allow {rule}`)"
    )


def has_terminal() -> bool:
    """Whether a person reads what is written and writes what is read."""
    try:
        return all(s is not None and s.isatty() for s in (sys.stdin, sys.stdout))
    except ValueError:  # closed
        return False


class _TerminalReader:
    """``input()`` that can be called off: a thread that waits in it could not be."""

    def __init__(self) -> None:
        self._called_off = False
        self._reading = threading.Lock()

    def call_off(self) -> None:
        """Read no more: the next line is somebody else's."""
        with self._reading:
            self._called_off = True

    def __call__(self, prompt: str) -> str:
        sys.stdout.write(prompt)
        sys.stdout.flush()
        while True:
            readable = select.select([sys.stdin], [], [], _LOOK_SECONDS)[0]
            with self._reading:  # a terminal is readable when a whole line is there
                if self._called_off:
                    raise EOFError
                line = sys.stdin.readline() if readable else None
            if line == "":
                raise EOFError
            if line is not None:
                return line.rstrip("\n")


def ask_in_text(
    question: Question, how: str, read: Callable[[str], str], check: Check
) -> QuestionAnswer:
    """Ask line by line; blocks.  *read* shows a prompt and returns a line; EOF declines."""
    prompt = prompt_lines(question)
    if question.kind == "form":
        prompt = f"{visible(question.prompt)}\n"
    while True:
        try:
            return _one_try(question, prompt, how, read, check)
        except BadAnswer as bad:
            prompt = visible(str(bad)) + ("\n" if question.kind == "form" else "\n> ")
        except EOFError:
            return QuestionAnswer(how=how, declined=True)


def _one_try(
    question: Question, prompt: str, how: str, read: Callable[[str], str], check: Check
) -> QuestionAnswer:
    if question.kind == "form":
        said = _read_fields(question, prompt, read)
        return QuestionAnswer(check(said), how)
    answer = read_line(question, read(prompt))
    return QuestionAnswer(None if answer.declined else check(answer.value), how, answer.declined)


def _read_fields(question: Question, prompt: str, read: Callable[[str], str]) -> dict[str, str]:
    """Field after field; one whose text does not fit is asked for again at once."""
    said: dict[str, str] = {}
    for field in question.fields:
        lines = prompt + field_lines(field)
        while True:
            said[field.name] = read(lines).strip()
            try:
                read_form([field], said)
            except BadAnswer as bad:
                lines = f"{visible(str(bad))}\n> "
            else:
                break
        prompt = ""
    return said


_ANSWERS: Final[dict[str, Answer]] = {
    "y": "allow",
    "yes": "allow",
    "s": "allow_session",
    "session": "allow_session",
    "n": "deny",
    "no": "deny",
    "": "deny",
}


def ask_by_text(
    request: PermissionRequest, how: str, read: Callable[[str], str]
) -> PermissionAnswer:
    """Ask on one line: y, n, s, or a sentence for the model."""
    try:
        said = read(permission_question(request)).strip()
    except EOFError:
        return PermissionAnswer("deny", how)
    answer = _ANSWERS.get(said.lower())
    if answer is None:
        return PermissionAnswer("deny_message", how, message=said)
    if answer == "allow_session" and not request.rule:
        answer = "allow"
    return PermissionAnswer(answer, how)


def permission_question(request: PermissionRequest) -> str:
    """Everything that the card shows, as text."""
    lines = [f"Permission: {request.tool}", f"  {request.reason}"]
    lines += [f"  ! {danger}" for danger in request.dangers]
    lines += [f"  | {line}" for line in _arguments(request).split("\n")]
    if request.undo:
        lines.append(f"  {request.undo}")
    session = f"s = allow for this session ({request.rule}), " if request.rule else ""
    lines.append(f"y = allow once, {session}n = deny, or tell the model why not")
    return "\n".join(lines) + "\n[y/N] "


def _arguments(request: PermissionRequest) -> str:
    display: Any = request.display
    match display.get("kind"):
        case "code":
            return str(display["code"])
        case "diff":
            return str(display["diff"])
        case _:
            return json.dumps(dict(request.arguments), indent=2, ensure_ascii=False)
