"""A process that writes to a session until it is killed, and says what was acknowledged.

    python -m support.store_writer ROOT SESSION SEED

Each acknowledged change is one line on standard output: the node, and its status.
"""

import random
import sys

from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node, Turn, TurnKind
from op_jupyter.store.sessions import SessionStore


def main(root: str, session_id: str, seed: str) -> None:
    chance = random.Random(int(seed))
    store = SessionStore(root)
    if not store.exists(session_id):
        store.create_session(session_id)
    session = store.open(session_id)
    say("open", "-")
    number = len(session.dag)
    while True:
        turn_id = f"{seed}.{number}"
        kind: TurnKind = chance.choice(["agent", "call"])
        base = chance.choice([session.dag.head, session.dag.head, any_node(session.dag, chance)])
        session.begin_turn(Turn(turn_id, kind=kind, base=base, subject=f"do number {number}"))
        for _ in range(chance.randrange(1, 5)):
            number += 1
            name = f"n{number}"
            text = "x" * chance.choice([10, 1000, 20_000, 100_000])
            node = Node(
                name, "llm", "model", input=text, predecessor=base, metadata={"turn_id": turn_id}
            )
            session.append(node, advance_head=kind == "agent")
            say(name, "running")
            base = name if kind == "agent" else base
            session.update(name, output=text, status="completed")
            say(name, "completed")
        session.end_turn(turn_id, "completed")
        say(turn_id, "ended")
        if chance.random() < 0.2:
            session.flush()
            say(turn_id, "committed")


def any_node(dag: Dag, chance: random.Random) -> str | None:
    return chance.choice(list(dag.nodes)) if dag.nodes else None


def say(what: str, status: str) -> None:
    print(what, status, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
