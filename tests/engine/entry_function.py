"""The functions that `test_entry_points` calls from everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any

from op_jupyter import agentic_function, llm


class Kind(Enum):
    FILM = "film"
    BOOK = "book"


@dataclass(frozen=True)
class Case:
    """What is to be classified; a set has another order in each process."""

    review: str
    kind: Kind
    seen: date
    tags: frozenset[str]
    price: Decimal | None = None


CASE = Case(
    "A great film — I'd see it “again”.\nWould you?",
    Kind.FILM,
    date(2026, 2, 3),
    frozenset({"owls", "war", "peace", "night", "day"}),
    Decimal("1.50"),
)


@agentic_function
def classify(case: Case, strict: bool = False) -> str:
    """Classify the sentiment of a review.

    Answer with one word: positive, negative or neutral.
    """
    return weigh(case, {"of": [case.tags, {case.kind}], "by": classify}, object(), b"\x00\x01", 0.1)


@agentic_function
def weigh(case: Case, notes: dict[str, Any], odd: object, data: bytes, weight: float) -> str:
    """Weigh what speaks for it, and what against."""
    return llm(case.review)
