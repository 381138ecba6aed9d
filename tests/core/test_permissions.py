"""The permission gate: every step of the decision order, and that no step can be skipped."""

from __future__ import annotations

from itertools import product
from pathlib import PurePosixPath as P
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from op_jupyter.core.danger import CodeReading, Touch
from op_jupyter.core.paths import PathUse, Places
from op_jupyter.core.permissions import (
    Effect,
    GateCall,
    PermissionMode,
    Verdict,
    build_request,
    decide,
)
from op_jupyter.core.rules import parse_rule

PLACES = Places(P("/home/ada/work"), P("/home/ada"), (P("/home/ada/sessions"),))
MODES = get_args(PermissionMode)

HARMLESS = "df = 1\nprint(df)"
DELETING = "import shutil\nshutil.rmtree('build')"


def use(path: str, *, write: bool = False, named: str | None = None) -> PathUse:
    return PathUse(PLACES.absolute(path), PLACES.absolute(named or path), write)


def code(text: str) -> GateCall:
    return GateCall("python", "execute", {"code": text}, code=text, language="python")


def edit(path: str, **more: Any) -> GateCall:
    return GateCall("edit_file", "write", {"path": path}, paths=(use(path, write=True),), **more)


def read(path: str) -> GateCall:
    return GateCall("read_file", "read", {"path": path}, paths=(use(path),))


def function(**more: Any) -> GateCall:
    return GateCall("column_median", "execute", {"column": "x"}, **more)


def judge(
    call: GateCall,
    mode: PermissionMode = "accept_edits",
    *,
    allow: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
    interactive: bool = True,
) -> Verdict:
    rules = [parse_rule(t) for t in allow] + [parse_rule(t, "deny") for t in deny]
    return decide(call, places=PLACES, mode=mode, rules=rules, interactive=interactive)


MODE_TABLE = [
    # call, read_only, accept_edits, auto
    (read("a.csv"), "allow", "allow", "allow"),
    (read(".vscode/settings.json"), "allow", "allow", "allow"),
    (read("/data/a.csv"), "allow", "allow", "allow"),
    (read(".env"), "ask", "ask", "ask"),
    (read(".env.example"), "allow", "allow", "allow"),
    (read("~/.ssh/config"), "ask", "ask", "ask"),
    (read("~/.local/share/jupyter/runtime/jpserver-1.json"), "ask", "ask", "ask"),
    (read("/etc/shadow-"), "ask", "ask", "ask"),
    (read("/proc/self/environ"), "ask", "ask", "ask"),
    (GateCall("inspect", "read"), "allow", "allow", "allow"),
    (edit("src/a.py"), "ask", "allow", "allow"),
    (edit("/etc/hosts"), "ask", "ask", "ask"),
    (edit("../other/a.py"), "ask", "ask", "ask"),
    (edit(".git/config"), "ask", "ask", "ask"),
    (edit(".env.local"), "ask", "ask", "ask"),
    (edit(".idea/x.xml"), "ask", "ask", "ask"),
    (edit(".venv/bin/activate"), "ask", "ask", "ask"),
    (edit("env/lib/python3.12/site-packages/x.pth"), "ask", "ask", "ask"),
    (edit("~/.bashrc"), "ask", "ask", "ask"),
    (edit("~/.netrc"), "ask", "ask", "ask"),
    (edit(".git/hooks/pre-commit"), "deny", "deny", "deny"),
    (edit("sub/.git/modules/x/hooks/post-merge"), "deny", "deny", "deny"),
    (edit(".GIT/Hooks/pre-commit"), "deny", "deny", "deny"),
    (edit(".agents/skills/x/SKILL.md"), "deny", "deny", "deny"),
    (edit("~/sessions/s1/journal"), "deny", "deny", "deny"),
    (GateCall("save", "write"), "ask", "ask", "allow"),
    (code(HARMLESS), "ask", "ask", "allow"),
    (code(DELETING), "ask", "ask", "ask"),
    (code("open('/etc/hosts', 'w')"), "ask", "ask", "ask"),
    (code("open('out.txt', 'w')"), "ask", "ask", "allow"),
    (code("import os; os.system('echo x > $HOME/.profile')"), "ask", "ask", "ask"),
    (code("import os; os.system('cat ~/.aws/credentials')"), "ask", "ask", "ask"),
    (code("import pandas as pd; pd.read_csv('/data/a.csv')"), "ask", "ask", "allow"),
    (code("open('.env').read()"), "ask", "ask", "ask"),
    (code("open('/home/ada/sessions/s1/x', 'w')"), "deny", "deny", "deny"),
    (function(), "ask", "ask", "allow"),
    (function(trusted=True), "allow", "allow", "allow"),
    (GateCall("fetch", "network"), "ask", "ask", "allow"),
    (GateCall("update_plan", "control"), "allow", "allow", "allow"),
]


