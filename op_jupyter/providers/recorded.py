"""Record and replay around any provider, so that a notebook runs without key and network."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, fields
from typing import Any, Final, Literal, Protocol, TypeAlias, cast, get_args

from op_jupyter.core.messages import (
    ModelDelta,
    ModelRequest,
    OpaqueBlock,
    ResponseDone,
    TextBlock,
    TextDelta,
    ThinkingDelta,
    ToolUseBlock,
    ToolUseStarted,
)
from op_jupyter.core.recording import (
    Folders,
    Recording,
    canonical_request,
    reply_from_recording,
    reply_to_recording,
    request_key,
)
from op_jupyter.core.recording_diff import difference, nearest, title
from op_jupyter.core.redact import Redactor, secrets_of
from op_jupyter.errors import ConfigurationError, RecordingMissing
from op_jupyter.providers.base import Capabilities, Provider

ReplayMode: TypeAlias = Literal["record", "replay", "auto", "off"]
"""record: always ask, and keep; replay: never ask; auto: ask what is not kept; off: neither."""

_NO_PROVIDER: Final = Capabilities("recording", "recorded-model")


class Cassette(Protocol):
    """A place that keeps recorded replies and decisions.  *name* is for messages."""

    @property
    def name(self) -> str: ...

    def find_provider(self, name: str | None) -> Mapping[str, Any] | None:
        """What the recorded provider of that name can do; None: the one recorded with last."""

    def record_provider(self, name: str, can: Mapping[str, Any]) -> None:
        """Keep what a provider can do, so that a replay shapes its requests alike."""

    def find_reply(self, key: str) -> Recording | None:
        """The next reply recorded for *key*; the last one again when they are used up."""

    def record_reply(self, request: Mapping[str, Any], reply: Recording) -> None:
        """Keep *reply* to the canonical *request*, in place of those of earlier runs."""

    def requests(self) -> Sequence[Mapping[str, Any]]:
        """Every recorded canonical request."""

    def find_decision(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The next decision recorded for exactly this call; the last again at the end."""

    def record_decision(
        self, tool: str, arguments: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> None:
        """Keep the *answer* that a person gave on the card of this call."""


def parse_replay_mode(word: str) -> ReplayMode:
    """*word* as a mode.

    Raises:
        ConfigurationError: there is no such mode.
    """
    if word not in get_args(ReplayMode):
        modes = ", ".join(get_args(ReplayMode))
        raise ConfigurationError(f"no replay mode {word!r}; choose one of {modes}")
    return cast("ReplayMode", word)


class RecordedProvider:
    """Provider that answers from *cassette*, or asks the inner one and keeps the answer.

    Args:
        inner: makes the real provider; called when it is first needed, in ``replay`` never.
        folders: folders of this machine that must not stand in a recording.
        name: provider to replay when the cassette knows several.
        redactor: takes secrets out of everything that is kept.
    """

    def __init__(
        self,
        inner: Callable[[], Provider],
        cassette: Cassette,
        mode: ReplayMode,
        *,
        folders: Folders,
        name: str | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self._make_inner = inner
        self._inner: Provider | None = None
        self._cassette = cassette
        self._mode = mode
        self._folders = folders
        self._name = name
        self._redactor = redactor or Redactor()

    @property
    def capabilities(self) -> Capabilities:
        """The inner provider's; without one (no key, or ``replay``) those of the recording."""
        recorded = _capabilities(self._cassette.find_provider(self._name))
        if self._mode == "replay":
            return recorded or _NO_PROVIDER
        try:
            return self._live().capabilities
        except ConfigurationError:
            if self._mode != "auto" or recorded is None:
                raise
            return recorded

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        canonical = self._redactor.json(canonical_request(request, self._folders))
        if self._mode in ("replay", "auto"):
            recording = self._cassette.find_reply(request_key(canonical))
            if recording is not None:
                for delta in replayed(recording, self._folders, request.session_key):
                    yield delta
                return
            if self._mode == "replay":
                raise self._missing(canonical)
        async with aclosing(self._live().stream(request)) as live:
            async for delta in live:
                if isinstance(delta, ResponseDone) and self._mode != "off":
                    self._keep(request, canonical, delta)
                yield delta

    async def aclose(self) -> None:
        if self._inner is not None:
            await self._inner.aclose()

    def __reduce__(self) -> tuple[Any, ...]:
        """The same recording elsewhere; it can only be read from there.

        Raises:
            ConfigurationError: it is recorded to; one file has one writer.
        """
        if self._mode != "replay":
            raise ConfigurationError(
                f"replay={self._mode} cannot record what workers ask; record without workers, or "
                "set replay=replay or replay=off"
            )
        return _replayed_elsewhere, (self._cassette, self._folders, self._name)

    def _live(self) -> Provider:
        if self._inner is None:
            self._inner = self._make_inner()
        return self._inner

    def _keep(
        self, request: ModelRequest, canonical: Mapping[str, Any], done: ResponseDone
    ) -> None:
        recording = reply_to_recording(done, request, self._folders)
        clean = Recording(
            self._redactor.json(list(recording.content)),
            recording.stop_reason,
            recording.model,
            recording.usage,
        )
        can = self._live().capabilities
        self._cassette.record_provider(can.name, asdict(can))
        self._cassette.record_reply(canonical, clean)

    def _missing(self, canonical: Mapping[str, Any]) -> RecordingMissing:
        what = f"{self._cassette.name} has no recording of this request ({title(canonical)})"
        how = "record it with --replay record"
        closest = nearest(canonical, self._cassette.requests())
        if closest is None:
            return RecordingMissing(f"{what}, and no other; {how}")
        changes = difference(closest, canonical)
        return RecordingMissing(
            f"{what}; {how}. Nearest is {request_key(closest)} ({title(closest)}):\n{changes}",
            difference=changes,
        )


def _replayed_elsewhere(cassette: Cassette, folders: Folders, name: str | None) -> RecordedProvider:
    # The secrets of this process: those of the other one did not travel.
    redactor = Redactor(secrets_of(os.environ))
    return RecordedProvider(
        _nobody, cassette, "replay", folders=folders, name=name, redactor=redactor
    )


def _nobody() -> Provider:
    raise ConfigurationError("a replay asks no model")


def _capabilities(recorded: Mapping[str, Any] | None) -> Capabilities | None:
    """Recorded capabilities; words of another version are passed over."""
    if recorded is None:
        return None
    known = {f.name for f in fields(Capabilities)}
    return Capabilities(**{name: value for name, value in recorded.items() if name in known})


def replayed(recording: Recording, folders: Folders, session_key: str = "") -> Iterator[ModelDelta]:
    """The stream of a recorded reply."""
    done = reply_from_recording(recording, folders, session_key)
    for index, block in enumerate(done.message.content):
        match block:
            case TextBlock(text):
                yield TextDelta(text)
            case ToolUseBlock():
                yield ToolUseStarted(index, block.name)
            case OpaqueBlock(payload) if payload.get("thinking"):
                yield ThinkingDelta(str(payload["thinking"]))
    yield done
