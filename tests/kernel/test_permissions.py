"""Cards, edits, the shell and undoing, in a real kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kernel.harness import Kernel, running_kernel
from kernel.page import Page

from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply, text, tool

pytestmark = pytest.mark.parametrize("ipykernel", ["newest"], indirect=True)


def asks(name: str, **arguments: str) -> Reply:
    return Reply([tool(name, id="toolu_1", **arguments)])


def test_an_edited_call_runs_as_edited_and_undo_asks_and_puts_its_files_back(
    notebook: Kernel, fake: FakeMessages, tmp_path: Path
) -> None:
    (tmp_path / "kept.txt").write_bytes(b"\xffold")
    fake.script(asks("python", code="open('kept.txt', 'w').write('1')"), Reply([text("Done.")]))
    cell = notebook.send("%%agent\nWrite", allow_stdin=True)
    page = Page(notebook, cell)
    page.say_ready()
    card = page.card()
    assert "`%agent undo`" in card["undo"]
    edited = {"code": "open('kept.txt', 'w').write('edited')\nopen('new.txt', 'w').write('n')"}
    page.decide(card, "allow", arguments=edited)
    assert notebook.finish(cell).status == "ok"
    assert (tmp_path / "kept.txt").read_text() == "edited"
    told = str(fake.requests[-1].body["messages"][-1])
    assert "changed the arguments" in told

    undoing = notebook.send("%agent undo", allow_stdin=True)
    page = Page(notebook, undoing)
    page.say_ready()
    card = page.card()
    assert (card["tool"], sorted(card["touches"])) == ("undo_files", ["kept.txt", "new.txt"])
    page.decide(card, "allow")
    assert notebook.finish(undoing).status == "ok"
    assert (tmp_path / "kept.txt").read_bytes() == b"\xffold"
    assert not (tmp_path / "new.txt").exists()


def test_the_shell_runs_once_it_was_asked_for_and_stops_with_the_cell(
    notebook: Kernel, fake: FakeMessages, tmp_path: Path
) -> None:
    notebook.run("%agent tools +shell", allow_stdin=True)
    notebook.run("%agent allow shell(*)", allow_stdin=True)
    fake.script(asks("shell", command="echo begun > begun.txt; sleep 600"))
    cell = notebook.send("%%agent\nGo", allow_stdin=True)
    notebook.wait_for(lambda: (tmp_path / "begun.txt").exists(), "the command to run")
    notebook.interrupt()
    notebook.finish(cell)
    assert cell.error == "KeyboardInterrupt"
    history = notebook.check(
        "from op_jupyter import current_session\nprint([(n.name, n.status) "
        "for n in current_session().agent.dag if n.name == 'shell'])"
    )
    assert history == "[('shell', 'cancelled')]"


def test_the_switch_for_ci_is_a_red_line_in_the_output(
    ipykernel: str, fake: FakeMessages, tmp_path: Path
) -> None:
    env = {
        "HOME": str(tmp_path),
        "ANTHROPIC_BASE_URL": fake.url,
        "ANTHROPIC_API_KEY": API_KEY,
        "OPENPROGRAM_HOME": str(tmp_path / "sessions"),
        "OPENPROGRAM_CONFIG": os.devnull,
        "OPENPROGRAM_ALLOW_EVERYTHING": "1",
    }
    fake.script(asks("python", code="import os; os.remove('a')"), Reply([text("Done.")]))
    (tmp_path / "a").touch()
    with running_kernel(ipykernel, tmp_path, env) as kernel:
        kernel.run("%load_ext op_jupyter")
        cell = kernel.run("%%agent\nDelete")
    assert cell.status == "ok"
    assert not (tmp_path / "a").exists()
    red = [d["data"] for d in cell.displays if "ALLOW_EVERYTHING" in str(d["data"])]
    assert len(red) == 1
    assert "color:#c62828" in red[0]["text/html"]


_LIBRARIES = ("git", "gitdb_speedups", "nh3", "mdurl", "tree_sitter_bash", "yaml", "cloudpickle")
"""Some that are not loaded yet when a turn begins, and some that those load."""


def test_a_file_that_a_model_writes_is_never_loaded_in_place_of_a_library(
    ipykernel: str, tmp_path: Path, fake: FakeMessages
) -> None:
    env = {
        "HOME": str(tmp_path),
        "ANTHROPIC_BASE_URL": fake.url,
        "ANTHROPIC_API_KEY": API_KEY,
        "OPENPROGRAM_HOME": str(tmp_path / "sessions"),
        "OPENPROGRAM_CONFIG": os.devnull,
    }
    code = f"open({str(tmp_path / 'loaded')!r}, 'a').write(__name__ + ' ')"
    writes = [tool("write_file", path=f"{n}.py", text=code) for n in _LIBRARIES]
    runs = tool("python", code="import os; os.system('true | sh')")
    (tmp_path / "work").mkdir()
    fake.script(Reply(writes), Reply([runs]), Reply([text("**Done.**")]))
    with running_kernel(ipykernel, tmp_path / "work", env) as kernel:
        kernel.check("import sys; assert '' in sys.path")
        kernel.run("%load_ext op_jupyter", allow_stdin=True)
        assert kernel.run("%%agent\nGo").status == "ok"
        kernel.check("%agent gc\nimport cloudpickle, yaml")
    assert len(list((tmp_path / "work").glob("*.py"))) == len(_LIBRARIES)
    assert not (tmp_path / "loaded").exists(), (tmp_path / "loaded").read_text()
