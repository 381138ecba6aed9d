"""apache-burr with its SQLite persister: the state after each action.

Durability: SQLite in its default journal mode with `synchronous=FULL`, one transaction an action.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def imported() -> dict[str, Any]:
    """What a program imports to define an application and persist it."""
    result: dict[str, Any] = {}
    with clock(result):
        from burr.core import ApplicationBuilder, State, action  # noqa: F401
        from burr.core.persistence import SQLitePersister  # noqa: F401
    return result


class _Conversation:
    """An application of one action, which answers; the action follows itself."""

    def __init__(self, folder: str, answer: Any, **fork: Any) -> None:
        from burr.core import ApplicationBuilder, State, action, default
        from burr.core.persistence import SQLitePersister

        @action(reads=["messages"], writes=["messages"])
        def model(state: State, prompt: str) -> State:
            messages = [*state["messages"], {"role": "user", "content": prompt}]
            return state.update(messages=[*messages, answer(messages)])

        self.persister = SQLitePersister(str(Path(folder) / "burr.db"), "states")
        self.persister.initialize()
        self.app = (
            ApplicationBuilder()
            .with_actions(model=model)
            .with_transitions(("model", "model", default))
            .with_identifiers(app_id="fork" if fork else "s", partition_key="p")
            .initialize_from(
                self.persister,
                resume_at_next_action=True,
                default_state={"messages": []},
                default_entrypoint="model",
                **fork,
            )
            .with_state_persister(self.persister)
            .build()
        )

    def turn(self, number: int) -> None:
        """One question and its answer, stored."""
        self.app.step(inputs={"prompt": TEXTS.asked(number)})

    def messages(self) -> list[Any]:
        """All that was said."""
        return self.app.state["messages"]


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
    middle = nodes // 2 - 1
    result: dict[str, Any] = {}
    with clock(result):
        forked = _Conversation(
            folder,
            _canned,
            fork_from_app_id="s",
            fork_from_partition_key="p",
            fork_from_sequence_id=middle,
        )
        forked.turn(nodes)
    assert len(forked.messages()) == nodes + 2, len(forked.messages())
    return result


def grow(folder: str, warm: int, turns: int, seconds: float) -> dict[str, Any]:
    return memory(_Conversation(folder, _canned).turn, warm, turns, seconds)


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
        }
    )
