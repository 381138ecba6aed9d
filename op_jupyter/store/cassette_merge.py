"""Joining two versions of a cassette that went on from the same one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from op_jupyter.store.cassette_codec import Contents

T = TypeVar("T")


def merged(base: Contents, ours: Contents, theirs: Contents) -> tuple[Contents, list[str]]:
    """Both sides' changes since *base*, and the keys that both changed.

    There ours stays, and what ours dropped and theirs changed.
    """
    providers, _ = _both(base.providers, ours.providers, theirs.providers)
    exchanges, asked = _both(base.exchanges, ours.exchanges, theirs.exchanges)
    decisions, decided = _both(base.decisions, ours.decisions, theirs.decisions)
    provider = theirs.provider if ours.provider in (None, base.provider) else ours.provider
    return Contents(provider, providers, exchanges, decisions), [*asked, *decided]


def _both(
    base: Mapping[str, T], ours: Mapping[str, T], theirs: Mapping[str, T]
) -> tuple[dict[str, T], list[str]]:
    together: dict[str, T] = {}
    in_doubt: list[str] = []
    for key in {**ours, **theirs}:
        before, mine, other = base.get(key), ours.get(key), theirs.get(key)
        doubtful = mine != other and before not in (mine, other)
        if doubtful:
            in_doubt.append(key)
        chosen = other if mine == before or (doubtful and mine is None) else mine
        if chosen is not None:
            together[key] = chosen
    return together, in_doubt