@pytest.mark.parametrize(
    ("call", "mode", "kind"),
    [
        pytest.param(row[0], mode, kind, id=f"{row[0].tool}-{row[0].arguments}-{mode}")
        for row in MODE_TABLE
        for mode, kind in zip(MODES, row[1:], strict=True)
    ],
)
def test_without_rules_the_mode_decides(call: GateCall, mode: PermissionMode, kind: str) -> None:
    assert judge(call, mode).kind == kind


@pytest.mark.parametrize(
    ("call", "allow", "kind"),
    [
        (code(HARMLESS), "python", "allow"),
        (code(HARMLESS), "python(*)", "allow"),
        (code(HARMLESS), f"python({HARMLESS})", "allow"),
        (code(HARMLESS), f"python({HARMLESS}\nx)", "ask"),
        (code(HARMLESS), "edit_file", "ask"),
        (code("2 * 3"), "python(2 * 3)", "allow"),
        (code("2 + evil() + 3"), "python(2 * 3)", "ask"),
        (code(DELETING), "python", "ask"),
        (code(DELETING), "python(*)", "ask"),
        (code(DELETING), f"python({DELETING})", "allow"),
        (code(DELETING), f"python({DELETING}\nshutil.rmtree('src'))", "ask"),
        (edit("/etc/hosts"), "edit_file", "ask"),
        (edit("/etc/hosts"), "edit_file(*)", "ask"),
        (edit("/etc/hosts"), "edit_file(/etc/**)", "ask"),
        (edit("/etc/hosts"), "edit_file(/etc/hosts)", "allow"),
        (edit("/etc/hosts"), "write_file(/etc/hosts)", "ask"),
        (edit(".env"), "edit_file(.env)", "allow"),
        (edit("~/.bashrc"), "edit_file(~/.bashrc)", "allow"),
        (edit("~/.bashrc"), "edit_file(/home/ada/.bashrc)", "allow"),
        (read("~/.ssh/id_rsa"), "read_file(~/.ssh/*)", "ask"),
        (read("~/.ssh/id_rsa"), "read_file(~/.ssh/id_rsa)", "allow"),
        (read("/data/a.csv"), "read_file(/data/**)", "allow"),
        (read("/data/a.csv"), "read_file", "allow"),
        (edit(".git/hooks/pre-commit"), "edit_file(.git/hooks/pre-commit)", "deny"),
        (function(), "column_median", "allow"),
        (function(), "column_median(*)", "allow"),
        (function(), "column_median(x)", "ask"),
    ],
)
def test_an_allow_rule_allows_what_it_says_and_lifts_a_danger_only_by_name(
    call: GateCall, allow: str, kind: str
) -> None:
    assert judge(call, "accept_edits", allow=(allow,)).kind == kind


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("call", "deny"),
    [
        (code(HARMLESS), "python"),
        (code(HARMLESS), f"python({HARMLESS})"),
        (edit("src/a.py"), "edit_file(src/**)"),
        (read("a.csv"), "read_file(*.csv)"),
        (function(trusted=True), "column_median"),
        (GateCall("update_plan", "control"), "update_plan"),
    ],
)
def test_a_deny_rule_beats_every_allow_and_every_mode(
    call: GateCall, deny: str, mode: PermissionMode
) -> None:
    verdict = judge(call, mode, allow=(call.tool, deny), deny=(deny,))
    assert (verdict.kind, verdict.by) == ("deny", "rule")
    assert deny in verdict.reason


def test_a_deny_rule_counts_for_the_name_and_for_what_the_name_resolves_to() -> None:
    call = GateCall("read_file", "read", paths=(use("real.csv", named="link.csv"),))
    assert judge(call, deny=("read_file(link.csv)",)).kind == "deny"
    assert judge(call, deny=("read_file(real.csv)",)).kind == "deny"
    assert judge(call, deny=("read_file(other.csv)",)).kind == "allow"


