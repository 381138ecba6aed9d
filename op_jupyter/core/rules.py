"""Permission rules: their text, and what they match.

    tool                  every call of the tool
    tool(path glob)       calls that touch only such paths; relative ones start at the workspace
    tool(*)               any code, any path
    tool(exact code)      exactly this code; code is never a pattern, so that a ``*`` in it
                          cannot widen the rule

How paths are written: `core.globs`; ``folder/`` is ``folder/**``.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import PurePath
from typing import Final, Literal, TypeAlias

from op_jupyter.core.globs import glob
from op_jupyter.core.paths import Places
from op_jupyter.core.values import dataclass
from op_jupyter.errors import InvalidRule

RuleKind: TypeAlias = Literal["allow", "deny"]

_RULE: Final = re.compile(r"(?P<tool>[A-Za-z_][A-Za-z0-9_.-]*)(?:\((?P<pattern>.*)\))?", re.DOTALL)
_WILDCARD: Final = re.compile(r"(?<!\\)(?:\\\\)*[*?]")


@dataclass(frozen=True, slots=True)
class Rule:
    """One allow or deny rule.

    Attributes:
        pattern: what stands in the parentheses; None: none.
        origin: where it comes from, for `%agent permissions`: ``session``, ``config``, …
    """

    kind: RuleKind
    tool: str
    pattern: str | None = None
    origin: str = "session"

    @property
    def text(self) -> str:
        """The rule as a person writes it; `parse_rule` reads it back."""
        return self.tool if self.pattern is None else f"{self.tool}({self.pattern})"

    @property
    def covers_everything(self) -> bool:
        """Whether it speaks of every call of the tool."""
        return self.pattern in (None, "*")

    def matches_code(self, code: str) -> bool:
        """Whether it speaks of *code*."""
        return self.covers_everything or self.names_code(code)

    def names_code(self, code: str) -> bool:
        """Whether it names exactly *code*."""
        return self.pattern is not None and self.pattern.strip() == code.strip()

    def matches_path(self, path: PurePath, places: Places) -> bool:
        """Whether it speaks of *path*."""
        return self.covers_everything or path_matches(self.pattern or "", path, places)

    def names_path(self, path: PurePath, places: Places) -> bool:
        """Whether it names exactly *path*."""
        if self.pattern is None or self.pattern.endswith("/") or _WILDCARD.search(self.pattern):
            return False
        return path_matches(self.pattern, path, places)


def parse_rule(text: str, kind: RuleKind = "allow", origin: str = "session") -> Rule:
    """The rule that *text* says.

    Raises:
        InvalidRule: it is not written like a rule; the message shows how rules are written.
    """
    text = text.strip()
    found = _RULE.fullmatch(text)
    if found is None:
        raise InvalidRule(
            f"{_short(text)!r} is not a rule: write tool, tool(path) or tool(*), "
            "for example edit_file(src/**) or python(*)",
            rule=text,
        )
    if found["pattern"] is not None and not found["pattern"].strip():
        raise InvalidRule(
            f"the parentheses of rule {text!r} are empty: write {found['tool']} alone for "
            f"every call, or {found['tool']}(path) for some",
            rule=text,
        )
    return Rule(kind, found["tool"], found["pattern"], origin)


def path_matches(pattern: str, path: PurePath, places: Places) -> bool:
    """Whether the absolute *path* fits *pattern*; ``folder/**`` fits the folder itself too."""
    return glob(_absolute(pattern, places))(str(path))


def literal_folder(pattern: str, places: Places) -> tuple[str, str]:
    """*pattern* as the path up to its first wildcard, and what follows that, from a slash on."""
    names = _absolute(pattern, places).split("/")
    wild = next((i for i, name in enumerate(names) if _WILDCARD.search(name)), len(names))
    plain = re.sub(r"\\(.)", r"\1", "/".join(names[:wild]), flags=re.DOTALL)
    return plain or "/", "".join(f"/{name}" for name in names[wild:])


def moved_pattern(folder: str, rest: str) -> str:
    """The pattern that `literal_folder` takes apart into *folder* and *rest*."""
    return _escape(folder.rstrip("/")) + rest or "/"


def exact_pattern(path: PurePath, places: Places) -> str:
    """The pattern that names *path* and nothing else."""
    shown = places.show(path)
    if shown.startswith("~") and path.is_relative_to(places.workspace):
        shown = f"./{shown}"
    return _escape(shown)


def folder_pattern(path: PurePath, places: Places) -> str:
    """The pattern for the folder of *path*; for the file alone where its folder is too much.

    Too much are the workspace itself, the home folder and what is above them.
    """
    folder = path.parent
    if places.workspace.is_relative_to(folder) or places.home.is_relative_to(folder):
        return exact_pattern(path, places)
    return f"{exact_pattern(folder, places)}/**"


def _absolute(pattern: str, places: Places) -> str:
    """*pattern* from the root on, without ``.``, ``..`` and empty names, which no path has.

    What ends with a slash is a folder with all that is in it.
    """
    if pattern == "~" or pattern.startswith("~/"):
        whole = _escape(str(places.home)) + pattern[1:]
    else:
        whole = posixpath.join(_escape(str(places.workspace)), pattern)
    plain = posixpath.normpath(whole).strip("/")
    return f"/{plain}/**".replace("//", "/") if pattern.endswith("/") else f"/{plain}"


def _escape(text: str) -> str:
    return re.sub(r"([*?\\])", r"\\\1", text)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
