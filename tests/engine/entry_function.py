"""The function that `test_entry_points` calls from everywhere."""

from __future__ import annotations

from op_jupyter import agentic_function, llm


@agentic_function
def classify(review: str, strict: bool = False) -> str:
    """Classify the sentiment of a review.

    Answer with one word: positive, negative or neutral.
    """
    return llm(review)
