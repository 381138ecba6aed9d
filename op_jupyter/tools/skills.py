"""Reading skill folders: ``<root>/<name>/SKILL.md`` with YAML front matter."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from op_jupyter.core.paths import looks_like_credentials
from op_jupyter.core.skills import DESCRIPTION_CHARS, NAME, Skill, SkillSet
from op_jupyter.core.updates import clip
from op_jupyter.errors import ConfigurationError

SKILL_FILE: Final = "SKILL.md"
FILE_BYTES: Final = 256 * 1024
FRONT_CHARS: Final = 16_000
"""Of front matter; YAML is slow to read, and in a hostile shape slower."""
MOST_SKILLS: Final = 500

_FRONT: Final = re.compile(
    r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_TEXT: Final = "tag:yaml.org,2002:str"
_Stamp = tuple[int, int, int]


class _BadSkill(ConfigurationError):
    """It cannot be used; says why."""


class SkillFolders:
    """The skills below some *roots*; of two with one name the first root's counts.

    Read anew each time it is asked, but a file that did not change is not parsed again.
    """

    def __init__(self, roots: Sequence[Path], home: Path) -> None:
        self.roots = tuple(roots)
        self._home = home
        self._known: dict[Path, tuple[_Stamp, Skill | str]] = {}

    def read(self) -> SkillSet:
        """The skills there are now.  What is wrong with one is a warning, never an error."""
        found: dict[str, Skill] = {}
        warnings: list[str] = []
        for path in self._files(warnings):
            skill = self._skill(path)
            if isinstance(skill, str):
                warnings.append(f"skill {self._shown(path.parent)} cannot be used: {skill}")
            elif skill.name in found:
                first = found[skill.name].path
                warnings.append(f"skill {skill.name!r} is in {first} and in {skill.path} as well")
            else:
                found[skill.name] = skill
        return SkillSet(tuple(found.values()), tuple(warnings))

    def _files(self, warnings: list[str]) -> Iterator[Path]:
        for root in self.roots:
            try:
                names = sorted(os.listdir(root))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                why = error.strerror or str(error)
                warnings.append(f"skills in {self._shown(root)} cannot be read: {why}")
                continue
            folders = [root / name for name in names if not name.startswith(".")]
            if len(folders) > MOST_SKILLS:
                warnings.append(f"{self._shown(root)} has more than {MOST_SKILLS} folders")
            for folder in folders[:MOST_SKILLS]:
                if os.path.isdir(folder):  # False, too, where nobody may look
                    yield folder / SKILL_FILE

    def _skill(self, path: Path) -> Skill | str:
        """The skill in that file, or why there is none."""
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            known = self._known.get(path)
            if known is not None and known[0] == stamp:
                return known[1]
            if not path.is_file():
                return f"{SKILL_FILE} is no file"
            read: Skill | str = parse_skill(_text(path), self._shown(path))
        except FileNotFoundError:
            return f"there is no {SKILL_FILE}"
        except OSError as error:
            return error.strerror or str(error)
        except _BadSkill as error:
            read = error.message
        self._known[path] = (stamp, read)
        return read

    def _shown(self, path: Path) -> str:
        inside = path.is_relative_to(self._home)
        text = f"~/{path.relative_to(self._home)}" if inside else str(path)
        return _CONTROL.sub("\ufffd", text)


def _text(path: Path) -> str:
    if looks_like_credentials(Path(os.path.realpath(path))):
        raise _BadSkill(f"{SKILL_FILE} is a link to credentials")
    with path.open("rb") as file:
        data = file.read(FILE_BYTES + 1)
    if len(data) > FILE_BYTES:
        raise _BadSkill(f"{SKILL_FILE} is larger than {FILE_BYTES // 1024} KB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _BadSkill(f"{SKILL_FILE} is not UTF-8") from None


def parse_skill(text: str, path: str) -> Skill:
    """The skill that *text* is, with its ``name`` and ``description``; other keys say nothing.

    Raises:
        ConfigurationError: it is none; says what is missing.
    """
    front = _FRONT.match(text)
    if front is None:
        raise _BadSkill("it does not begin with front matter between two lines ---")
    fields = _fields(front.group(1))
    name, description = fields.get("name"), fields.get("description")
    if name is None or not NAME.fullmatch(name):
        raise _BadSkill("its name has to be 1 to 64 of a-z, 0-9, - and _")
    if description is None or not description.strip():
        raise _BadSkill("it has no description")
    line = clip(" ".join(description.split()), DESCRIPTION_CHARS)
    return Skill(name, line, path, text[front.end() :])


def _fields(front: str) -> dict[str, str]:
    """The fields that are texts; of the others nothing is read, so they can do nothing."""
    import yaml  # 20 ms, and only where there are skills

    if len(front) > FRONT_CHARS:
        raise _BadSkill(f"its front matter is longer than {FRONT_CHARS:,} characters")
    try:
        # Nodes alone: making values of them runs into more errors than its own for hostile tags.
        fields = yaml.compose(front, yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = getattr(error, "problem", None) or type(error).__name__
        raise _BadSkill(f"its front matter is not YAML ({problem})") from None
    if not isinstance(fields, yaml.MappingNode):
        raise _BadSkill("its front matter holds no fields")
    return {
        key.value: value.value
        for key, value in fields.value
        if isinstance(key, yaml.ScalarNode)
        and isinstance(value, yaml.ScalarNode)
        and value.tag == _TEXT
    }
