"""`ask`, `confirm`, `form`, `can_ask`: a question of the program's to the person.

Three outcomes, never a silent None: answered; `UserDeclined`; no answer in time, which is the
*default* if one is given, else `AskTimeout`.  Where nobody can answer there is `CannotAsk`, at
once and with nothing recorded.  A question and its answer are user nodes of the graph.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Final, TypeVar, overload

from op_jupyter.core.keys import Json
from op_jupyter.core.nodes import Node
from op_jupyter.core.questions import (
    BadAnswer,
    FormField,
    Question,
    QuestionAnswer,
    QuestionKind,
    answer_text,
    checked_answer,
    fields_of,
    read_form,
)
from op_jupyter.core.updates import clip
from op_jupyter.core.values import dataclass
from op_jupyter.engine import context, hooks, loop
from op_jupyter.engine.asking import NOBODY, Asker, called
from op_jupyter.engine.calls import Call, open_call, was_cancelled
from op_jupyter.engine.cancelling import host_can_cancel
from op_jupyter.engine.formats import Misfit, ReplyFormat, format_of
from op_jupyter.engine.recorded_asker import script_asker
from op_jupyter.errors import AskTimeout, CannotAsk, StoreError, UsageError, UserDeclined
from op_jupyter.tools.tracebacks import stored_message

T = TypeVar("T")


class _Missing:
    """Stands for a default that was not given."""

    def __repr__(self) -> str:
        return "..."


NO_DEFAULT: Final = _Missing()
TIMEOUT: Final = 1800.0
"""Seconds that somebody has for an answer, unless a call says otherwise."""


@dataclass(frozen=True, slots=True)
class _Draft:
    """A question before it is known where it stands."""

    kind: QuestionKind
    prompt: str
    options: tuple[str, ...] = ()
    multi: bool = False
    allow_custom: bool = True
    default: bool = False
    fields: tuple[FormField, ...] = ()
    wanted: ReplyFormat | None = None
    timeout: float | None = TIMEOUT
    otherwise: Any = field(default=NO_DEFAULT)

    def placed(self, question_id: str, session_id: str, turn_id: str) -> Question:
        return Question(
            question_id,
            session_id,
            turn_id,
            self.kind,
            self.prompt,
            self.options,
            self.multi,
            self.allow_custom,
            self.default,
            self.fields,
            self.timeout,
        )

    def outcome(self, question: Question, value: Any) -> Any:
        """What the program gets for the JSON *value*.

        Raises:
            BadAnswer: it is no answer to *question*.
        """
        if self.wanted is None:
            return checked_answer(question, value)
        try:
            return self.wanted.read(json.dumps(value))
        except Misfit as misfit:
            raise BadAnswer(misfit.told) from None
        except (TypeError, ValueError):
            raise BadAnswer("the answer is no plain value") from None

    def check(self, question: Question, said: Any) -> Json:
        """The JSON that *said*, typed or clicked, means; raises as `outcome` does."""
        value: Json = read_form(self.fields, said) if self.wanted is not None else said
        checked = self.outcome(question, value)
        return value if self.wanted is not None else checked


def _asker() -> Asker:
    """Who would be asked here, if the host asks nobody itself."""
    frame = context.current_frame()
    if frame is not None:
        return frame.asker or frame.session.asker
    ambient = context.current_session()
    return script_asker() if ambient is None else ambient.agent.asker


def can_ask() -> bool:
    """Whether `ask`, `confirm` and `form` can get an answer here and now."""
    provider = hooks.session_id_provider()
    if provider is not None and provider() is None:
        return False
    return hooks.ask_handler() is not None or _asker().can_ask


def _put_and_wait(draft: _Draft) -> Any:
    context.refuse_stray_thread()
    return loop.run_sync(_put, draft)


async def _put_async(draft: _Draft) -> Any:
    context.refuse_stray_thread()
    return await loop.run_async(_put, draft)


async def _put(draft: _Draft) -> Any:
    if not can_ask():
        raise CannotAsk(NOBODY)
    with open_call(draft.prompt) as call:
        session, provider = call.frame.session, hooks.session_id_provider()
        hosts = None if provider is None else provider()
        question = draft.placed(
            session.new_id("question"), hosts or session.session_id, call.turn.id
        )
        node = _record_question(call, question)
        with _ended(call, node.id):
            answer = await _answer(draft, question, call)
            return _settled(draft, question, call, node, answer)


@contextmanager
def _ended(call: Call, node_id: str) -> Iterator[None]:
    """Fill the question's node in when there is no answer, whatever the reason."""
    try:
        yield
    except BaseException as error:
        recorder = call.frame.session.recorder
        if recorder.store.dag.nodes[node_id].status == "running":
            failed = not was_cancelled(error)
            said = {"type": type(error).__name__, "message": stored_message(error, recorder.clean)}
            try:
                recorder.finish(
                    node_id,
                    status="error" if failed else "cancelled",
                    metadata={"error": said} if failed else {},
                )
            except StoreError as refused:
                error.add_note(f"op-jupyter could not record this: {refused.message}")
        raise


