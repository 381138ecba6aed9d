"""openprogram 0.5.0: its git-backed store, its functions, its runtime around the Anthropic SDK.

Durability as it ships: files are written and renamed without fsync; a commit starts `git`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from _work import (
    TURN,
    Service,
    Texts,
    clock,
    interleaved,
    main,
    median_ms,
    memory,
    reopened,
    sizes,
    talk_on,
    timed_nodes,
)

TEXTS = Texts()
KEY = os.environ.get("ANTHROPIC_API_KEY", "")


def _store(folder: str) -> Any:
    from openprogram.store.session.session_store import SessionStore

    store = SessionStore(Path(folder) / "store")
    if store.get_session("s") is None:
        store.create_session("s", "main")
    return store


def _graph(folder: str) -> Any:
    from openprogram.store.session.graphstore_shim import GraphStoreShim

    return GraphStoreShim(_store(folder), "s")


def _write(graph: Any, number: int, *, commits: bool = True) -> None:
    from openprogram.context.nodes import Call

    graph.append(
        Call(
            id=f"n{number}",
            role="llm",
            name="model",
            input={"prompt": TEXTS.asked(number)},
            metadata={"parent_id": f"n{number - 1}" if number else "", "status": "running"},
        )
    )
    graph.update(f"n{number}", output=TEXTS.said(number), metadata={"status": "completed"})
    if commits and number % TURN == TURN - 1:
        graph.store.commit_turn("s", f"turn {number // TURN}")


def imported() -> dict[str, Any]:
    """What a program imports to decorate a function and run it."""
    result: dict[str, Any] = {}
    with clock(result):
        from openprogram import agentic_function  # noqa: F401
        from openprogram.agentic_programming.runtime import Runtime  # noqa: F401
    return result


def append(folder: str, nodes: int, seconds: float) -> dict[str, Any]:
    graph = _graph(folder)
    return timed_nodes(lambda number: _write(graph, number), nodes, seconds)


def load(folder: str, nodes: int) -> dict[str, Any]:
    graph = _graph(folder)
    for number in range(nodes):
        _write(graph, number)
    result: dict[str, Any] = {}
    with clock(result):
        assert len(_graph(folder).load().nodes) == nodes
    return result


def size(folder: str, turns: list[int]) -> dict[str, Any]:
    graph = _graph(folder)
    return sizes(lambda number: _write(graph, number), folder, turns)


class _Conversation:
    """Turns of a chat: its own provider, with the history that its renderer gives."""

    def __init__(self, folder: str) -> None:
        from openprogram.agentic_programming.runtime import Runtime
        from openprogram.store import _store as bound

        self._graph = _graph(folder)
        bound.set(self._graph)
        # Its registry knows no address but the service's own.
        self._runtime = Runtime(model="anthropic:claude-sonnet-4-5", api_key=KEY)
        here = {"base_url": os.environ["ANTHROPIC_BASE_URL"]}
        self._runtime.api_model = self._runtime.api_model.model_copy(update=here)
        self.store = self._graph.store

    def turn(self, number: int) -> None:
        """One question and its answer, stored and committed."""
        from openprogram.context.nodes import UserMessage

        prompt = TEXTS.asked(number)
        self._runtime.exec([{"type": "text", "text": prompt}])
        self._graph.append(UserMessage(prompt))
        self.store.commit_turn("s", f"turn {number}")


def turn(folder: str, turns: int) -> dict[str, Any]:
    return interleaved(Service().streamed, _Conversation(folder).turn, turns)


def talk(folder: str, turns: int) -> dict[str, Any]:
    return talk_on(_Conversation(folder).turn, turns)


def go_on(folder: str, turns: int) -> dict[str, Any]:
    return reopened(lambda folder: _Conversation(folder).turn, folder, turns)


def fork(folder: str, nodes: int) -> dict[str, Any]:
    graph = _graph(folder)
    for number in range(nodes):
        _write(graph, number)
    result: dict[str, Any] = {}
    with clock(result):
        from openprogram.context.nodes import Call

        graph.store.set_head("s", f"n{nodes // 2}")
        graph.append(
            Call(
                id="fork",
                role="llm",
                name="model",
                input={"prompt": TEXTS.asked(nodes)},
                metadata={"parent_id": f"n{nodes // 2}"},
            )
        )
        graph.update("fork", output=TEXTS.said(nodes), metadata={"status": "completed"})
        graph.store.commit_turn("s", "fork")
    return result


def noop(folder: str, nodes: int) -> dict[str, Any]:
    from openprogram import agentic_function
    from openprogram.store import _store as bound

    graph = _graph(folder)
    for number in range(nodes):
        _write(graph, number, commits=False)  # it is the call that is measured
    graph.store.commit_turn("s", "all of them")
    bound.set(graph)

    @agentic_function
    def nothing(n: int) -> int:
        """Do nothing."""
        return n

    nothing(1)
    return {"ms": median_ms(lambda: nothing(1), 200)}


def grow(folder: str, warm: int, turns: int, seconds: float) -> dict[str, Any]:
    conversation = _Conversation(folder)
    return memory(conversation.turn, warm, turns, seconds)


if __name__ == "__main__":
    os.environ.setdefault("OPENPROGRAM_RETRY_BACKOFF_BASE", "0")
    main(
        {
            "import": imported,
            "append": append,
            "load": load,
            "size": size,
            "turn": turn,
            "talk": talk,
            "go_on": go_on,
            "fork": fork,
            "noop": noop,
            "memory": grow,
        }
    )
