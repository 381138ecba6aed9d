"""Record and replay around any provider, so that a notebook runs without key and network."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import MISSING, asdict, fields, replace
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
from op_jupyter.core.redact import Redactor, Redacts, secrets_of
from op_jupyter.errors import ConfigurationError, CorruptRecord, RecordingMissing
from op_jupyter.providers.base import Capabilities, Provider
from op_jupyter.providers.live import RECORD_WITH, note_refusal

ReplayMode: TypeAlias = Literal["record", "replay", "auto", "off"]
"""What is done with a request.

record: it is asked, and the reply takes the place of an earlier one.
replay: it is answered from the recording; one that is not there is an error.
auto: it is answered from the recording; one that is not there is asked, of the provider that was
recorded, and kept.  What is there is never asked, and never changed.
off: it is asked, and nothing is kept.
"""

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
        model: asked where a call names none; recorded, so that a replay asks for it as well.
        why: why nothing may be asked, for messages, where the mode is not the reason.
    """

    def __init__(
        self,
        inner: Callable[[], Provider],
        cassette: Cassette,
        mode: ReplayMode,
        *,
        folders: Folders,
        name: str | None = None,
        redactor: Redacts | None = None,
        model: str | None = None,
        why: str = "",
    ) -> None:
        self._make_inner = inner
        self._inner: Provider | None = None
        self._cassette = cassette
        self._mode = mode
        self._folders = folders
        self._name = name
        self._redactor = redactor or Redactor()
        self._model = model
        self._why = why

    @property
    def capabilities(self) -> Capabilities:
        """The recorded provider's, where a recording is played; otherwise the inner one's.

        They shape the requests: with others, none would be found.
        """
        if self._mode in ("replay", "auto") and (recorded := self._recorded()) is not None:
            return recorded
        return _NO_PROVIDER if self._mode == "replay" else self._live_capabilities()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        canonical = self._redactor.json(canonical_request(request, self._folders))
        if self._mode in ("replay", "auto"):
            recording = self._cassette.find_reply(request_key(canonical))
            if recording is not None:
                for delta in replayed(recording, self._folders, request.session_key):
                    yield delta
                return
            if self._mode == "replay":
                missing = self._missing(canonical)
                note_refusal(missing.message)
                raise missing
            self._check_same_provider()
        async with aclosing(self._live().stream(request)) as live:
            async for delta in live:
                if isinstance(delta, ResponseDone) and self._mode != "off":
                    self._keep(request, canonical, delta)
                yield delta

    async def aclose(self) -> None:
        if self._inner is not None:
            await self._inner.aclose()

    def __reduce__(self) -> tuple[Any, ...]:
        """The same recording elsewhere; what is asked there is recorded as well."""
        live, why = None, self._why
        if self._mode != "replay":
            try:
                live = self._live()
            except ConfigurationError as error:
                if self._mode != "auto":
                    raise
                why = error.message
        mode = "replay" if live is None else self._mode
        return _elsewhere, (
            live,
            self._cassette,
            mode,
            self._folders,
            self._name,
            self._model,
            why,
        )

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
        can = self._live_capabilities()
        self._cassette.record_provider(can.name, asdict(can))
        self._cassette.record_reply(canonical, clean)

    def _live_capabilities(self) -> Capabilities:
        can = self._live().capabilities
        return replace(can, default_model=self._model or can.default_model)

    def _recorded(self) -> Capabilities | None:
        kept = self._cassette.find_provider(self._name)
        return None if kept is None else _capabilities(kept, self._cassette.name)

    def _check_same_provider(self) -> None:
        """Two models in one recording would not know of each other."""
        recorded, live = self._recorded(), self._live().capabilities
        if recorded is not None and recorded.name != live.name:
            raise ConfigurationError(
                f"{self._cassette.name} was recorded with {recorded.name}, and {live.name} would "
                f"be asked what is missing there: choose {recorded.name}, or record it anew with "
                "--replay record"
            )

    def _missing(self, canonical: Mapping[str, Any]) -> RecordingMissing:
        what = f"{self._cassette.name} has no recording of this request ({title(canonical)})"
        how = f"record it with {os.environ.get(RECORD_WITH) or '--replay record'}"
        if self._why:
            how = f"{self._why}; {how}"
        closest = nearest(canonical, self._cassette.requests())
        if closest is None:
            return RecordingMissing(f"{what}, and no other; {how}")
        changes = difference(closest, canonical)
        return RecordingMissing(
            f"{what}; {how}. Nearest is {request_key(closest)} ({title(closest)}):\n{changes}",
            difference=changes,
        )


def _elsewhere(
    live: Provider | None,
    cassette: Cassette,
    mode: ReplayMode,
    folders: Folders,
    name: str | None,
    model: str | None,
    why: str,
) -> RecordedProvider:
    def inner() -> Provider:
        if live is None:
            raise ConfigurationError("a replay asks no model")
        return live

    # The secrets of this process: those of the other one did not travel.
    redactor = Redactor(secrets_of(os.environ))
    return RecordedProvider(
        inner, cassette, mode, folders=folders, name=name, redactor=redactor, model=model, why=why
    )


def _capabilities(kept: Mapping[str, Any], cassette: str) -> Capabilities:
    """Recorded capabilities; words of another version are passed over.

    Raises:
        CorruptRecord: they were edited by hand, and are none any more.
    """
    known = {f.name: f for f in fields(Capabilities)}
    told = {name: value for name, value in kept.items() if name in known}
    for name, value in told.items():
        default = "" if known[name].default is MISSING else known[name].default
        fits = (int, type(None)) if default is None else (type(default),)
        if type(value) not in fits:
            raise CorruptRecord(f"{cassette}: {name} of a provider cannot be {value!r:.40}")
    try:
        return Capabilities(**told)
    except TypeError:
        raise CorruptRecord(f"{cassette}: a provider lacks its name or its model") from None


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