async def _answer(draft: _Draft, question: Question, call: Call) -> QuestionAnswer | None:
    """What was answered; None: nothing, in time."""
    handler = hooks.ask_handler()
    limit = asyncio.timeout(draft.timeout)
    try:
        async with host_can_cancel(), limit:
            if handler is not None:
                return await by_handler(handler, question)
            async with call.frame.session.cards.attention():
                asker = call.frame.asker or call.frame.session.asker
                return await asker.question(question, lambda said: draft.check(question, said))
    except TimeoutError:
        if not limit.expired():
            raise
        return None


async def by_handler(handler: Callable[[Question], Any], question: Question) -> QuestionAnswer:
    """What the host says."""
    said = await called(handler, question)
    return QuestionAnswer(said, "handler", declined=said is None)


def _record_question(call: Call, question: Question) -> Node:
    return _append(
        call,
        Node(
            id=question.id,
            role="user",
            name="question",
            input=[{"type": "text", "text": question.prompt}],
            predecessor=call.predecessor,
            metadata={"kind": "question", "question": question.subject},
        ),
        question.prompt,
    )


def _settled(
    draft: _Draft, question: Question, call: Call, node: Node, answer: QuestionAnswer | None
) -> Any:
    """Record how it ended, and give or raise it."""
    recorder = call.frame.session.recorder
    if answer is None:
        if draft.otherwise is NO_DEFAULT:
            raise AskTimeout(
                f"nobody answered within {draft.timeout:g} seconds; "
                "give a longer timeout= or a default="
            )
        recorder.finish(node.id, status="completed", metadata={"how": "timeout"})
        return draft.otherwise
    if answer.declined:
        recorder.finish(node.id, status="denied", metadata={"how": answer.how})
        raise UserDeclined("the person chose not to answer")
    try:
        value = draft.outcome(question, answer.value)
    except BadAnswer as bad:  # of a host's handler, or recorded for a form that was different
        raise UsageError(
            f"the answer (from {answer.how}) does not fit the question: {bad}"
        ) from None
    text = answer_text(answer.value)
    _append(
        call,
        Node(
            id=call.frame.session.new_id("answer"),
            role="user",
            name="answer",
            input=[{"type": "text", "text": text}],
            output=answer.value,
            status="completed",
            predecessor=node.id,
            metadata={"kind": "answer", "how": answer.how},
        ),
        text,
    )
    recorder.finish(node.id, status="completed", output=answer.value, metadata={"how": answer.how})
    return value


def _append(call: Call, node: Node, label: str) -> Node:
    frame = call.frame
    place = {
        "turn_id": call.turn.id,
        "frame": frame.view.id,
        "bare": not frame.name,
        "label": clip(label),
    }
    return frame.session.recorder.append(
        Node(
            id=node.id,
            role=node.role,
            name=node.name,
            input=node.input,
            output=node.output,
            status=node.status,
            caller=frame.caller_id,
            predecessor=node.predecessor,
            metadata={**node.metadata, **place},
        )
    )


# -- the functions


def _draft_ask(
    prompt: str,
    options: Sequence[str] | None = None,
    multi: bool = False,
    allow_custom: bool = True,
    timeout: float | None = TIMEOUT,
    default: Any = NO_DEFAULT,
) -> _Draft:
    listed = tuple(options or ())
    if isinstance(options, str) or not all(isinstance(o, str) and o.strip() for o in listed):
        raise UsageError("options= is a list of texts, none of them empty")
    if len(set(listed)) < len(listed):
        raise UsageError("two of the options are the same")
    if options is not None and not listed:
        raise UsageError("options= is empty; leave it out to ask for free text")
    if multi and not listed:
        raise UsageError("multi=True needs options= to choose from")
    return _Draft(
        "ask",
        _prompt(prompt),
        listed,
        multi,
        allow_custom or not listed,
        timeout=_timeout(timeout),
        otherwise=default,
    )


