"""Cards and their answers, through whole turns."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from op_jupyter.bootstrap import guard
from op_jupyter.core.messages import ToolResultBlock
from op_jupyter.core.permissions import Answer, PermissionAnswer, PermissionRequest
from op_jupyter.core.rules import parse_rule
from op_jupyter.engine import loop
from op_jupyter.engine.hooks import set_permission_handler
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import ConfigurationError
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import Gate, ScriptedProvider, call, reply
from op_jupyter.tools.files import file_tools
from op_jupyter.tools.sandbox import Sandbox
from op_jupyter.tools.shell import ShellTool
from tests.engine.harness import (
    ALLOW,
    DENY,
    FakeTool,
    ScriptedAsker,
    run,
    start_in_background,
    states,
    texts,
    tool_nodes,
    wait_phase,
)


def two_steps(what: str = "as asked") -> ScriptedProvider:
    return ScriptedProvider(reply(call("change", {"what": what})), reply("done"))


def tool() -> FakeTool:
    return FakeTool("change", "execute")


def told(provider: ScriptedProvider) -> str:
    """What the second request says of the call."""
    (block,) = (b for b in provider.requests[1].messages[-1].content)
    assert isinstance(block, ToolResultBlock)
    return "".join(part.text for part in block.content if hasattr(part, "text"))


def test_edited_arguments_run_and_both_sets_are_stored_and_the_model_is_told(
    session: AgentSession,
) -> None:
    changing, provider = tool(), two_steps()
    asker = ScriptedAsker([PermissionAnswer("allow", "click", {"what": "as edited"})])
    assert run(session, provider, [changing], asker=asker).status == "completed"
    assert changing.calls == [{"what": "as edited"}]
    (node,) = tool_nodes(session)
    assert node.input == {"what": "as asked"}
    assert node.metadata["permission"]["edited"] == {"what": "as edited"}
    assert session.dag.decisions[-1]["edited"] == {"what": "as edited"}
    assert "changed the arguments" in told(provider)
    assert json.dumps({"what": "as edited"}, separators=(",", ":")) in told(provider)


def test_edited_arguments_that_do_not_fit_run_nothing(session: AgentSession) -> None:
    changing, provider = tool(), two_steps()
    asker = ScriptedAsker([PermissionAnswer("allow", "click", {"what": 3})])
    assert run(session, provider, [changing], asker=asker).status == "completed"
    assert changing.calls == []
    assert states(session) == ["failed"]
    assert "edited arguments do not fit" in texts(session)[0]


@pytest.mark.parametrize(
    ("said", "ran"), [("allow", 1), ("deny", 0), (None, 0), ("yes", 0), (OSError("gone"), 0)]
)
def test_a_host_decides_for_a_program_and_only_a_clear_yes_is_one(
    session: AgentSession, said: object, ran: int
) -> None:
    asked: list[PermissionRequest] = []

    def decide(request: PermissionRequest) -> object:
        asked.append(request)
        if isinstance(said, Exception):
            raise said
        return said

    changing = tool()
    set_permission_handler(decide)
    try:
        run(session, two_steps(), [changing], asker=session.asker)
    finally:
        set_permission_handler(None)
    assert [request.tool for request in asked] == ["change"]
    assert len(changing.calls) == ran


def test_an_allowed_call_does_not_allow_the_next_one(session: AgentSession) -> None:
    changing = tool()
    provider = ScriptedProvider(
        reply(call("change", {"what": "a"}), call("change", {"what": "b"})), reply("x")
    )
    asker = ScriptedAsker([ALLOW, DENY])
    outcome = run(session, provider, [changing], asker=asker)
    assert (outcome.status, outcome.code) == ("failed", "permission_denied")
    assert changing.calls == [{"what": "a"}]
    assert states(session) == ["succeeded", "denied"]


def test_a_denial_with_a_message_reaches_the_model_and_the_turn_goes_on(
    session: AgentSession,
) -> None:
    provider = two_steps()
    asker = ScriptedAsker([PermissionAnswer("deny_message", "click", message="not on Sundays")])
    assert run(session, provider, [tool()], asker=asker).status == "completed"
    assert states(session) == ["denied"]
    assert told(provider) == "not on Sundays"


def test_allow_for_the_session_adds_exactly_the_rule_that_the_card_showed(
    session: AgentSession,
) -> None:
    asker = ScriptedAsker([PermissionAnswer("allow_session", "click")])
    run(session, two_steps("a"), [tool()], asker=asker)
    assert session.rules["allow"] == [asker.requests[0].rule] == ["change"]
    run(session, two_steps("b"), [tool()], asker=ScriptedAsker())
    assert states(session) == ["succeeded", "succeeded"]
    assert session.remove_rule("change")
    asker = ScriptedAsker([DENY])
    run(session, two_steps("c"), [tool()], asker=asker)
    assert len(asker.requests) == 1


class RuleMeanwhile(ScriptedAsker):
    """Somebody adds a rule to *session* while the card is up."""

    def __init__(self, session: AgentSession, rule: str, answer: PermissionAnswer) -> None:
        super().__init__([answer])
        self._session, self._rule = session, rule

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        self._session.add_rule("deny", self._rule)
        return await super().decide(request)


@pytest.mark.parametrize("answer", ["allow", "allow_session"])
@pytest.mark.parametrize("edited", [None, {"what": "edited"}])
def test_a_deny_rule_that_came_while_the_card_was_up_holds(
    session: AgentSession, answer: Answer, edited: dict[str, str] | None
) -> None:
    changing, provider = tool(), two_steps()
    asker = RuleMeanwhile(session, "change", PermissionAnswer(answer, "click", edited))
    assert run(session, provider, [changing], asker=asker).status == "completed"
    assert changing.calls == []
    assert states(session) == ["denied"]
    assert "the rule deny change forbids it" in told(provider)
    assert session.rules["allow"] == []
    said = session.dag.decisions[-1]
    assert (said["answer"], said["how"], said["overruled_by"]) == (answer, "click", "rule")


@pytest.mark.parametrize("named", ["link/**", "link/", "link/new.txt", "link"])
def test_a_deny_rule_for_a_link_holds_for_what_it_leads_to(
    session: AgentSession, tmp_path: Path, named: str
) -> None:
    session.workspace = tmp_path
    (tmp_path / "really").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "really")
    session.add_rule("deny", f"write_file({named})")
    target = "really" if named == "link" else "really/new.txt"
    arguments = {"path": target, "text": "x"}
    provider = ScriptedProvider(reply(call("write_file", arguments)), reply("done"))
    run(session, provider, list(file_tools()), asker=ScriptedAsker())
    assert "forbids it" in told(provider)
    assert not (tmp_path / "really" / "new.txt").exists()


@pytest.mark.parametrize("edited", [{"what": "edited"}, {"what": 3}])
def test_editing_adds_no_rule_that_speaks_of_what_was_not_run(
    session: AgentSession, edited: dict[str, Any]
) -> None:
    asker = ScriptedAsker([PermissionAnswer("allow_session", "click", edited)])
    run(session, two_steps(), [tool()], asker=asker)
    assert session.rules["allow"] == []


def test_a_card_that_nobody_answers_in_time_is_a_denial_that_says_so(
    session: AgentSession,
) -> None:
    session.answer_timeout = 0.05
    provider = two_steps()
    assert run(session, provider, [tool()], asker=ScriptedAsker()).status == "completed"
    assert states(session) == ["denied"]
    assert told(provider) == "denied: nobody answered within 0.05 seconds"
    assert session.dag.decisions[-1]["how"] == "timeout"


def test_every_call_says_on_its_node_who_decided(session: AgentSession) -> None:
    looking, changing = FakeTool("look"), tool()
    session.user_rules = (parse_rule("no", "deny"),)
    provider = ScriptedProvider(
        reply(call("look", {}), call("change", {}), call("no", {})), reply("done")
    )
    run(session, provider, [looking, changing, FakeTool("no")], asker=ScriptedAsker([ALLOW]))
    said = [n.metadata["permission"] for n in tool_nodes(session)]
    assert [(s["answer"], s["how"]) for s in said] == [
        ("allow", "mode"),
        ("allow", "click"),
        ("deny", "rule"),
    ]


def test_a_decision_is_found_by_its_node_also_when_the_process_did_not_live_to_its_end(
    session: AgentSession,
) -> None:
    during: list[Any] = []

    def look(arguments: Any) -> str:
        (node,) = tool_nodes(session)
        during.append(session.dag.decision_of(node))
        return "seen"

    changing = FakeTool("change", "execute", act=look)
    run(session, two_steps(), [changing], asker=ScriptedAsker([ALLOW]))
    (node,) = tool_nodes(session)
    assert [d["answer"] for d in during] == ["allow"]
    assert (session.dag.decision_of(node) or {})["how"] == "click"
    user = next(node for node in session.dag if node.role == "user")
    assert session.dag.decision_of(user) is None


@pytest.mark.parametrize("how", ["mode", "rule"])
def test_what_the_rules_decide_is_stored_with_the_call_before_it_runs(
    session: AgentSession, how: str
) -> None:
    written: list[Any] = []

    def look(arguments: Any) -> str:
        written.extend(dict(n.metadata["permission"]) for n in tool_nodes(session))
        return "seen"

    if how == "rule":
        session.user_rules = (parse_rule("look", "allow"),)
    run(
        session,
        ScriptedProvider(reply(call("look", {})), reply("done")),
        [FakeTool("look", "execute" if how == "rule" else "read", act=look)],
        asker=ScriptedAsker([]),
    )
    assert [(d["answer"], d["how"]) for d in written] == [("allow", how)]


def test_the_switch_of_the_process_runs_everything_that_no_rule_denies(
    session: AgentSession,
) -> None:
    session.allow_everything = True
    session.user_rules = (parse_rule("no", "deny"),)
    changing = tool()
    provider = ScriptedProvider(reply(call("change", {"what": "x"}), call("no", {})), reply("done"))
    run(session, provider, [changing, FakeTool("no")], asker=ScriptedAsker(interactive=False))
    assert states(session) == ["succeeded", "denied"]
    assert session.dag.decisions[0]["how"] == "switch"


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.touch()
    monkeypatch.setenv("OPENPROGRAM_CONFIG", str(path))
    monkeypatch.delenv("OPENPROGRAM_ALLOW_EVERYTHING", raising=False)
    monkeypatch.delenv("OPENPROGRAM_ANSWER_TIMEOUT", raising=False)
    return path


def test_a_session_gets_the_rules_and_limits_of_the_configuration(
    session: AgentSession, configured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured.write_text('answer_timeout = "30"\n[permissions]\ndeny = ["python"]\n')
    guard(session)
    assert [rule.text for rule in session.user_rules] == ["python"]
    assert (session.answer_timeout, session.allow_everything) == (30.0, False)
    monkeypatch.setenv("OPENPROGRAM_ALLOW_EVERYTHING", "1")
    guard(session)
    assert session.allow_everything


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OPENPROGRAM_ALLOW_EVERYTHING", "yes please"),
        ("OPENPROGRAM_ANSWER_TIMEOUT", "soon"),
        ("OPENPROGRAM_ANSWER_TIMEOUT", "-1"),
        ("OPENPROGRAM_ANSWER_TIMEOUT", "inf"),
        ("OPENPROGRAM_ATTEMPTS_AT_ONCE", "0"),
        ("OPENPROGRAM_ATTEMPTS_AT_ONCE", "4.5"),
        ("OPENPROGRAM_ATTEMPTS_AT_ONCE", "9" * 5_000),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_name(
    session: AgentSession,
    configured: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: Any,
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=variable):
        guard(session)


def test_a_mode_holds_from_the_next_call_on_and_stays_with_the_session(
    session: AgentSession, store: MemoryStore
) -> None:
    """Not for the card that is up; and after a restart as well."""
    change = tool()
    asked = reply(call("change", {"what": "1"}), call("change", {"what": "2"}))
    asker = ScriptedAsker()
    turn_id, job = start_in_background(
        session, ScriptedProvider(asked, reply("done")), [change], asker=asker
    )
    loop.run_sync(wait_phase, session, "waiting_permission")
    loop.run_sync(session.set_permission_mode, "auto")
    assert session.snapshot().permission_mode == "auto"
    (card,) = session.pending_cards()
    assert card.arguments == {"what": "1"} and change.calls == []
    loop.run_sync(session.resolve_permission, turn_id, card.id, ALLOW)
    assert job.future.result(5).text == "done"
    assert len(change.calls) == 2 and len(asker.requests) == 1
    store.crash()
    again = AgentSession(store.open(session.session_id))
    assert again.permission_mode == "auto"


def test_how_long_tools_may_take_is_configured_by_name(
    session: AgentSession, configured: Path
) -> None:
    configured.write_text('[timeouts]\nlook = 0.05\nshell = 0.3\npatient = "none"\n')
    guard(session)
    hang, slow = Gate(), Gate()
    threading.Timer(0.4, slow.open).start()
    tools = [
        FakeTool(gate=hang, timeout=60.0),
        FakeTool("patient", timeout=0.001, gate=slow),
        ShellTool(sandbox=Sandbox()),
    ]
    loop.run_sync(session.set_permission_mode, "auto")
    asked = reply(
        call("look", {}), call("patient", {}), call("shell", {"command": "echo hi; sleep 60"})
    )
    assert run(session, ScriptedProvider(asked, reply("ok")), tools).text == "ok"
    look, patient, shell = texts(session)
    assert look.startswith("TimedOut: no result after 0.05 seconds")
    assert patient == "seen"
    assert shell == "hi\nTimedOut: it was ended after 0.3 seconds"


@pytest.mark.parametrize("value", ['"soon"', "0", "-1", "true", "nan", '{"x" = 1}'])
def test_a_timeout_that_means_nothing_is_refused_by_name(
    session: AgentSession, configured: Path, value: str
) -> None:
    configured.write_text(f"[timeouts]\nlook = {value}\n")
    with pytest.raises(ConfigurationError, match=r"timeouts\.look"):
        guard(session)


def test_the_switch_cannot_be_set_in_the_file(session: AgentSession, configured: Path) -> None:
    configured.write_text('allow_everything = "1"\n')
    with pytest.raises(ConfigurationError, match="nothing"):
        guard(session)


def test_a_new_session_asks_before_code_and_not_before_edits(session: AgentSession) -> None:
    assert session.permission_mode == "accept_edits"
