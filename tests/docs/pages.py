"""The pages that a reader follows, and what is on the disk of one who does."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from op_jupyter.testing.fake_messages import Reply, last_text, text

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = [ROOT / "README.md", ROOT / "notebooks" / "README.md", *sorted(DOCS.glob("*.md"))]
BLOCK: Final = re.compile(
    r"(?:^<!-- not run: (?P<why>.+) -->\n)?^```(?P<kind>\S*)\n(?P<code>.*?)^```$", re.M | re.S
)
SESSION: Final = "nb-1308b8b41fbc"
"""The session that the pages resume."""

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


def name_of(page: Path) -> str:
    """What a page is called in the name of a test."""
    return str(page.relative_to(ROOT).with_suffix(""))


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
    asked, in_json, schema = last_text(body).partition("It must fit this JSON Schema:\n")
    if in_json:
        return Reply([text(json.dumps(fitting(json.loads(schema))))])
    return Reply([text("positive" if "sentiment" in asked else "Here you are.")])
