"""op-jupyter: the durable store, `agent` for turns, `agentic_function`, `agentic_map`.

Durability: every record is written and fsynced before the call returns; a commit for each turn.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import bare
from _sampling import Sampler, children_cpu_ms, disk_kilobytes, larger
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
        """A node, and the turn around it where it is the first or the last of one."""
        if number % TURN == 0:
            self.begin(number)
        self.enter(number)
        if number % TURN == TURN - 1:
            self.end(number)
            self.session.flush()

    def begin(self, number: int) -> None:
        """The turn of node *number* starts."""
        from op_jupyter.core.nodes import Turn

        turn = f"t{number // TURN}"
        self.session.begin_turn(Turn(turn, base=self.session.dag.head, subject=turn))

    def enter(self, number: int) -> None:
        """A node alone."""
        self.session.append(self._node(number), advance_head=True)
        self.session.update(f"n{number}", output=TEXTS.said(number), status="completed")

    def end(self, number: int) -> None:
        """The turn of node *number* ends; its commit starts."""
        self.session.end_turn(f"t{number // TURN}", "completed")

    def _node(self, number: int) -> Any:
        from op_jupyter.core.nodes import Node

        return Node(
            f"n{number}",
            "llm",
            "model",
            input={"prompt": TEXTS.asked(number)},
            predecessor=f"n{number - 1}" if number else None,
            metadata={"turn_id": f"t{number // TURN}"},
        )

    def write_all(self, numbers: range) -> None:
        for number in numbers:
            self.write(number)

    def lay(self, numbers: range) -> None:
        """The same records of whole turns with two waits for the disk each: not to be measured."""
        from op_jupyter.store.base import Ended, Fill, Tip

        for start in numbers[::TURN]:
            those = range(start, start + TURN)
            self.begin(start)
            self.session.write([Tip(self._node(number)) for number in those])
            filled = [
                Fill(f"n{n}", {"output": TEXTS.said(n), "status": "completed"}) for n in those
            ]
            self.session.write([*filled, Ended(f"t{start // TURN}", "completed")])
        self.session.flush()

    def fill(self, nodes: int) -> None:
        self.write_all(range(nodes))


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


def profile_growth(folder: str, nodes: int, some: int, sessions: int) -> dict[str, Any]:
    """Where the time of a node goes among the first *some* of *nodes*, and among the last."""
    first, last = Sampler(depth=2), Sampler(depth=2)
    for number in range(sessions):
        with first:
            written = _Nodes(f"{folder}/{number}")
            written.write_all(range(some))
        written.lay(range(some, nodes - some))
        with last:
            written.write_all(range(nodes - some, nodes))
        written.session.close()
    return {
        f"a node of the first {some:,}": larger(first.parts(some * sessions)),
        f"a node of the last {some:,}": larger(last.parts(some * sessions)),
    }


def profile_journal(folder: str, nodes: int, sessions: int) -> dict[str, Any]:
    """Where the time of a node goes when nothing is committed, when it is, and with raw writes."""
    raw, journal, commits = Sampler(depth=2), Sampler(depth=2), Sampler(depth=2)
    for number in range(sessions):
        alone = _Nodes(f"{folder}/journal{number}")
        alone.begin(0)
        committed = _Nodes(f"{folder}/commits{number}")
        writers = (
            (raw, bare.writing(f"{folder}/raw{number}")),
            (journal, alone.enter),
            (commits, committed.write),
        )
        for start in range(0, nodes, 5 * TURN):  # in turn: what else goes on hits all alike
            for sampler, write in writers:
                with sampler:
                    for node in range(start, min(start + 5 * TURN, nodes)):
                        write(node)
        alone.session.close()
        committed.session.close()
    named = {"raw": raw, "without commits": journal, "with a commit every 10 nodes": commits}
    return {name: larger(sampler.parts(nodes * sessions)) for name, sampler in named.items()}


def profile_commit(folder: str, nodes: int, commits: int) -> dict[str, Any]:
    """Where the time of a turn's commit goes after *nodes* nodes."""
    written = _Nodes(folder)
    written.lay(range(nodes))
    sampler = Sampler(depth=2)
    for start in range(nodes, nodes + commits * TURN, TURN):
        written.begin(start)
        for number in range(start, start + TURN):
            written.enter(number)
        written.end(start)
        with sampler:
            written.session.flush()
    written.session.close()
    return {"a commit": larger(sampler.parts(commits))}


def profile_disk(folder: str, nodes: int) -> dict[str, Any]:
    """What takes the disk, before and after packing."""
    written = _Nodes(folder)
    written.lay(range(nodes))
    written.session.close()
    before = disk_kilobytes(f"{folder}/s")
    written.store.pack("s")
    return {"as written": larger(before), "packed": larger(disk_kilobytes(f"{folder}/s"))}


def profile_list(folder: str, sessions: int, times: int) -> dict[str, Any]:
    """Where the time goes when *sessions* sessions are listed."""
    from op_jupyter.store.sessions import SessionStore

    one = _Nodes(folder)
    one.fill(TURN)
    one.session.close()
    meta = Path(folder, "s", "meta.json").read_bytes()
    for number in range(1, sessions):
        Path(folder, f"s{number}").mkdir()
        Path(folder, f"s{number}", "meta.json").write_bytes(meta)
    store = SessionStore(Path(folder))
    with Sampler(depth=2) as sampler:
        for _ in range(times):
            store.sessions(limit=50)
    return {"a list": larger(sampler.parts(times))}


