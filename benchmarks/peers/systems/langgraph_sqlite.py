"""langgraph with its SQLite checkpointer: one thread of messages, ``durability="sync"``.

Durability: SQLite in WAL mode with `synchronous=FULL`, one transaction a checkpoint.
"""

from __future__ import annotations

import operator
import time
from pathlib import Path
from typing import Annotated, Any

from _work import (
    Service,
    Texts,
    clock,
    interleaved,
    main,
    memory,
    reopened,
    sizes,
    talk_on,
    timed_nodes,
)

TEXTS = Texts()
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "s"}}


def imported() -> dict[str, Any]:
    """What a program imports to define a graph and persist it."""
    result: dict[str, Any] = {}
    with clock(result):
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: F401
        from langgraph.graph import END, START, StateGraph  # noqa: F401
    return result


class _Conversation:
    """A graph of one node, which answers."""

    def __init__(self, folder: str, answer: Any) -> None:
        import sqlite3

        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.graph import END, START, StateGraph
        from typing_extensions import TypedDict

        class State(TypedDict):
            messages: Annotated[list[dict[str, str]], operator.add]

        database = sqlite3.connect(Path(folder) / "graph.db", check_same_thread=False)
        graph = StateGraph(State)
        graph.add_node("model", lambda state: {"messages": [answer(state["messages"])]})
        graph.add_edge(START, "model")
        graph.add_edge("model", END)
        self.graph = graph.compile(checkpointer=SqliteSaver(database))

    def turn(self, number: int, config: dict[str, Any] = CONFIG) -> None:
        """One question and its answer, stored."""
        asked = [{"role": "user", "content": TEXTS.asked(number)}]
        self.graph.invoke({"messages": asked}, config, durability="sync")

    def messages(self) -> list[Any]:
        """All that is stored."""
        return self.graph.get_state(CONFIG).values["messages"]


def _canned(messages: list[Any]) -> dict[str, str]:
    return {"role": "assistant", "content": TEXTS.said(len(messages) // 2)}


def append(folder: str, nodes: int, seconds: float) -> dict[str, Any]:
    return timed_nodes(_Conversation(folder, _canned).turn, nodes, seconds)


def load(folder: str, nodes: int) -> dict[str, Any]:
    conversation = _Conversation(folder, _canned)
    for number in range(nodes):
        conversation.turn(number)
    result: dict[str, Any] = {}
    with clock(result):
        assert len(_Conversation(folder, _canned).messages()) == 2 * nodes
    return result


def size(folder: str, turns: list[int]) -> dict[str, Any]:
    return sizes(_Conversation(folder, _canned).turn, folder, turns)


def turn(folder: str, turns: int) -> dict[str, Any]:
    service = Service()
    return interleaved(service.bare, _Conversation(folder, service).turn, turns)


def talk(folder: str, turns: int) -> dict[str, Any]:
    return talk_on(_Conversation(folder, Service()).turn, turns)


def go_on(folder: str, turns: int) -> dict[str, Any]:
    return reopened(lambda folder: _Conversation(folder, Service()).turn, folder, turns)


def fork(folder: str, nodes: int) -> dict[str, Any]:
    conversation = _Conversation(folder, _canned)
    for number in range(nodes):
        conversation.turn(number)
    history = conversation.graph.get_state_history(CONFIG)
    middle = next(s for s in history if len(s.values["messages"]) == nodes and not s.next)
    result: dict[str, Any] = {}
    with clock(result):
        conversation.turn(nodes, middle.config)
    return result


def grow(folder: str, warm: int, turns: int, seconds: float) -> dict[str, Any]:
    return memory(_Conversation(folder, _canned).turn, warm, turns, seconds)


def fan_out(folder: str, calls: int, workers: int, seconds: float) -> dict[str, Any]:
    import sqlite3

    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send
    from typing_extensions import TypedDict

    class State(TypedDict):
        answers: Annotated[list[str], operator.add]

    def work(state: Any) -> Any:
        time.sleep(seconds)
        return {"answers": [TEXTS.said(state["number"])]}

    database = sqlite3.connect(Path(folder) / "graph.db", check_same_thread=False)
    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_conditional_edges(
        START, lambda _: [Send("work", {"number": n}) for n in range(calls)]
    )
    graph.add_edge("work", END)
    compiled = graph.compile(checkpointer=SqliteSaver(database))
    result: dict[str, Any] = {}
    with clock(result):
        done = compiled.invoke(
            {"answers": []}, {**CONFIG, "max_concurrency": workers}, durability="sync"
        )
    assert len(done["answers"]) == calls
    return {"ratio": result["ms"] / 1e3 / (calls * seconds / workers)}


if __name__ == "__main__":
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
            "memory": grow,
            "fan_out": fan_out,
        }
    )
