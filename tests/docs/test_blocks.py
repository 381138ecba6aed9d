"""The Python of README and docs runs: each page's blocks, in order, in a notebook of their own."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from shells import Shell

from op_jupyter import SessionStore, llm, session_context
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply, last_text, text

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK: Final = re.compile(
    r"(?:^<!-- not run: (?P<why>.+) -->\n)?^```(?P<kind>\S*)\n(?P<code>.*?)^```$", re.M | re.S
)
SESSION: Final = "nb-1308b8b41fbc"
"""The session that the pages resume."""

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
FILES: Final[Mapping[str, str]] = {
    "reviews.py": '''\
from op_jupyter import agentic_function, llm

@agentic_function
def classify(review: str) -> str:
    """Classify the sentiment of a review."""
    return llm(review)
''',
    ".agents/skills/plots/SKILL.md": "---\nname: plots\ndescription: How plots look.\n---\nBlue.\n",
}


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


def fitting(schema: Mapping[str, Any]) -> Any:
    """A value that *schema* allows."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: fitting(each) for name, each in schema["properties"].items()}
        case "integer":
            return 4
        case _:
            return "good"


def answer(body: Mapping[str, Any]) -> Reply:
    """A model that says something to everything, in the form that it is asked for."""
    _, asked, schema = last_text(body).partition("It must fit this JSON Schema:\n")
    return Reply([text(json.dumps(fitting(json.loads(schema))) if asked else "Here you are.")])


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A shell in a folder with the lessons' data, a model service, and a session of yesterday."""
    shutil.copytree(ROOT / "notebooks" / "data", tmp_path / "data")
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / "config.toml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("MODEL", "REPLAY", "CASSETTE", "MODE"):
        monkeypatch.delenv(f"OPENPROGRAM_{name}", raising=False)
    with FakeMessages() as fake:
        fake.set_default(answer)
        for name, value in {
            "ANTHROPIC_API_KEY": API_KEY,
            "ANTHROPIC_BASE_URL": fake.url,
            "HOME": str(tmp_path),
            "OPENPROGRAM_CONFIG": str(tmp_path / "config.toml"),
            "OPENPROGRAM_HOME": str(tmp_path / "sessions"),
            "OPENPROGRAM_PROVIDER": "anthropic",
        }.items():
            monkeypatch.setenv(name, value)
        with session_context(SESSION, store=SessionStore(tmp_path / "sessions")):
            llm("What was there yesterday?")
        shell = Shell(tmp_path / "ipython")
        yield shell
        shell.run("from openprogram import set_ask_handler\nset_ask_handler(None)")
        shell.run("%unload_ext openprogram")
        shell.end()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem
)
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
