"""The whole permission table: mode x tool x path x rule x whether somebody can be asked.

The expected answers are written down here, from the rules that users are told
(docs/permissions.md), and share nothing with the code that they check but its inputs.  The tools
and the paths are real.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from op_jupyter.core.paths import Places
from op_jupyter.core.permissions import PermissionMode, decide
from op_jupyter.core.rules import parse_rule
from op_jupyter.tools.base import Tool
from op_jupyter.tools.files import file_tools
from op_jupyter.tools.functions import as_tool
from op_jupyter.tools.gate import gate_call, places_of
from op_jupyter.tools.mcp import McpServer, McpTool, ServerConfig
from op_jupyter.tools.sandbox import Sandbox
from op_jupyter.tools.shell import ShellTool

MODES: tuple[PermissionMode, ...] = ("read_only", "accept_edits", "auto")

# What happens in each mode, in the order of MODES, when no rule speaks and somebody can answer.
#   run   it runs
#   ask   a card; any allow rule for the tool lifts it
#   ASK   a card, because it is dangerous; only a rule that names exactly this path or code lifts it
#   NEVER a denial that nothing lifts
READING = {
    "workspace": ("run", "run", "run"),
    "outside": ("run", "run", "run"),
    "sensitive": ("run", "run", "run"),
    "protected": ("run", "run", "run"),
    "secrets": ("ASK", "ASK", "ASK"),
    "credentials": ("ASK", "ASK", "ASK"),
    "link to credentials": ("ASK", "ASK", "ASK"),
}
WRITING = {
    "workspace": ("ask", "run", "run"),
    "outside": ("ASK", "ASK", "ASK"),
    "sensitive": ("ASK", "ASK", "ASK"),
    "secrets": ("ASK", "ASK", "ASK"),
    "credentials": ("ASK", "ASK", "ASK"),
    "link to credentials": ("ASK", "ASK", "ASK"),
    "link to outside": ("ASK", "ASK", "ASK"),
    "protected": ("NEVER", "NEVER", "NEVER"),
    "link to protected": ("NEVER", "NEVER", "NEVER"),
}
RUNNING = {
    "harmless": ("ask", "ask", "run"),
    "dangerous": ("ASK", "ASK", "ASK"),
    "writes outside": ("ASK", "ASK", "ASK"),
    "reads credentials": ("ASK", "ASK", "ASK"),
    "reads outside": ("ask", "ask", "run"),
    "writes protected": ("NEVER", "NEVER", "NEVER"),
}
CALLING = {"any": ("ask", "ask", "run")}
TRUSTED = {"any": ("run", "run", "run")}


def outcome(base: str, rules: str, *, interactive: bool, everything: bool) -> str:
    """What the table above means under rules, without a person, and with the switch for CI."""
    if base == "NEVER" or "deny" in rules:
        return "deny"
    if everything or base == "run":
        return "allow"
    lifted = "exact" in rules or ("broad" in rules and base == "ask")
    if lifted:
        return "allow"
    return "ask" if interactive else "deny"


@dataclass
class Case:
    """One call, and the rules that name exactly it."""

    label: str
    tool: Tool
    arguments: dict[str, Any]
    expected: tuple[str, str, str]
    exact: tuple[str, ...] = field(default_factory=tuple)


@dataclass
class World:
    """A home folder with a workspace in it, and one path of each kind."""

    workspace: Path
    places: Places
    paths: dict[str, str]

    def real(self, kind: str) -> str:
        return os.path.realpath(self.workspace / os.path.expanduser(self.paths[kind]))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    home, store, outside = tmp_path / "home", tmp_path / "store", tmp_path / "outside"
    workspace = home / "work"
    for folder in (workspace / ".git" / "hooks", home / ".ssh", store / "s1", outside):
        folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    links = {"to-key": home / ".ssh" / "id", "to-outside": outside, "to-hooks": ".git/hooks"}
    for name, target in links.items():
        (workspace / name).symlink_to(target)
    paths = {
        "workspace": "src/a.txt",
        "outside": str(outside / "a.txt"),
        "sensitive": ".git/config",
        "secrets": ".env",
        "credentials": "~/.ssh/id",
        "protected": str(store / "s1" / "journal"),
        "link to credentials": "to-key",
        "link to outside": "to-outside/a.txt",
        "link to protected": "to-hooks/pre-commit",
    }
    return World(workspace, places_of(workspace, (store,)), paths)


def plain(column: str) -> str:
    """Compute something of a column."""
    return column


def file_cases(world: World) -> Iterator[Case]:
    more = {
        "write_file": {"text": "x"},
        "edit_file": {"old_text": "a", "new_text": "b"},
        "search_files": {"pattern": "x"},
    }
    for tool in file_tools():
        name = tool.spec.name
        table = READING if tool.effect == "read" else WRITING
        for kind, expected in table.items():
            arguments = {"path": world.paths[kind], **more.get(name, {})}
            exact = [f"{name}({world.real(kind)})"]
            if name in ("delete_file", "move_file") and kind == "link to credentials":
                # The link itself is what is moved or deleted, and it is an ordinary file.
                expected = WRITING["workspace"]
                exact = [f"{name}({world.paths[kind]})"]
            if name == "move_file":
                arguments["to"] = "elsewhere.txt"
                exact.append(f"{name}(elsewhere.txt)")
            yield Case(f"{name} {kind}", tool, arguments, expected, tuple(exact))
            if name == "move_file" and kind != "link to credentials":
                arguments = {"path": "elsewhere.txt", "to": world.paths[kind]}
                yield Case(f"{name} to {kind}", tool, arguments, expected, tuple(exact))


def folder_cases(world: World) -> Iterator[Case]:
    """Everything in a folder that is moved is judged, where it is and where it goes."""
    tool = next(tool for tool in file_tools() if tool.spec.name == "move_file")
    inner = {
        "workspace": "plain/deep/a.txt",
        "secrets": "settings/deep/.env",
        "credentials": "keys/deep/id_rsa",
        "sensitive": "project/.git/config",
        "protected": "hooked/.git/hooks/pre-commit",
    }
    for kind, name in inner.items():
        (world.workspace / name).parent.mkdir(parents=True)
        (world.workspace / name).touch()
        top = Path(name).parts[0]
        below = [path.relative_to(world.workspace) for path in (world.workspace / top).rglob("*")]
        paths = [Path(top), *below]
        exact = [f"move_file({path})" for path in paths]
        exact += [f"move_file({Path('new', *path.parts[1:])})" for path in paths]
        arguments = {"path": top, "to": "new"}
        yield Case(f"move_file of {kind}", tool, arguments, WRITING[kind], tuple(exact))


def code_cases(world: World) -> Iterator[Case]:
    outside, protected = world.paths["outside"], world.paths["protected"]
    scripts = {
        "harmless": "ls -l | sort > out.txt",
        "dangerous": "find . -name '*.o' | xargs rm -r",
        "writes outside": f"echo x > {outside}",
        "reads credentials": "cat ~/.ssh/id",
        "reads outside": f"cat {outside}",
        "writes protected": f"echo x >> {protected}",
    }
    for kind, script in scripts.items():
        shell = ShellTool(sandbox=Sandbox())
        yield Case(
            f"shell {kind}", shell, {"command": script}, RUNNING[kind], (f"shell({script})",)
        )


def other_cases(world: World) -> Iterator[Case]:
    server = McpServer(ServerConfig("srv", "x"), world.workspace)

    class Listed:
        name, title, description, input_schema = "look", None, "Look.", {"properties": {}}

    yield Case("function", as_tool(plain), {"column": "x"}, CALLING["any"], ("plain",))
    yield Case("mcp", McpTool(server, Listed), {}, CALLING["any"], ("srv__look",))
    trusted = as_tool(plain, trusted=True)
    yield Case("trusted function", trusted, {"column": "x"}, TRUSTED["any"], ("plain",))


RULES = ("none", "allow broad", "allow exact", "deny broad", "deny exact", "allow exact deny broad")


def rules_for(case: Case, which: str) -> list[Any]:
    name = case.tool.spec.name
    rules = [parse_rule("another_tool"), parse_rule("another_tool", "deny")]
    if "allow broad" in which:
        rules.append(parse_rule(name))
    if "allow exact" in which:
        rules += [parse_rule(text) for text in case.exact]
    if "deny broad" in which:
        rules.append(parse_rule(f"{name}(*)", "deny"))
    if "deny exact" in which:
        rules += [parse_rule(text, "deny") for text in case.exact]
    return rules


def test_every_cell_of_the_table_is_answered_as_it_says(world: World) -> None:
    cases = [
        *file_cases(world),
        *folder_cases(world),
        *code_cases(world),
        *other_cases(world),
    ]
    wrong: list[str] = []
    asked = 0
    for case, (index, mode), which, interactive, everything in product(
        cases, enumerate(MODES), RULES, (True, False), (True, False)
    ):
        verdict = decide(
            gate_call(case.tool, case.arguments, world.workspace),
            places=world.places,
            mode=mode,
            rules=rules_for(case, which),
            interactive=interactive,
            everything=everything,
        )
        expected = outcome(
            case.expected[index], which, interactive=interactive, everything=everything
        )
        asked += 1
        if verdict.kind != expected:
            told = f"{case.label}, {mode}, {which}, {interactive=}, {everything=}"
            wrong.append(f"{told}: {verdict.kind} ({verdict.reason}), expected {expected}")
    assert wrong == []
    assert asked > 4_000


def test_python_code_is_judged_as_the_table_says(world: World) -> None:
    codes = {
        "harmless": "print(1)",
        "dangerous": "import shutil\nshutil.rmtree('x')",
        "writes outside": f"open({world.paths['outside']!r}, 'w')",
        "reads credentials": "import os\nos.system('cat ~/.ssh/id')",
        "reads outside": f"open({world.paths['outside']!r}).read()",
        "writes protected": f"open({world.paths['protected']!r}, 'a')",
    }

    class Python:
        effect, trusted, timeout = "execute", False, None
        spec = as_tool(plain).spec

        def describe(self, arguments: Any, workspace: Path) -> Any:
            from op_jupyter.tools.base import CallDescription

            return CallDescription(code=arguments["code"], language="python")

    for kind, (index, mode) in product(codes, enumerate(MODES)):
        call = gate_call(Python(), {"code": codes[kind]}, world.workspace)  # type: ignore[arg-type]
        verdict = decide(call, places=world.places, mode=mode, rules=[], interactive=True)
        expected = outcome(RUNNING[kind][index], "none", interactive=True, everything=False)
        assert verdict.kind == expected, (kind, mode, verdict)
