"""The Python of README and docs runs: each page's blocks, in order, in a notebook of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from docs.pages import BLOCK, PAGES, name_of
from shells import Shell

GIVEN: Final[Mapping[str, str]] = {
    "context": "%%agent\nWhat is there?",
    "functions": "reviews = ['A great film.']",
    "index": "import pandas as pd\n\ndf = pd.DataFrame({'body_mass_g': [3750.0]})",
    "values-and-questions": """\
from openprogram import set_ask_handler
from pydantic import BaseModel

class Trip(BaseModel):
    city: str
    days: int

def refund() -> str:
    "Give the money back."
    return "refunded"

def replace() -> str:
    "Send another one."
    return "replaced"

def person(question):
    match question.kind:
        case "form": return {"city": "Bern", "days": 3}
        case "confirm": return True
        case _: return ["a", "c"] if question.multi else "red"

set_ask_handler(person)
""",
}
"""What a page takes for granted."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of Python or magics; *why* it is not run, if it is not."""

    code: str
    why: str | None


def blocks(page: Path) -> list[Block]:
    """Those that a reader would run in a notebook."""
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [
        Block(match["code"], match["why"])
        for match in found
        if match["kind"] == "python"
        or (not match["kind"] and match["code"].startswith("%") and "─" not in match["code"])
    ]


@pytest.fixture
def reader(home: Path) -> Iterator[Shell]:
    """A shell in the reader's home."""
    shell = Shell(home / "ipython")
    yield shell
    shell.run("from openprogram import set_ask_handler\nset_ask_handler(None)")
    shell.run("%unload_ext openprogram")
    shell.end()


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name_of)
def test_the_blocks_of_a_page_run_in_their_order(page: Path, reader: Shell) -> None:
    reader.value("%load_ext openprogram")
    reader.value(GIVEN.get(page.stem, ""))
    for block in blocks(page):
        if block.why is None:
            reader.value(block.code)


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    assert len([block for page in PAGES for block in blocks(page) if block.why]) <= 2
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    marks = re.findall(r"^<!-- not run: .{10,} -->\n(?=```)", text, re.M)
    assert len(marks) == text.count("not run:")
