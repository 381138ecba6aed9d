"""Clients that are no page: each runs a notebook or a prompt of its own, and none may hang.

Where nobody can answer, the rules decide at once; a console is asked on its own terminal.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pexpect
import pytest
from nbclient import NotebookClient

from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply, text, tool

pytestmark = pytest.mark.timeout(240)

TURN = "application/vnd.openprogram.turn+json"
PATIENCE = 120
CELLS = (
    "word = 'nothing'",
    "%load_ext op_jupyter\n%agent allow look",
    "%%agent -o answer\nSay {{word}}",
    "print('answer:', answer.text)",
)


@pytest.fixture
def environment(
    fake: FakeMessages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Variables of the clients, and of the kernels that they start."""
    variables = {
        "ANTHROPIC_BASE_URL": fake.url,
        "ANTHROPIC_API_KEY": API_KEY,
        "OPENPROGRAM_HOME": str(tmp_path / "sessions"),
        "OPENPROGRAM_CONFIG": os.devnull,
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "jupyter"),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    return {**os.environ, **variables}


@pytest.fixture
def notebook_file(tmp_path: Path, fake: FakeMessages) -> Path:
    """A notebook whose turn asks for a call that nobody is there to allow."""
    fake.script(
        Reply([tool("python", id="toolu_1", code="ran = True")]), Reply([text("I may not.")])
    )
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in CELLS],
        metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3"},
            "language_info": {"name": "python"},
        },
    )
    notebook.cells[0].metadata["tags"] = ["parameters"]
    file = tmp_path / "asked.ipynb"
    nbformat.write(notebook, file)
    return file


def run_by_nbclient(file: Path, env: dict[str, str]) -> Path:
    notebook = nbformat.read(file, as_version=4)
    NotebookClient(
        notebook, timeout=PATIENCE, resources={"metadata": {"path": file.parent}}
    ).execute()
    nbformat.write(notebook, file)
    return file


def run_by_papermill(file: Path, env: dict[str, str]) -> Path:
    out = file.with_name("out.ipynb")
    papermill.execute_notebook(
        str(file), str(out), parameters={"word": "hello"}, progress_bar=False, cwd=str(file.parent)
    )
    return out


def run_by_nbconvert(file: Path, env: dict[str, str]) -> Path:
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace"]
    done = subprocess.run(
        [*command, str(file)],
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return file


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (run_by_nbclient, "Say nothing"),
        (run_by_papermill, "Say hello"),
        (run_by_nbconvert, "Say nothing"),
    ],
)
def test_a_client_that_cannot_answer_gets_the_policy_and_one_final_display(
    notebook_file: Path, environment: dict[str, str], fake: FakeMessages, run: Any, said: str
) -> None:
    cells = json.loads(run(notebook_file, environment).read_text())["cells"]
    asked = next(cell for cell in cells if "".join(cell["source"]).startswith("%%agent"))
    (shown,) = asked["outputs"]
    assert "I may not." in "".join(shown["data"]["text/plain"])
    assert [call["status"] for call in shown["data"][TURN]["calls"]] == ["denied"]
    assert "answer: I may not." in "".join(cells[-1]["outputs"][0]["text"])
    first, second = (str(request.body["messages"]) for request in fake.requests)
    assert said in first
    assert "nobody" in second and "python(*)" in second  # why, and the rule that would allow it


def test_jupyter_console_completes_and_asks_on_its_terminal_and_ctrl_c_stops(
    environment: dict[str, str], fake: FakeMessages, tmp_path: Path
) -> None:
    fake.script(
        Reply([tool("python", id="toolu_1", code="print('the tool', 6 * 7)")]),
        Reply([text("It is 42.")]),
        Reply([text("late")], ttft=120),
        Reply([text("Still here.")]),
    )
    child = pexpect.spawn(
        sys.executable,
        ["-m", "jupyter_console", "--kernel=python3"],
        env={**environment, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},  # type: ignore[arg-type]
        cwd=str(tmp_path),
        encoding="utf-8",
        timeout=PATIENCE,
        echo=False,
        dimensions=(50, 200),
    )

    def until_prompt() -> str:
        child.expect(r"In [^\n]*?\]: ")  # its number is coloured
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", str(child.before))

    def enter(line: str) -> None:
        child.send(f"{line}\r")
        child.expect(r"\x1b\[\?2004l")  # it was taken; what follows is output

    def ask(prompt: str) -> None:
        enter(f"get_ipython().run_cell_magic('agent', '', {prompt!r})")

    try:
        until_prompt()
        enter("%load_ext op_jupyter")
        assert "OpenProgram ready: %agent help" in until_prompt()
        child.send("%agent histo")
        child.expect("histo")
        child.send("\t")
        child.expect("ry")
        enter("")
        assert "Nothing has happened" in until_prompt()
        ask("Multiply")
        child.expect(r"\[y/N\] ")
        child.send("y\r")
        said = until_prompt()
        assert "the tool 42" in said and "It is 42." in said
        ask("Hello")
        fake.wait_requests(3, timeout=PATIENCE)
        child.sendintr()
        assert "KeyboardInterrupt: the agent turn was stopped" in until_prompt()
        ask("Are you there?")
        assert "Still here." in until_prompt()
    finally:
        child.close(force=True)
