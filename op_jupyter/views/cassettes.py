"""A cassette as text: what is recorded there, and what a run did not need of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from op_jupyter.core.recording import Recording
from op_jupyter.core.recording_diff import reply_lines, request_lines, title
from op_jupyter.errors import UsageError
from op_jupyter.store.cassette_codec import Contents, Decision, Exchange
from op_jupyter.views.text import count, one_line, visible

_ANSWER_CHARS: Final = 60


def summary(contents: Contents) -> str:
    """How much there is, in one line."""
    replies = sum(len(exchange.replies) for exchange in contents.exchanges.values())
    answers = sum(len(decision.answers) for decision in contents.decisions.values())
    parts = [count(replies, "model call"), count(answers, "decision")]
    return ", ".join([*parts, *([f"by {contents.provider}"] if contents.provider else [])])


def overview(contents: Contents, used: Mapping[str, int] | None = None) -> str:
    """A line for each request and decision; *used* marks those that a run did not need."""
    rows: list[tuple[str, Sequence[object], str]] = [
        *(
            (key, exchange.replies, _asked(key, exchange))
            for key, exchange in sorted(contents.exchanges.items(), key=lambda item: item[1].place)
        ),
        *(
            (key, decision.answers, _decided(decision))
            for key, decision in sorted(contents.decisions.items())
        ),
    ]
    lines = []
    for key, recorded, line in rows:
        unused = 0 if used is None else max(0, len(recorded) - used.get(key, 0))
        note = "" if not unused else f"  [{unused} of {len(recorded)} not used]"
        lines.append(line + note)
    return "\n".join(lines) or "nothing is recorded"


def unused(contents: Contents, used: Mapping[str, int]) -> int:
    """How many replies and answers a run did not need."""
    recorded = {key: len(exchange.replies) for key, exchange in contents.exchanges.items()}
    recorded |= {key: len(decision.answers) for key, decision in contents.decisions.items()}
    return sum(max(0, number - used.get(key, 0)) for key, number in recorded.items())


def details(contents: Contents, start: str) -> str:
    """The one request whose key begins with *start*, and its replies, whole.

    Raises:
        UsageError: there is none, or more than one.
    """
    found = [key for key in contents.exchanges if key.startswith(start)]
    if len(found) != 1:
        how_many = "no request" if not found else count(len(found), "request")
        raise UsageError(f"{how_many} begins with {start!r}; list them to see their keys")
    exchange = contents.exchanges[found[0]]
    lines = [f"request {found[0]}", *request_lines(exchange.request)]
    for number, reply in enumerate(exchange.replies, start=1):
        lines += [f"reply {number} ({reply.stop_reason})", *_told(reply)]
    return visible("\n".join(lines))


def _asked(key: str, exchange: Exchange) -> str:
    answer = " ".join(_told(exchange.replies[0])) if exchange.replies else ""
    return f"{key}  {visible(title(exchange.request))} -> {one_line(answer, _ANSWER_CHARS)}"


def _decided(decision: Decision) -> str:
    answers = ", ".join(str(answer.get("answer")) for answer in decision.answers)
    about = decision.arguments.get("prompt", decision.arguments)
    return f"decision  {visible(decision.tool)} {one_line(str(about), _ANSWER_CHARS)} -> {answers}"


def _told(reply: Recording) -> Iterator[str]:
    return reply_lines(reply.content)
