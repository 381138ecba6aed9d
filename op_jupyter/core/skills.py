"""Skills: instructions in a folder, which the model is told of and a person can send along.

A skill is text.  It allows nothing: what it asks for passes the gate like anything else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from op_jupyter.core.values import dataclass

CATALOG_CHARS: Final = 8_000
SKILL_TOKENS: Final = 8_000
DESCRIPTION_CHARS: Final = 1_024
NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

_HEADER: Final = "Read the file of a skill before you do what it is for:"


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill.

    Attributes:
        description: what it is for, in one line.
        path: of its ``SKILL.md``, as people and the model are told it.
        text: what stands below the front matter.
    """

    name: str
    description: str
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class SkillSet:
    """The skills there are, each name once, and a sentence for each that cannot be used."""

    skills: Sequence[Skill] = ()
    warnings: Sequence[str] = ()

    def get(self, name: str) -> Skill | None:
        """The skill of that name, or None."""
        return next((skill for skill in self.skills if skill.name == name), None)


def catalog(skills: Sequence[Skill], without: Collection[str] = ()) -> str:
    """The skills that the model is told of, a line each; "" when there are none.

    Whole lines are dropped where it would grow too long; it says how many.
    """
    lines = [
        f"- {skill.name}: {skill.description} ({skill.path})"
        for skill in skills
        if skill.name not in without
    ]
    if not lines:
        return ""
    kept: list[str] = []
    room = CATALOG_CHARS - len(_HEADER) - 40
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            kept.append(f"… {len(lines) - len(kept)} more are not listed")
            break
        kept.append(line)
    return "\n".join([_HEADER, *kept])


def sent_text(skill: Skill) -> str:
    """*skill* as it is told before a prompt that asks for it."""
    return f"For this, follow the skill {skill.name} ({skill.path}):\n\n{skill.text.strip()}"


def too_long(skill: Skill) -> str:
    """Why *skill* cannot be sent along, or ""."""
    tokens = len(skill.text.encode("utf-8", "replace")) // 4
    if tokens < SKILL_TOKENS:
        return ""
    return (
        f"skill {skill.name!r} has about {tokens:,} tokens, and one that is sent along has to be "
        f"under {SKILL_TOKENS:,}; move its details into files beside {skill.path}"
    )
