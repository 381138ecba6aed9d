"""Who answers when something asks: for permission, or a question of the program's.

The actor puts a card up and starts its `Asker` at the same time; a click reaches the actor
through `AgentSession.resolve_permission`.  The first answer wins, the other is called off.
"""

from __future__ import annotations

import asyncio
import select
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
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
from op_jupyter.errors import CannotAsk

Check: TypeAlias = Callable[[Any], Any]
"""Gives the answer that something said is, or raises `BadAnswer`."""

_LOOK_SECONDS: Final = 0.1


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

    interactive = False

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
    """A program that no host runs: nobody is there to click, but perhaps there is a terminal."""

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
