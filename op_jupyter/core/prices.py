"""What tokens cost, by the prices that the user's file names: we know none ourselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from op_jupyter.core.messages import Usage
from op_jupyter.core.nodes import Node
from op_jupyter.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Price:
    """Of one model, for a million tokens, in whatever currency the user thinks in.

    Attributes:
        cache_read, cache_write: of cached input; None: as any input.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def of(self, usage: Usage) -> float:
        """What *usage* costs."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        parts = (
            (max(0, plain), self.input),
            (usage.cache_read_tokens, read),
            (usage.cache_write_tokens, write),
            (usage.output_tokens, self.output),
        )
        return sum(tokens * price for tokens, price in parts) / 1_000_000


@dataclass(frozen=True, slots=True)
class Spent:
    """The calls of one model."""

    model: str
    calls: int = 0
    usage: Usage = field(default_factory=Usage)


def spent(nodes: Iterable[Node]) -> list[Spent]:
    """What the model calls among *nodes* took, by model, in the order of their first calls."""
    found: dict[str, Spent] = {}
    for node in nodes:
        if node.role != "llm" or _INPUT not in node.metadata:
            continue
        before = found.get(node.name, Spent(node.name))
        found[node.name] = Spent(node.name, before.calls + 1, _sum(before.usage, node.metadata))
    return list(found.values())


_INPUT: Final = "gen_ai.usage.input_tokens"
_KEYS: Final = (
    _INPUT,
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_creation.input_tokens",
)


def _sum(usage: Usage, metadata: Mapping[str, object]) -> Usage:
    more = [value if isinstance(value := metadata.get(key), int) else 0 for key in _KEYS]
    return Usage(
        usage.input_tokens + more[0],
        usage.output_tokens + more[1],
        usage.cache_read_tokens + more[2],
        usage.cache_write_tokens + more[3],
    )
