"""op-jupyter: the durable store, `agent` for turns, `agentic_function`, `agentic_map`.

Durability: every record is written and fsynced before the call returns; a commit for each turn.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _sampling import Sampler, larger
from _work import (
    MODEL,
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


def imported() -> dict[str, Any]:
    """What a program imports to decorate a function, run it and keep a session."""
    result: dict[str, Any] = {}
    with clock(result):
        from op_jupyter import (  # noqa: F401
            Runtime,
            SessionStore,
            agent,
            agentic_function,
            session_context,
        )
    return result


class _Nodes:
    """Nodes in turns of ten, straight into the store."""

    def __init__(self, folder: str) -> None:
        from op_jupyter.store.sessions import SessionStore

        self.store = SessionStore(Path(folder))
        self.session = self.store.open(self.store.create_session("s"))

    def write(self, number: int) -> None:
        from op_jupyter.core.nodes import Node, Turn

        turn = f"t{number // TURN}"
        if number % TURN == 0:
            self.session.begin_turn(Turn(turn, base=self.session.dag.head, subject=turn))
        node = Node(
            f"n{number}",
            "llm",
            "model",
            input={"prompt": TEXTS.asked(number)},
            predecessor=self.session.dag.head,
            metadata={"turn_id": turn},
        )
        self.session.append(node, advance_head=True)
        self.session.update(f"n{number}", output=TEXTS.said(number), status="completed")
        if number % TURN == TURN - 1:
            self.session.end_turn(turn, "completed")
            self.session.flush()

    def fill(self, nodes: int) -> None:
        for number in range(nodes):
            self.write(number)


def append(folder: str, nodes: int, seconds: float) -> dict[str, Any]:
    return timed_nodes(_Nodes(folder).write, nodes, seconds)


def load(folder: str, nodes: int) -> dict[str, Any]:
    written = _Nodes(folder)
    written.fill(nodes)
    written.session.close()
    result: dict[str, Any] = {}
    with clock(result):
        assert len(list(written.store.load("s"))) == nodes
    return result


def size(folder: str, turns: list[int]) -> dict[str, Any]:
    return sizes(_Nodes(folder).write, folder, turns)


class _Conversation:
    """Turns as a script has them."""

    def __init__(self, folder: str) -> None:
        import op_jupyter

        self._agent = op_jupyter.agent
        runtime = op_jupyter.create_runtime("anthropic", model=MODEL)
        store = op_jupyter.SessionStore(Path(folder))
        self._context = op_jupyter.session_context("s", store=store, runtime=runtime)
        self._context.__enter__()

    def turn(self, number: int) -> None:
        """One question and its answer."""
        self._agent(TEXTS.asked(number))


def turn(folder: str, turns: int) -> dict[str, Any]:
    return interleaved(Service().streamed, _Conversation(folder).turn, turns)


def profile_turn(folder: str, turns: int, sessions: int) -> dict[str, Any]:
    """Where the time of a turn goes, and that of the bare request beside it."""

    def parts(asking: Callable[[int], Callable[[int], None]]) -> dict[str, Any]:
        total: Counter[str] = Counter()
        for number in range(sessions):
            ask = asking(number)
            ask(0)
            with Sampler() as sampler:
                for turn in range(1, turns + 1):
                    ask(turn)
            total.update(sampler.parts(turns * sessions))
        return larger(dict(total.most_common()))

    return {
        "a turn": parts(lambda number: _Conversation(f"{folder}/{number}").turn),
        "the bare request": parts(lambda _number: Service().streamed),
    }


def profile_append(folder: str, nodes: int, sessions: int) -> dict[str, Any]:
    """Where the time of a node goes in a session of *nodes*, its making counted in."""
    with Sampler(depth=2) as sampler:
        for number in range(sessions):
            written = _Nodes(f"{folder}/{number}")
            written.fill(nodes)
            written.session.close()
    return {"a node": larger(sampler.parts(nodes * sessions))}


def profile_load(folder: str, nodes: int, times: int) -> dict[str, Any]:
    """Where the time goes when a session is opened."""
    written = _Nodes(folder)
    written.fill(nodes)
    written.session.close()
    with Sampler(depth=2) as sampler:
        for _ in range(times):
            assert len(list(written.store.load("s"))) == nodes
    return {"opening it": larger(sampler.parts(times))}


def talk(folder: str, turns: int) -> dict[str, Any]:
    return talk_on(_Conversation(folder).turn, turns)


def go_on(folder: str, turns: int) -> dict[str, Any]:
    return reopened(lambda folder: _Conversation(folder).turn, folder, turns)


def fork(folder: str, nodes: int) -> dict[str, Any]:
    written = _Nodes(folder)
    written.fill(nodes)
    result: dict[str, Any] = {}
    with clock(result):
        written.session.set_head(f"n{nodes // 2}")
        from op_jupyter.core.nodes import Node, Turn

        written.session.begin_turn(Turn("fork", base=f"n{nodes // 2}", subject="fork"))
        node = Node(
            "fork",
            "llm",
            "model",
            input={"prompt": TEXTS.asked(nodes)},
            predecessor=f"n{nodes // 2}",
            metadata={"turn_id": "fork"},
        )
        written.session.append(node, advance_head=True)
        written.session.update("fork", output=TEXTS.said(nodes), status="completed")
        written.session.end_turn("fork", "completed")
        written.session.flush()
    return result


def noop(folder: str, nodes: int) -> dict[str, Any]:
    import op_jupyter

    written = _Nodes(folder)
    written.fill(nodes)
    written.session.close()

    @op_jupyter.agentic_function
    def nothing(n: int) -> int:
        """Do nothing."""
        return n

    @op_jupyter.agentic_function
    def outer(result: dict[str, Any]) -> None:
        """Call `nothing` often, as a step of a longer function."""
        nothing(1)
        result["ms"] = median_ms(lambda: nothing(1), 200)
        at = time.thread_time()
        for _ in range(200):
            nothing(1)
        result["cpu_ms"] = (time.thread_time() - at) * 1e3 / 200

    store = op_jupyter.SessionStore(Path(folder))
    result: dict[str, Any] = {}
    with op_jupyter.session_context("s", store=store, create_runtime_if_none=False):
        outer(result)
    return result


def grow(folder: str, warm: int, turns: int, seconds: float) -> dict[str, Any]:
    import op_jupyter

    runtime = op_jupyter.Runtime(call=lambda _content: TEXTS.said(0))
    store = op_jupyter.SessionStore(Path(folder))
    with op_jupyter.session_context("s", store=store, runtime=runtime):
        return memory(lambda number: op_jupyter.agent(TEXTS.asked(number)), warm, turns, seconds)


def fan_out(folder: str, calls: int, workers: int, seconds: float) -> dict[str, Any]:
    import op_jupyter

    def think(_content: Any) -> str:
        time.sleep(seconds)
        return "positive"

    @op_jupyter.agentic_function
    def classify(review: str) -> str:
        """Classify a review."""
        return op_jupyter.llm(review)

    store = op_jupyter.SessionStore(Path(folder))
    runtime = op_jupyter.Runtime(call=think)
    reviews = [TEXTS.said(n) for n in range(calls)]
    result: dict[str, Any] = {}
    with (
        op_jupyter.session_context("s", store=store, runtime=runtime) as handle,
        op_jupyter.WorkerPool(workers) as pool,
    ):
        op_jupyter.agentic_map(classify, reviews[: 2 * workers], pool)  # the processes start
        with clock(result):
            op_jupyter.agentic_map(classify, reviews, pool)
        nodes = sum(node.name == "classify" for node in handle.agent.dag)
    assert nodes == calls + 2 * workers, nodes
    return {"ratio": result["ms"] / 1e3 / (calls * seconds / workers)}


if __name__ == "__main__":
    main(
        {
            "import": imported,
            "append": append,
            "load": load,
            "size": size,
            "turn": turn,
            "profile_append": profile_append,
            "profile_load": profile_load,
            "profile_turn": profile_turn,
            "talk": talk,
            "go_on": go_on,
            "fork": fork,
            "noop": noop,
            "memory": grow,
            "fan_out": fan_out,
        }
    )
