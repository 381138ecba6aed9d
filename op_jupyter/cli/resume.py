"""`op-jupyter resume`: go on with a session in a terminal, prompt by prompt."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from op_jupyter.bootstrap import default_service
from op_jupyter.cli.exit_codes import ExitCode
from op_jupyter.cli.output import print_json
from op_jupyter.cli.usage import BadCommandLine
from op_jupyter.core.turn import Outcome
from op_jupyter.engine.asking import TerminalAsker, has_terminal
from op_jupyter.engine.event_bus import Event, Subscription
from op_jupyter.engine.service import Service
from op_jupyter.errors import OpenProgramError, StoreError
from op_jupyter.views.text import count, one_line, visible
from op_jupyter.views.words import LOOKS, arguments_preview

_PROMPT: Final = "> "
_ENDS: Final = frozenset({"attempt.completed", "attempt.failed", "attempt.cancelled"})
_RESULT_CHARS: Final = 120


def resume(
    named: str,
    prompt: str | None,
    *,
    shell: bool,
    as_json: bool,
    service: Service | None = None,
) -> int:
    """Run one turn in a session, or one for each line that is typed; the exit code.

    *service*: what works with the sessions, and is closed; None: the default one.

    Raises:
        UnknownSession, SessionLocked, StoreError: the session cannot be gone on with.
        BadCommandLine: there is no prompt, and no terminal to type one in.
    """
    service = service or default_service(asker=TerminalAsker())
    try:
        session_id = service.find(named)
        if prompt is not None:
            return _one_turn(service, session_id, prompt, shell=shell, as_json=as_json)
        if as_json or not has_terminal():
            raise BadCommandLine("give a prompt: there is no terminal to type one in")
        return _conversation(service, session_id, shell=shell)
    finally:
        service.close()


def _conversation(service: Service, session_id: str, *, shell: bool) -> int:
    info = service.get_session(session_id)
    title = f", {one_line(info.title, 60)!r}" if info.title else ""
    print(f"{session_id}, {count(info.turns, 'turn')}{title}. An empty line or Ctrl-D leaves.")
    while True:
        try:
            prompt = input(_PROMPT)
        except (EOFError, KeyboardInterrupt):
            print()
            return ExitCode.OK
        if not prompt.strip():
            return ExitCode.OK
        try:
            _one_turn(service, session_id, prompt, shell=shell, as_json=False)
        except OpenProgramError as error:
            print(f"op-jupyter: {error.message}", file=sys.stderr)


def _one_turn(service: Service, session_id: str, prompt: str, *, shell: bool, as_json: bool) -> int:
    with service.bus.subscribe(session_id) as events:
        attempt_id = service.send_message(session_id, prompt, include_shell_tools=shell).attempt_id
        assert attempt_id is not None  # a user's message always begins one
        _follow(service, session_id, attempt_id, events, silent=as_json)
    outcome = service.wait(session_id, attempt_id)
    if outcome is None:  # another process took the session over while it ended
        raise StoreError(
            f"how the turn in session {session_id!r} ended is not stored; `op-jupyter show "
            f"{session_id}` shows what is, and the next prompt goes on from there"
        )
    if as_json:
        attempts = {attempt.id: attempt for attempt in service.get_attempts(session_id)}
        print_json({"attempt": attempts[attempt_id], "reply": outcome.text})
    return _code(outcome)


def _follow(
    service: Service, session_id: str, attempt_id: str, events: Subscription, *, silent: bool
) -> None:
    """Show the attempt until its end; Ctrl-C cancels it, and its end is waited for."""
    shown = _Shown(attempt_id, silent=silent)
    while True:
        try:
            for event in events:
                if shown.take(event):
                    return
            return  # the session was deleted, or we were too slow
        except KeyboardInterrupt:
            service.cancel_current(session_id)


class _Shown:
    """What a terminal has been shown of an attempt."""

    def __init__(self, attempt_id: str, *, silent: bool) -> None:
        self._attempt_id = attempt_id
        self._silent = silent
        self._calls: dict[str, str] = {}
        self._in_line = False

    def take(self, event: Event) -> bool:
        """Show *event*; whether it was the last one."""
        if event.data.get("attempt_id") == self._attempt_id:
            if not self._silent:
                self._show(event.kind, event.data)
            return event.kind in _ENDS
        if event.kind == "mcp.warning" and not self._silent:
            self._say(f"note: {event.data['message']}")
        return False

    def _show(self, kind: str, data: Mapping[str, Any]) -> None:
        match kind:
            case "text_delta":
                self._write(visible(data["text"]))
            case "draft_cleared":
                self._end_line()
            case "phase_changed" if data["phase"] == "pending":
                self._say("waiting for other turns to end")
            case "tool_call_started":
                self._calls[data["id"]] = arguments_preview(data["name"], data["arguments"])
            case "tool_call_finished":
                self._tell_call(data)
            case "attempt.failed" | "attempt.cancelled":
                self._end_line()
                print(f"op-jupyter: {visible(data['error'])}", file=sys.stderr)
            case "attempt.completed":
                self._end_line()

    def _tell_call(self, data: Mapping[str, Any]) -> None:
        word = LOOKS.get(data["state"], ("", data["state"]))[1]
        preview = self._calls.get(data["id"], "")
        said = one_line(data.get("text", ""), _RESULT_CHARS)
        self._say(f"[{visible(data['name'])}] {preview}: {word}" + (f", {said}" if said else ""))

    def _say(self, line: str) -> None:
        self._end_line()
        print(line, flush=True)

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._in_line = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._in_line:
            print(flush=True)
            self._in_line = False


def _code(outcome: Outcome) -> int:
    if outcome.status == "completed":
        return ExitCode.OK
    return ExitCode.INTERRUPTED if outcome.status == "cancelled" else ExitCode.FAILED
