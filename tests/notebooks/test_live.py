"""The lesson with the embedded model itself: nothing recorded, nothing scripted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from op_jupyter.providers.local_model import is_installed

pytestmark = [
    pytest.mark.localmodel,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not is_installed(), reason="op-jupyter local install was not run"),
]

TURN = "application/vnd.openprogram.turn+json"
SALES = "order,region,units,unit_price\n" + "".join(
    f"{n},north,{n * 7 % 50},{n * 1.75 + 3:.2f}\n" for n in range(1, 41)
)


def command(tmp_path: Path, *arguments: str) -> list[str]:
    code = "import sys; from op_jupyter.cli.main import main; sys.exit(main())"
    return [sys.executable, "-c", code, "demo", "--out", str(tmp_path / "out"), *arguments]


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "OPENPROGRAM_HOME": str(tmp_path / "sessions"),
        "OPENPROGRAM_CONFIG": os.devnull,
        **more,
    }


def demo(tmp_path: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """`op-jupyter demo --headless` with sessions and output in the test's folder."""
    return subprocess.run(
        command(tmp_path, "--headless", *arguments),
        env=environment(tmp_path, **more),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_the_demo_asks_about_a_csv_it_has_never_seen(tmp_path: Path) -> None:
    csv = tmp_path / "sales.csv"
    csv.write_text(SALES)

    done = demo(tmp_path, "--csv", str(csv))

    assert done.returncode == 0, done.stdout + done.stderr
    written = {path.name for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert written == {"sales.ipynb", "sales.html", "card.png", "answer.png"}
    assert done.stdout.count("clicked Allow") == 2
    assert "restarted the kernel; resuming session nb-" in done.stdout
    assert "session  nb-" in done.stdout
    html = (tmp_path / "out" / "sales.html").read_text()
    assert "unit_price" in html
    assert "OpenProgram: completed" in html


def turns_of(notebook: Path) -> Iterator[dict[str, Any]]:
    """The turns that a saved notebook shows."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            if TURN in output.get("data", {}):
                yield output["data"][TURN]


def test_the_demo_without_a_browser_says_so_and_goes_on(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    git = shutil.which("git")
    assert git is not None
    (tools / "git").symlink_to(git)

    done = demo(tmp_path, PATH=str(tools))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "no Chromium on the path" in done.stdout
    assert "the rule `allow column_stat` stands in for the card" in done.stdout
    assert "4,201.75" in done.stdout
    written = {path.name for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert written == {"quickstart.ipynb", "quickstart.html"}
    turn = next(turns_of(tmp_path / "out" / "quickstart.ipynb"))
    (called,) = turn["calls"]  # the real model called the function, and told its number
    assert called["result"] in turn["answer_markdown"]


def test_the_demo_serves_the_lesson_until_it_is_interrupted(tmp_path: Path) -> None:
    env = environment(tmp_path, DISPLAY="", WAYLAND_DISPLAY="")
    with subprocess.Popen(command(tmp_path), env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = next(line.strip() for line in process.stdout if "http://" in line)
            with urllib.request.urlopen(address, timeout=30) as answer:
                page = answer.read().decode()
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=60)
        except BaseException:
            process.kill()
            raise

    assert "quickstart.ipynb" in address
    assert "JupyterLab" in page
    assert process.returncode == 0
    assert f"The notebook is {tmp_path / 'out' / 'quickstart.ipynb'}" in said
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=5)
