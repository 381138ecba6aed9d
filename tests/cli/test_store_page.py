"""Every command on the page about sessions on disk is run as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from op_jupyter.cli.main import main
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.store.sessions import SessionStore

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "store.md").read_text("utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git executable")
def test_the_commands_of_the_page_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = SessionStore(tmp_path / "sessions")
    session = store.open(store.create_session("s-one"))
    for name, base in (("t1", None), ("t2", "t1"), ("t3", "t1")):
        session.begin_turn(Turn(name, base=base, subject=name))
        node = Node(name, "user", "user", predecessor=base, metadata={"turn_id": name})
        session.append(node, advance_head=True)
        session.update(name, status="completed")
        session.end_turn(name, "completed")
    session.close()
    monkeypatch.setenv("OPENPROGRAM_HOME", str(store.root_path))
    monkeypatch.setenv("OPENPROGRAM_CONFIG", os.devnull)
    monkeypatch.setenv("GIT_PAGER", "cat")
    monkeypatch.setenv("HOME", str(tmp_path))
    folder, ran = tmp_path, 0
    lines = [line.partition(" #")[0].strip() for block in BLOCKS for line in block.splitlines()]
    for line in lines:
        line = line.replace("ID", "s-one").replace("/media/stick", str(tmp_path))
        if line.startswith("op-jupyter "):
            if line.endswith("purge s-one"):  # there is none any more, since it was restored
                assert main(["trash", "put", "s-one"]) == 0
            assert main(shlex.split(line)[1:]) == 0, line
            capsys.readouterr()
        elif line.startswith("cd "):
            main(["show", "s-one"])
            wanted = line.replace("op-jupyter show s-one", "cat -") + " && pwd"
            told = subprocess.run(
                ["bash", "-c", wanted],
                input=capsys.readouterr().out,
                capture_output=True,
                text=True,
            )
            folder = Path(told.stdout.strip())
            assert folder == store.path("s-one")
        elif not line.startswith("python benchmarks/"):
            subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, check=True)
        ran += 1
    assert ran > 15