def test_an_allow_rule_cannot_be_carried_elsewhere_by_a_symlink() -> None:
    call = GateCall(
        "edit_file", "write", paths=(use("/srv/data", write=True, named="src/innocent.txt"),)
    )
    assert judge(call, "auto", allow=("edit_file(src/**)",)).kind == "ask"
    assert judge(call, "auto", allow=("edit_file(src/innocent.txt)",)).kind == "ask"


def test_a_symlink_with_a_sensitive_name_is_judged_by_that_name_too() -> None:
    call = GateCall("edit_file", "write", paths=(use("config/dev", write=True, named=".env"),))
    assert judge(call, "auto").by == "danger"


@pytest.mark.parametrize("mode", MODES)
def test_trusted_code_still_asks_when_it_is_dangerous(mode: PermissionMode) -> None:
    call = GateCall("python", "execute", code=DELETING, language="python", trusted=True)
    assert judge(call, mode).by == "danger"


def test_several_paths_need_a_rule_each() -> None:
    call = GateCall("move", "write", paths=(use("/data/a", write=True), use("b/c", write=True)))
    assert judge(call, "read_only", allow=("move(/data/a)",)).kind == "ask"
    assert judge(call, "read_only", allow=("move(/data/a)", "move(b/*)")).kind == "allow"


def test_the_dangerous_lines_are_named() -> None:
    verdict = judge(
        code("import shutil, os\nx = 1\nshutil.rmtree(x); os.remove(x)\nopen('/a','w')")
    )
    assert verdict.code_lines == {
        3: "deletes a file and deletes folders",
        4: "writes outside the workspace: /a",
    }
    assert verdict.dangers == (
        "Line 3 deletes a file and deletes folders.",
        "Line 4 writes outside the workspace: /a.",
    )
    assert "no sandbox" in verdict.reason


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (code(HARMLESS), "python(*)"),
        (code(DELETING), f"python({DELETING})"),
        (edit("src/deep/a.py"), "edit_file(src/deep/**)"),
        (edit("a.py"), "edit_file(a.py)"),
        (edit("src/.env"), "edit_file(src/.env)"),
        (edit("/srv/x/a"), "edit_file(/srv/x/a)"),
        (read("~/.ssh/id_rsa"), "read_file(~/.ssh/id_rsa)"),
        (read("/srv/.env"), "read_file(/srv/.env)"),
        (function(), "column_median"),
    ],
)
def test_the_session_rule_is_as_narrow_as_it_can_be(call: GateCall, rule: str) -> None:
    assert judge(call, "read_only").rule_text == rule


paths = st.lists(
    st.text(
        st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=["Cs"]),
        min_size=1,
    )
    | st.sampled_from(["*", "**", "?", "~", "\\", "a b", ".env", ".git", "hooks", "id_rsa", "x)"]),
    min_size=1,
    max_size=4,
).map("/".join)
anchors = st.sampled_from(["", "/", "~/", "../"])


@given(anchors, paths, st.booleans(), st.sampled_from(MODES))
def test_whatever_asks_is_allowed_by_the_rule_that_the_card_offers(
    anchor: str, path: str, write: bool, mode: PermissionMode
) -> None:
    call = edit(anchor + path) if write else read(anchor + path)
    verdict = judge(call, mode)
    if verdict.kind == "ask":
        assert judge(call, mode, allow=(verdict.rule_text,)).kind == "allow"


@given(st.text(min_size=1), st.sampled_from(MODES))
def test_code_that_asks_is_allowed_by_the_rule_that_the_card_offers(
    text: str, mode: PermissionMode
) -> None:
    for call in (code(text), code(f"{DELETING}\n{text}")):
        verdict = judge(call, mode)
        if verdict.kind == "ask" and call.code.strip():
            assert judge(call, mode, allow=(verdict.rule_text,)).kind == "allow"


def test_nobody_to_ask_is_a_denial_that_says_why_and_what_would_allow_it() -> None:
    verdict = judge(code(HARMLESS), interactive=False)
    assert (verdict.kind, verdict.by) == ("deny", "nobody")
    assert verdict.reason == (
        "python was not run: nobody can be asked here. Running code asks in mode accept_edits. "
        'To allow it: %agent allow "python(*)"'
    )