def profile_search(folder: str, nodes: int, times: int) -> dict[str, Any]:
    """Where the time of a search goes."""
    from op_jupyter.store.search import SearchIndex

    written = _Nodes(folder)
    written.lay(range(nodes))
    written.session.close()
    index = SearchIndex(Path(folder))
    index.refresh()
    with Sampler(depth=2) as sampler:
        for _ in range(times):
            index.search(TEXTS.said(0).split()[1])
    return {"a search": larger(sampler.parts(times))}


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
    written.lay(range(nodes))
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
    result: dict[str, Any] = {}

    def measured(nothing: Callable[[int], int]) -> None:
        result["ms"] = median_ms(lambda: nothing(1), 200)
        at = time.thread_time()
        for _ in range(200):
            nothing(1)
        result["cpu_ms"] = (time.thread_time() - at) * 1e3 / 200

    _calling_nothing(folder, nodes, measured)
    return result


def profile_noop(folder: str, nodes: int, calls: int) -> dict[str, Any]:
    """Where the time of a call goes that does nothing, waits for the disk counted in."""
    sampler = Sampler(depth=2)

    def sampled(nothing: Callable[[int], int]) -> None:
        with sampler:
            for _ in range(calls):
                nothing(1)

    _calling_nothing(folder, nodes, sampled)
    return {"a call": larger(sampler.parts(calls))}


def _calling_nothing(
    folder: str, nodes: int, measure: Callable[[Callable[[int], int]], None]
) -> None:
    """Let *measure* call a function that does nothing, as a step of a longer one."""
    import op_jupyter

    written = _Nodes(folder)
    written.fill(nodes)
    written.session.close()

    @op_jupyter.agentic_function
    def nothing(n: int) -> int:
        """Do nothing."""
        return n

    @op_jupyter.agentic_function
    def outer() -> None:
        """Call `nothing` often."""
        nothing(1)
        measure(nothing)

    store = op_jupyter.SessionStore(Path(folder))
    with op_jupyter.session_context("s", store=store, create_runtime_if_none=False):
        outer()


def grow(folder: str, warm: int, turns: int, seconds: float) -> dict[str, Any]:
    import op_jupyter

    runtime = op_jupyter.Runtime(call=lambda _content: TEXTS.said(0))
    store = op_jupyter.SessionStore(Path(folder))
    with op_jupyter.session_context("s", store=store, runtime=runtime):
        return memory(lambda number: op_jupyter.agent(TEXTS.asked(number)), warm, turns, seconds)


def fan_out(folder: str, calls: int, workers: int, seconds: float) -> dict[str, Any]:
    result: dict[str, Any] = {}
    _fanned_out(folder, calls, workers, seconds, lambda: clock(result))
    return {"ratio": result["ms"] / 1e3 / (calls * seconds / workers)}


def profile_fan_out(folder: str, calls: int, workers: int, seconds: float) -> dict[str, Any]:
    """Where the time of a call goes at home, and what it takes of the processors, workers' too."""
    sampler, cpu = Sampler(depth=2), {}

    @contextmanager
    def watched() -> Iterator[None]:
        home, children = time.process_time(), children_cpu_ms()
        with sampler:
            yield
        cpu["the process at home, these looks included"] = (
            (time.process_time() - home) * 1e3 / calls
        )
        cpu["the workers"] = (children_cpu_ms() - children) / calls

    _fanned_out(folder, calls, workers, seconds, watched)
    return {"at home, by the clock": larger(sampler.parts(calls)), "of the processors": cpu}


def _fanned_out(
    folder: str,
    calls: int,
    workers: int,
    seconds: float,
    watching: Callable[[], AbstractContextManager[None]],
) -> None:
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
    with (
        op_jupyter.session_context("s", store=store, runtime=runtime) as handle,
        op_jupyter.WorkerPool(workers) as pool,
    ):
        op_jupyter.agentic_map(classify, reviews[: 2 * workers], pool)  # the processes start
        with watching():
            op_jupyter.agentic_map(classify, reviews, pool)
        nodes = sum(node.name == "classify" for node in handle.agent.dag)
    assert nodes == calls + 2 * workers, nodes


if __name__ == "__main__":
    main(
        {
            "import": imported,
            "append": append,
            "load": load,
            "size": size,
            "turn": turn,
            "profile_append": profile_append,
            "profile_commit": profile_commit,
            "profile_disk": profile_disk,
            "profile_fan_out": profile_fan_out,
            "profile_growth": profile_growth,
            "profile_journal": profile_journal,
            "profile_list": profile_list,
            "profile_load": profile_load,
            "profile_noop": profile_noop,
            "profile_search": profile_search,
            "profile_turn": profile_turn,
            "talk": talk,
            "go_on": go_on,
            "fork": fork,
            "noop": noop,
            "memory": grow,
            "fan_out": fan_out,
        }
    )
