"""Every error that this package raises on purpose, sorted by who can act::

    OpenProgramError
    ├── UsageError                  the caller passed something that cannot work
    │   ├── InvalidSessionId        an id that is not a safe folder name
    │   ├── UnknownSession          no session has that id
    │   ├── UnknownNode             no node of the session has that id
    │   ├── EmptyInput              a prompt without any text
    │   ├── ConfigurationError      a setting, a key or a package is missing or wrong
    │   ├── ToolDefinitionError     a function cannot be offered as a tool
    │   ├── ToolNotFound            no tool has that name
    │   ├── InvalidArguments        a tool call does not fit the tool's schema
    │   ├── InvalidRule             a permission rule that cannot be read
    │   ├── SubstitutionError       ``{{name}}`` names nothing in the notebook
    │   ├── RuntimeClosed           exec after close
    │   ├── NotPortable             something that cannot be sent to a worker
    │   └── RecursionLimit          an agentic function called itself too often
    ├── SessionStateError           right call, wrong moment
    │   ├── Busy                    another turn is active
    │   ├── TurnNotActive           the named turn is not the active one
    │   ├── PermissionNotPending    no card with that call id waits
    │   ├── SessionActive           only possible while no turn runs
    │   ├── FilesChanged            files changed since, so putting them back would lose that
    │   └── ReloadRequired          the session has to be opened again first
    ├── ProviderError               the model service failed
    │   ├── ProviderConnectionError, ProviderTimeout, ProviderOverloaded, RateLimited
    │   ├── AuthenticationFailed, ModelNotFound, InvalidRequest, SpendLimitReached
    │   ├── ContextOverflow         the request is larger than the model's window
    │   ├── ProtocolError           a response that is not a whole, well-formed message
    │   ├── Refused                 the model declined to answer
    │   ├── RecordingMissing        replay has no recording of this request
    │   └── RetriesExhausted        every attempt failed; the attempts are listed
    ├── TurnError                   an agent turn ended without an answer
    │   ├── TurnFailed, TurnCancelled
    │   └── ReplyInvalid            structured output did not validate
    ├── WorkError                   a call that was sent to a worker
    │   ├── WorkerLost              the worker died with it
    │   └── MapFailed               some items of a map failed, the others are done
    ├── AskError
    │   └── CannotAsk, UserDeclined, AskTimeout
    └── StoreError                  the store refused; nothing was written
        ├── GraphError              an append that would break the graph
        ├── SessionLocked           another live writer holds the session
        ├── CorruptRecord           a stored record is damaged
        ├── FormatTooNew            written by a newer version
        └── ReadOnlySession         opened for reading, or read-only after a fault

A message says what happened, with which values, and what to do next; the values
are attributes too. No message holds a key, a header or a whole prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class OpenProgramError(Exception):
    """Root of the tree.  Keyword arguments become attributes."""

    def __init__(self, message: str, **values: Any) -> None:
        super().__init__(message)
        self.message = message
        for name, value in values.items():
            setattr(self, name, value)

    def _render_traceback_(self) -> list[str]:
        """Give IPython one line in place of a traceback through our code."""
        return [f"{type(self).__name__}: {self.message}"]


# --- the caller -------------------------------------------------------------------------


class UsageError(OpenProgramError):
    """The caller passed something that cannot work; nothing was changed."""


class InvalidSessionId(UsageError, ValueError):
    """A session id that is not a safe folder name."""


class UnknownSession(UsageError, KeyError):
    """No session has that id (attribute ``nearest``: ids that look alike)."""

    nearest: Sequence[str] = ()

    def __str__(self) -> str:
        return self.message


class UnknownNode(UsageError, KeyError):
    """No node of the session has that id."""

    def __str__(self) -> str:
        return self.message


class EmptyInput(UsageError, ValueError):
    """A prompt without any text."""


class ConfigurationError(UsageError):
    """A setting, a key or an optional package is missing or wrong."""


class ToolDefinitionError(UsageError, TypeError):
    """A function cannot be offered as a tool."""


class ToolNotFound(UsageError, LookupError):
    """No tool has that name; the message lists the tools there are."""


class InvalidArguments(UsageError, ValueError):
    """The arguments of a tool call do not fit its schema (attribute ``fields``: which)."""

    fields: Sequence[str] = ()


class InvalidRule(UsageError, ValueError):
    """A permission rule that cannot be read."""


class SubstitutionError(UsageError, NameError):
    """``{{name}}`` names nothing in the notebook; nothing was sent."""


class RuntimeClosed(UsageError):
    """``exec`` after ``close``."""


class NotPortable(UsageError, TypeError):
    """A function, an argument or a value that cannot be sent to a worker, or back."""


class RecursionLimit(UsageError, RecursionError):
    """An agentic function called itself more often than ``max_depth`` allows."""


# --- right call, wrong moment -----------------------------------------------------------


class SessionStateError(OpenProgramError):
    """The session is not in a state in which this is possible; nothing was changed."""


class Busy(SessionStateError):
    """Another turn is active (attribute ``turn_id``)."""

    turn_id: str


class TurnNotActive(SessionStateError):
    """The named turn is not the active one."""


class PermissionNotPending(SessionStateError):
    """No card with that call id waits for an answer."""


class SessionActive(SessionStateError):
    """Only possible while no turn runs."""


class FilesChanged(SessionStateError):
    """Putting files back would lose what somebody else did (attribute ``paths``)."""

    paths: Sequence[str]


class ReloadRequired(SessionStateError):
    """The session has to be opened again before the next turn."""


# --- the model service ------------------------------------------------------------------


class ProviderError(OpenProgramError):
    """The model service failed.

    Attributes:
        retryable: another attempt may succeed (the retry policy decides on this alone).
        retry_after: seconds the service asked to wait, or None.
        semantic_output: text, thinking or a tool call had already arrived; never retried.
        status_code: HTTP status, or None.
    """

    retryable: bool = False
    retry_after: float | None = None
    semantic_output: bool = False
    status_code: int | None = None


class ProviderConnectionError(ProviderError):
    """The service could not be reached, or the connection broke."""

    retryable = True


class ProviderTimeout(ProviderError):
    """The service was silent for too long."""

    retryable = True


class ProviderOverloaded(ProviderError):
    """The service is overloaded or failed inside (5xx, 529)."""

    retryable = True


class RateLimited(ProviderError):
    """Too many requests (429)."""

    retryable = True


class AuthenticationFailed(ProviderError):
    """The key is missing, wrong or not allowed (401, 403)."""


class ModelNotFound(ProviderError):
    """The service does not know the model (404)."""


class InvalidRequest(ProviderError):
    """The service refused the request as malformed (400, 413, 422)."""


class SpendLimitReached(ProviderError):
    """The account may not spend more (402, spend-limit 429)."""


class ContextOverflow(InvalidRequest):
    """The request is larger than the model's context window."""