def _draft_confirm(prompt: str, default: bool = False, timeout: float | None = TIMEOUT) -> _Draft:
    if not isinstance(default, bool):
        raise UsageError("default= of a confirmation is True or False")
    return _Draft(
        "confirm", _prompt(prompt), default=default, timeout=_timeout(timeout), otherwise=default
    )


def _draft_form(
    prompt: str, schema: Any, timeout: float | None = TIMEOUT, default: Any = NO_DEFAULT
) -> _Draft:
    wanted = format_of(schema, None)
    if wanted is None:
        raise UsageError("a form needs a JSON Schema (dict) or a pydantic model")
    try:
        fields = fields_of(wanted.schema)
    except ValueError as error:
        raise UsageError(f"no form can be made of this schema: {error}") from None
    return _Draft(
        "form",
        _prompt(prompt),
        fields=fields,
        wanted=wanted,
        timeout=_timeout(timeout),
        otherwise=default,
    )


def _prompt(prompt: str) -> str:
    if not isinstance(prompt, str) or not prompt.strip():
        raise UsageError("there is nothing to ask: the prompt is empty")
    return prompt


def _timeout(seconds: float | None) -> float | None:
    if seconds is not None and not seconds > 0:
        raise UsageError(f"timeout={seconds}: give seconds, or None to wait for any time")
    return seconds


class _Ask:
    """`ask`: a question with a free or a chosen answer."""

    def __call__(
        self,
        prompt: str,
        options: Sequence[str] | None = None,
        multi: bool = False,
        allow_custom: bool = True,
        timeout: float | None = TIMEOUT,
        default: Any = NO_DEFAULT,
    ) -> Any:
        """Ask the person and wait for the answer: a text; with *multi* a list of texts.

        Args:
            prompt: the question.
            options: answers to choose from; None: free text.
            multi: any number of *options* may be chosen.
            allow_custom: own words are an answer too.
            timeout: seconds to wait; None: for any time.
            default: returned when nobody answers in time.

        Raises:
            CannotAsk: nobody can answer here; at once.
            UserDeclined: the person chose not to answer.
            AskTimeout: nobody answered in time, and there is no *default*.
        """
        draft = _draft_ask(prompt, options, multi, allow_custom, timeout, default)
        return _put_and_wait(draft)

    async def aio(
        self,
        prompt: str,
        options: Sequence[str] | None = None,
        multi: bool = False,
        allow_custom: bool = True,
        timeout: float | None = TIMEOUT,
        default: Any = NO_DEFAULT,
    ) -> Any:
        """The same from async code."""
        draft = _draft_ask(prompt, options, multi, allow_custom, timeout, default)
        return await _put_async(draft)


class _Confirm:
    """`confirm`: yes or no."""

    def __call__(self, prompt: str, default: bool = False, timeout: float | None = TIMEOUT) -> bool:
        """Ask for a yes or no; *default* is what an empty line means, and no answer in time.

        Raises:
            CannotAsk, UserDeclined: as `ask` does.
        """
        return bool(_put_and_wait(_draft_confirm(prompt, default, timeout)))

    async def aio(
        self, prompt: str, default: bool = False, timeout: float | None = TIMEOUT
    ) -> bool:
        """The same from async code."""
        return bool(await _put_async(_draft_confirm(prompt, default, timeout)))


class _Form:
    """`form`: several answers at once."""

    @overload
    def __call__(
        self,
        prompt: str,
        schema: type[T],
        timeout: float | None = TIMEOUT,
        default: Any = NO_DEFAULT,
    ) -> T: ...
    @overload
    def __call__(
        self,
        prompt: str,
        schema: Mapping[str, Any],
        timeout: float | None = TIMEOUT,
        default: Any = NO_DEFAULT,
    ) -> dict[str, Any]: ...
    def __call__(
        self,
        prompt: str,
        schema: Any,
        timeout: float | None = TIMEOUT,
        default: Any = NO_DEFAULT,
    ) -> Any:
        """Ask for the fields of *schema*, a JSON Schema of an object or a pydantic model.

        Returns a dict or an instance of the model.  Raises as `ask` does.
        """
        return _put_and_wait(_draft_form(prompt, schema, timeout, default))

    async def aio(
        self,
        prompt: str,
        schema: Any,
        timeout: float | None = TIMEOUT,
        default: Any = NO_DEFAULT,
    ) -> Any:
        """The same from async code."""
        return await _put_async(_draft_form(prompt, schema, timeout, default))


ask = _Ask()
confirm = _Confirm()
form = _Form()
