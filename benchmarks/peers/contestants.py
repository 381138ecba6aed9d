"""Who is compared: each system, what its environment holds, and how durable what it keeps is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.prepare import KERNELS, ROOT

SYSTEMS: Final = Path(__file__).resolve().parent / "systems"
"""Where their scripts are."""


@dataclass(frozen=True)
class System:
    """A contestant.

    Attributes:
        script: what speaks for it, in ``systems/``.
        requirements: what its environment holds.
        what: what it is, for those who do not know it.
        durability: what is safe when its call returns.
        cell: how it is loaded and asked in a notebook; empty: it has no magic.
    """

    key: str
    title: str
    script: str
    requirements: tuple[str, ...]
    durability: str
    what: str = ""
    cell: tuple[str, ...] = ()

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return KERNELS / f"bench-{self.key}" / "bin" / "python"


BARE = System(
    "op-jupyter",
    "limit",
    "bare.py",
    (),
    "`write` + `fsync` of the same bytes",
    "no system: the same bytes written or parsed, with nothing around that",
)
SYSTEMS_ALL = (
    System(
        "op-jupyter",
        "op-jupyter",
        "op_jupyter_store.py",
        (f"-e{ROOT}",),
        "each record written and fsynced; a git commit per turn, made in the process",
        "this project: sessions that last, turns and functions, in scripts and notebooks",
        (
            "%load_ext openprogram",
            '%config AgentMagics.provider = "anthropic"',
            '%config AgentMagics.model = "claude-sonnet-5-5"',
            "%%agent --tools none\n{prompt}",
        ),
    ),
    System(
        "openprogram",
        "openprogram 0.5.0",
        "openprogram_store.py",
        ("openprogram==0.5.0",),
        "files renamed, no fsync; a git commit per turn, by the program `git`",
        "the package whose sessions and interface op-jupyter goes on from",
    ),
    System(
        "langgraph",
        "langgraph + sqlite",
        "langgraph_sqlite.py",
        ("langgraph>=1,<2", "langgraph-checkpoint-sqlite>=3,<4", "anthropic>=2.14,<3"),
        "SQLite, WAL, synchronous=FULL: a transaction per checkpoint",
        "graphs of agents; `SqliteSaver` checkpoints the messages after each step",
    ),
    System(
        "burr",
        "apache-burr + sqlite",
        "burr_sqlite.py",
        ("apache-burr>=0.43,<0.44", "anthropic>=2.14,<3"),
        "SQLite, rollback journal, synchronous=FULL: a transaction per action",
        "state machines; `SQLitePersister` saves the state after each action",
    ),
    System(
        "jupyter-ai",
        "jupyter-ai magics",
        "",
        ("jupyter-ai-magic-commands==0.0.4", "ipykernel<8"),
        "nothing is kept",
        "the `%%ai` magic of Jupyter AI: a model asked from a cell",
        (
            "%load_ext jupyter_ai_magic_commands",
            "%ai alias bench anthropic/claude-sonnet-5-5 --api-base {url}",
            "%%ai bench\n{prompt}",
        ),
    ),
)
OURS = SYSTEMS_ALL[0]