def test_a_dangerous_call_that_nobody_can_allow_names_the_lines_and_the_kind_of_rule() -> None:
    verdict = judge(code(DELETING), "auto", interactive=False)
    assert verdict.kind == "deny"
    assert "Line 2 deletes folders." in verdict.reason
    assert "python(<the code>)" in verdict.reason


ALL_CALLS = [row[0] for row in MODE_TABLE]
RULE_SETS: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    ((), ()),
    (("python(*)", "edit_file", "read_file", "column_median", "save", "fetch"), ()),
    ((), ("python", "edit_file")),
    (("python(*)",), ("python(*)",)),
]


@pytest.mark.parametrize(("call", "mode", "rules"), list(product(ALL_CALLS, MODES, RULE_SETS)))
def test_a_run_without_a_person_only_turns_questions_into_denials(
    call: GateCall, mode: PermissionMode, rules: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    allow, deny = rules
    asked = judge(call, mode, allow=allow, deny=deny)
    alone = judge(call, mode, allow=allow, deny=deny, interactive=False)
    assert alone.kind == ("deny" if asked.kind == "ask" else asked.kind)


@pytest.mark.parametrize(("call", "rules"), list(product(ALL_CALLS, RULE_SETS)))
def test_a_wider_mode_never_refuses_more(
    call: GateCall, rules: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    order = {"deny": 0, "ask": 1, "allow": 2}
    kinds = [order[judge(call, mode, allow=rules[0], deny=rules[1]).kind] for mode in MODES]
    assert kinds == sorted(kinds)


@pytest.mark.parametrize(("call", "mode"), list(product(ALL_CALLS, MODES)))
def test_the_switch_allows_everything_but_what_is_protected(
    call: GateCall, mode: PermissionMode
) -> None:
    verdict = decide(call, places=PLACES, mode=mode, rules=[], interactive=False, everything=True)
    protected = judge(call, mode).by == "protected"
    assert (verdict.kind, verdict.by) == (
        ("deny", "protected") if protected else ("allow", "switch")
    )


def test_the_switch_keeps_deny_rules() -> None:
    rules = [parse_rule("edit_file(src/**)", "deny")]
    for call, kind in ((edit("src/a.py"), "deny"), (edit("/etc/hosts"), "allow")):
        verdict = decide(
            call, places=PLACES, mode="auto", rules=rules, interactive=True, everything=True
        )
        assert verdict.kind == kind


def test_a_path_in_code_is_judged_by_where_it_really_leads() -> None:
    touched = CodeReading(touches=(Touch(2, "data/x", write=True, real="/etc/x"),))
    verdict = judge(
        GateCall("shell", "execute", code="…", language="shell", reading=touched), "auto"
    )
    assert verdict.code_lines == {2: "writes outside the workspace: data/x (really /etc/x)"}


def test_every_effect_has_an_answer_in_every_mode() -> None:
    for effect, mode in product(get_args(Effect), MODES):
        assert judge(GateCall("t", effect), mode).kind in ("allow", "ask")


def request_for(call: GateCall, mode: PermissionMode = "read_only") -> Any:
    verdict = judge(call, mode)
    card = build_request(call, verdict, call_id="c1", turn_id="t1", mode=mode, places=PLACES)
    return card.to_json()


def test_the_card_shows_code_with_its_dangerous_lines() -> None:
    card = request_for(code(DELETING))
    assert card["display"] == {
        "kind": "code",
        "language": "python",
        "code": DELETING,
        "lines": {"2": "deletes folders"},
    }
    assert card["arguments"] == {"code": DELETING}
    assert (card["id"], card["turn_id"], card["mode"]) == ("c1", "t1", "read_only")


def test_the_card_shows_an_edit_as_a_diff_with_a_path_relative_to_the_workspace() -> None:
    card = request_for(edit("src/a.py", diff="@@ -1 +1 @@\n-a\n+b\n", undo="No."))
    assert card["display"] == {"kind": "diff", "path": "src/a.py", "diff": "@@ -1 +1 @@\n-a\n+b\n"}
    assert card["touches"] == ["src/a.py"]
    assert card["undo"] == "No."


def test_the_card_shows_anything_else_as_its_arguments() -> None:
    card = request_for(function())
    assert card["display"] == {"kind": "json"}
    assert card["rule"] == "column_median"
