"""``%agent doctor``, ``gc``, ``push`` and ``pull``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from shells import Model, Shell

from op_jupyter.errors import SessionActive, UsageError
from op_jupyter.notebook.extension import load
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.providers import reply

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git executable")


@pytest.fixture
def on_disk(clean_environment: None, shell: Shell, model: Model, tmp_path: Path) -> Notebook:
    """The extension with sessions on disk, and one turn in the session."""
    loaded = load(shell.ip, store=SessionStore(tmp_path / "sessions"), make_runtime=model.runtime)
    loaded.install()
    model.answers(reply("hello"))
    shell.run("%%agent\nhi")
    return loaded


@pytest.fixture
def remote(tmp_path: Path) -> str:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "r.git")], check=True)
    return str(tmp_path / "r.git")


def test_a_session_is_looked_at_packed_and_pushed_while_it_is_open(
    on_disk: Notebook, shell: Shell, remote: str, tmp_path: Path
) -> None:
    said = shell.says("%agent doctor")
    assert "nothing is wrong" in said
    assert "open for writing in this process" in said
    assert "MB now" in shell.says("%agent gc")
    assert "main begun there" in shell.says(f"%agent push {remote}")
    here = on_disk.session.session_id
    error = shell.error(f"%agent pull {remote}")
    assert isinstance(error, SessionActive)
    assert f"%agent resume {here}" in str(error)
    assert len(SessionStore(tmp_path / "other").pull(remote, here).changes) == 1


def test_sessions_are_pulled_and_gone_on_with(
    on_disk: Notebook, shell: Shell, model: Model, remote: str
) -> None:
    here = on_disk.session.session_id
    shell.says(f"%agent push {remote}")
    shell.says("%agent new")
    on_disk.store.delete(here)
    assert "new here" in shell.says(f"%agent pull {remote}")
    shell.says(f"%agent resume {here}")
    model.answers(reply("again"))
    shell.run("%%agent\nand now?")
    assert "hi" in model.sent()
    assert len(on_disk.session.dag.turns) == 2


def test_a_session_that_somebody_else_has_open_is_gone_on_with_in_a_copy(
    on_disk: Notebook, shell: Shell, model: Model, tmp_path: Path
) -> None:
    there = on_disk.session.session_id
    shell.says("%agent new")
    holder = SessionStore(tmp_path / "sessions").open(there)
    error = shell.error(f"%agent resume {there}")
    assert f"%agent resume {there} --fork" in str(error)
    assert "with 1 turn" in shell.says(f"%agent resume {there} --fork")
    copy = on_disk.session.session_id
    assert copy != there
    model.answers(reply("again"))
    shell.run("%%agent\nand now?")
    assert "hi" in model.sent()
    assert len(holder.dag.turns) == 1
    holder.close()
    assert "name the session" in str(shell.error("%agent resume --fork"))


def test_a_damaged_session_is_repaired_from_another(
    on_disk: Notebook, shell: Shell, tmp_path: Path
) -> None:
    hurt = on_disk.session.session_id
    shell.says("%agent new")
    (path,) = (tmp_path / "sessions" / hurt).glob("history/000/*-agent-*")
    path.write_bytes(path.read_bytes().replace(b"hello", b"hallo"))
    assert "checksum is wrong" in shell.says(f"%agent doctor {hurt}")
    assert "repaired: history/" in shell.says(f"%agent doctor {hurt} --repair")
    assert "nothing is wrong" in shell.says(f"%agent doctor {hurt}")


def test_what_is_not_there_yet_is_an_error_that_says_so(notebook: Notebook, shell: Shell) -> None:
    for line in ("doctor", "gc", "push /tmp"):
        error = shell.error(f"%agent {line}")
        assert isinstance(error, UsageError)
        assert "nothing of this session is stored" in str(error)
    assert "not on disk" in str(shell.error("%agent pull /tmp"))
