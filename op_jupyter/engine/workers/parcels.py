"""What travels to a worker and back.

Values are pickled with cloudpickle, which takes functions of a notebook along.  Keys never
travel: a worker looks them up where it runs.  Everything that is unpickled here was made by a
process of ours, for a call of ours.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from op_jupyter.core.graph import Dag
from op_jupyter.core.keys import Json
from op_jupyter.core.nodes import Node
from op_jupyter.core.prompt import FrameView, remember_history
from op_jupyter.core.values import dataclass
from op_jupyter.engine.function import AgenticFunction
from op_jupyter.engine.policy import Policy
from op_jupyter.engine.runtime import Reply
from op_jupyter.errors import NotPortable, OpenProgramError
from op_jupyter.tools.tracebacks import message_of

_OWN: Final = frozenset({str, bytes, int, float, bool, type(None), Reply})


@dataclass(frozen=True, slots=True)
class Address:
    """Where the process that sent a call off can be reached (`engine.workers.line`)."""

    host: str
    port: int
    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class FrameSketch:
    """A frame of the call path, without what is alive in it."""

    view: FrameView
    base: str | None
    name: str
    system: str
    render_range: Mapping[str, int | None]
    tool_name: str | None
    step: str | None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all calls of one map share.

    Attributes:
        function: what is called; agentic, traced or plain.
        dag: what prompts can show of the session.
        base: the node of the conversation that the calls follow.
        outer: the frames around the calls, outermost first.
        store_path, protected: what no tool may write.
        policy: what may run without asking; changes are told over the line.
        interactive, can_ask: whether a person can answer cards, and questions.
    """

    function: Any
    dag: Dag
    base: str | None
    outer: tuple[FrameSketch, ...]
    turn_id: str
    workspace: Path
    store_path: Path | None
    protected: tuple[Path, ...]
    policy: Policy
    allow_everything: bool
    interactive: bool
    can_ask: bool
    address: Address


@dataclass(frozen=True, slots=True)
class Order:
    """One call, as an executor gets it.

    Attributes:
        call_id: what the worker names when it calls home.
        surroundings, digest: pickled and compressed `Surroundings`, and their sha256.
        arguments: pickled ``(args, kwargs)``.
        runtime: pickled `Runtime`; None: the one that is configured where the call runs.
        node: the call's own node as it is stored; None: it is hidden.
    """

    call_id: str
    digest: str
    surroundings: bytes
    arguments: bytes
    runtime: bytes | None
    frame: FrameSketch
    node: Node | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended, and what it recorded.

    Attributes:
        value: pickled; None: it raised.
        error: pickled; None: it returned.
        told: type, message and traceback of the error, as they are recorded.
        output: the value as it is recorded.
    """

    nodes: Sequence[Node]
    decisions: Sequence[Mapping[str, Any]]
    blobs: Sequence[tuple[bytes, str]]
    value: bytes | None = None
    output: Json = None
    error: bytes | None = None
    told: Mapping[str, str] = field(default_factory=dict)


def pack(what: str, value: Any) -> bytes:
    """*value* as bytes.

    Raises:
        NotPortable: it cannot be pickled; the message says that of *what*.
    """
    if type(value) in _OWN:
        return pack_own(value)
    import cloudpickle  # only needed by who sends calls elsewhere

    try:
        data: bytes = cloudpickle.dumps(value)
    except OpenProgramError as error:
        raise NotPortable(f"{what} cannot travel to a worker: {error.message}") from error
    except Exception as error:
        raise NotPortable(
            f"{what} cannot travel to a worker: it cannot be pickled ({error!s:.200}). Locks, open "
            "files and connections stay where they are: pass what they are made from, and make "
            "them in the function"
        ) from error
    return data


def pack_own(value: Any) -> bytes:
    """*value*, made of our own classes and of plain values, which needs no cloudpickle.

    That looks at each class whether it has to travel too, which takes several times as long.
    """
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def pack_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """The arguments of one call.

    Raises:
        NotPortable: one of them cannot be pickled; says which.
    """
    try:
        return pack("", (tuple(args), dict(kwargs)))
    except NotPortable:
        for key, value in (*enumerate(args, start=1), *kwargs.items()):
            pack(f"argument {key} of {name} ({type(value).__name__})", value)
        raise


def pack_surroundings(surroundings: Surroundings) -> tuple[str, bytes]:
    """Their digest and bytes.

    Raises:
        NotPortable: the function cannot be pickled.
    """
    name = getattr(surroundings.function, "__name__", "the function")
    data = zlib.compress(pack(f"the function {name}", surroundings), 1)
    return hashlib.sha256(data).hexdigest(), data


def unpack_surroundings(order: Order) -> Surroundings:
    """The surroundings of *order*.

    They are unpickled, and what prompts of an agentic function tell of the session's past is
    rendered, once for all calls of a map.
    """
    return _unpacked(order.digest, _Bytes(order.surroundings))


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Bytes that do not count in a cache's key."""

    data: bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bytes)

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(maxsize=2)
def _unpacked(digest: str, data: _Bytes) -> Surroundings:
    unpacked: Surroundings = pickle.loads(zlib.decompress(data.data))
    if isinstance(unpacked.function, AgenticFunction):  # others seldom ask a model
        remember_history(unpacked.dag, unpacked.base)
    return unpacked


def portable_error(error: BaseException) -> BaseException:
    """*error*, or what stands for one that cannot be pickled."""
    try:
        again = pickle.loads(pack("the error", error))
    except Exception:  # noqa: BLE001 -- the error's own code may raise anything
        return RuntimeError(f"{type(error).__name__}: {message_of(error)}")
    return error if isinstance(again, type(error)) else RuntimeError(repr(error))