class ProtocolError(ProviderError):
    """The response was not one whole, well-formed message; it was dropped."""


class Refused(ProviderError):
    """The model declined to answer."""


class RecordingMissing(ProviderError):
    """Replay has no recording of this request (attribute ``difference``)."""

    difference: str = ""


class RetriesExhausted(ProviderError):
    """Every attempt failed (attributes ``attempts``: one line each; ``last``: the last error)."""

    attempts: Sequence[str] = ()
    last: ProviderError


# --- a turn -----------------------------------------------------------------------------


class TurnError(OpenProgramError):
    """An agent turn ended without an answer."""


class TurnFailed(TurnError):
    """The turn failed (attribute ``code``: one of `core.turn.FailureCode`)."""

    code: str = ""
    turn_id: str = ""


class TurnCancelled(TurnError):
    """The turn was cancelled."""

    turn_id: str = ""


class ReplyInvalid(TurnError, ValueError):
    """The reply did not fit the format asked for (attribute ``raw``: the reply)."""

    raw: str = ""


# --- asking a person --------------------------------------------------------------------


# --- calls that run elsewhere -----------------------------------------------------------


class WorkError(OpenProgramError):
    """A call that was sent to a worker went wrong on the way."""


class WorkerLost(WorkError):
    """The worker died, or its executor gave up; what it had recorded by then is lost."""


class MapFailed(WorkError):
    """Some items of a map failed, and the others are done.

    Attributes:
        results: the values in the order of the items; None where an item failed.
        errors: what was raised, by the number of the item, from 0.
    """

    results: Sequence[Any]
    errors: Mapping[int, BaseException]


class AskError(OpenProgramError):
    """A question got no answer."""


class CannotAsk(AskError):
    """Nobody can be asked here."""


class UserDeclined(AskError):
    """The person chose not to answer."""


class AskTimeout(AskError, TimeoutError):
    """No answer in time, and no default was given."""


# --- the store --------------------------------------------------------------------------


class StoreError(OpenProgramError):
    """The store refused; nothing was written."""


class GraphError(StoreError, ValueError):
    """An append or update that would break the graph."""


class SessionLocked(StoreError):
    """Another live writer holds the session (attribute ``holder``)."""

    holder: Any = None


class CorruptRecord(StoreError):
    """A stored record is damaged (attributes ``path`` and ``offset`` in bytes)."""

    path: str = ""
    offset: int = 0


class FormatTooNew(StoreError):
    """The session was written by a newer version (attribute ``version``)."""

    version: int = 0


class ReadOnlySession(StoreError):
    """The session was opened for reading, or went read-only after a fault."""
