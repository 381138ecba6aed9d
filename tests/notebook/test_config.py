"""``%config AgentMagics``: each setting has its effect."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from shells import Model, Shell

from op_jupyter.bootstrap import default_service
from op_jupyter.errors import ConfigurationError
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.testing.providers import call, reply


def test_config_lists_what_there_is(notebook: Notebook, shell: Shell) -> None:
    names = set(notebook.config.class_trait_names(config=True))
    assert names >= {"model", "provider", "resume", "on_rerun", "mode", "workspace", "tools"}
    shell.value("%config AgentMagics")


@pytest.mark.parametrize(
    "line", ["resume = 'perhaps'", "on_rerun = 'again'", "mode = 'everything'", "max_steps = 0"]
)
def test_a_value_that_means_nothing_changes_nothing(
    notebook: Notebook, shell: Shell, caplog: pytest.LogCaptureFixture, line: str
) -> None:
    name = line.split()[0]
    before = getattr(notebook.config, name)
    shell.run(f"%config AgentMagics.{line}")
    assert getattr(notebook.config, name) == before
    assert name in caplog.text


def test_tools(notebook: Notebook, shell: Shell, model: Model) -> None:
    shell.value("%config AgentMagics.tools = ['inspect']")
    model.answers(reply("a"), reply("b"))
    shell.value("%%agent\nHello")
    shell.value("%%agent --tools read_file\nHello")
    offered = [[tool.name for tool in r.tools] for r in model.provider.requests]
    assert offered == [["inspect"], ["read_file"]]


def test_without_tools_the_notebook_s_own_are_offered(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    model.answers(reply("a"))
    shell.value("%%agent\nHello")
    names = [tool.name for tool in model.provider.requests[0].tools]
    assert names[:2] == ["python", "inspect"]
    assert "read_file" in names


def test_workspace(notebook: Notebook, shell: Shell, model: Model, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("inside")
    shell.value("%config AgentMagics.workspace = 'data'\n")
    shell.value("%agent new")
    model.answers(reply(call("read_file", {"path": "a.txt"})), reply("ok"))
    shell.value("%%agent\nRead it")
    assert "inside" in str(model.provider.requests[-1].messages[-1])


def test_max_steps(notebook: Notebook, shell: Shell, model: Model) -> None:
    shell.value("%config AgentMagics.max_steps = 1")
    model.answers(reply(call("inspect", {})))
    assert "1 model call" in str(shell.error("%%agent\nHello"))


def test_quiet(notebook: Notebook, shell: Shell, model: Model) -> None:
    shell.value("%config AgentMagics.quiet = True")
    model.answers(reply("a"))
    shell.value("%%agent\nHello")
    assert shell.shown == []


def test_mode_is_that_of_a_new_session(
    notebook: Notebook, shell: Shell, model: Model, tmp_path: Path
) -> None:
    writing = reply(call("write_file", {"path": "a.txt", "text": "x"}))
    shell.value("%config AgentMagics.mode = 'read_only'")
    shell.value("%agent new")
    model.answers(writing, reply("I may not."))
    shell.value("%%agent\nWrite it")
    assert not (tmp_path / "a.txt").exists()
    assert shell.says("%agent mode") == "mode: read_only"


def test_the_model_is_asked_by_plain_calls_as_well(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    shell.value("%config AgentMagics.provider = 'local'")
    model.answers(reply("a"))
    shell.value("from op_jupyter import llm\nllm('Hello')")
    assert model.settings[-1].get("provider") == "local"


def test_settings_of_the_file_count_when_nothing_else_says_so(
    notebook: Notebook, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text("model = 'from-the-file'")
    assert "from-the-file (from " in shell.says("%agent status")


def test_a_configured_mcp_server_offers_its_tools_in_the_cell(
    notebook: Notebook, shell: Shell, model: Model, tmp_path: Path
) -> None:
    server = Path(__file__).parents[1] / "support" / "mcp_server.py"
    (tmp_path / "config.toml").write_text(
        f'[mcp.small]\ncommand = "{sys.executable}"\nargs = ["{server}"]\n'
        '[mcp.lost]\ncommand = "there-is-no-such-program"\n'
    )
    model.answers(reply("x"))
    shell.value("%%agent\nX")
    names = [tool.name for tool in model.provider.requests[0].tools]
    assert "small__add" in names
    assert any("lost could not be started" in str(data) for data in shell.shown)
    assert "small__add" in shell.says("%agent tools")
    told = default_service(notebook.store).bus.replay(notebook.session.session_id) or []
    (warning,) = [event for event in told if event.kind == "mcp.warning"]
    assert "lost could not be started" in warning.data["message"]


def test_a_notebook_s_turns_are_told_to_whoever_listens_in_its_process(
    notebook: Notebook, shell: Shell, model: Model
) -> None:
    service = default_service(notebook.store)
    with service.bus.subscribe() as events:
        model.answers(reply("Fine."))
        shell.value("%%agent\nHello")
        told = list(iter(lambda: events.get(0.0), None))

    assert {event.session_id for event in told} == {notebook.session.session_id}
    assert [event.kind for event in told if "." in event.kind] == [
        "session.created",
        "message.received",
        "attempt.created",
        "attempt.started",
        "attempt.completed",
    ]
    (end,) = [event for event in told if event.kind == "attempt.completed"]
    assert end.data["summary"] == "Fine."
    assert "text_delta" in {event.kind for event in told}
    later = service.bus.subscribe(notebook.session.session_id, after=told[-2].sequence)
    assert later.get(0.0) == told[-1]
    later.close()


def test_where_the_current_folder_is_gone_that_is_said_and_a_cell_of_code_runs(
    notebook: Notebook,
    shell: Shell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert shell.value("1 + 1") == 2
    assert "Error" not in "".join(capsys.readouterr())
    for cell in ("%%agent\nHello", "%agent status"):
        error = shell.error(cell)
        assert isinstance(error, ConfigurationError)
        assert "the current folder is gone" in str(error)
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path) in shell.says("%agent status")
