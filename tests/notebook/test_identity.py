"""Which notebook and which cell this is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from op_jupyter.notebook.frontend import FrontEnd, detect
from op_jupyter.notebook.identity import CellRun, cell_run, notebook_id


def shell(parent: dict[str, Any] | None = None, **user_ns: Any) -> Any:
    kernel = SimpleNamespace(
        shell_stream=object(),
        get_parent=lambda channel: parent or {},
        parent=SimpleNamespace(connection_file="/run/kernel-8f3a.json"),
    )
    return SimpleNamespace(kernel=kernel, user_ns=user_ns)


def test_vs_code_s_name_comes_first() -> None:
    found = notebook_id(shell(__vsc_ipynb_file__="/home/me/a.ipynb"), {"JPY_SESSION_NAME": "/b"})
    assert found.key == "/home/me/a.ipynb"
    assert found.name == "a.ipynb"


def test_jupyter_s_name_is_made_absolute() -> None:
    found = notebook_id(shell(), {"JPY_SESSION_NAME": "work/b.ipynb"})
    assert found.path == Path.cwd() / "work/b.ipynb"


def test_without_a_name_the_kernel_s_id_tells_notebooks_apart() -> None:
    found = notebook_id(shell(), {})
    assert found.key == "kernel-8f3a"
    assert found.path is None
    assert found.name == "a notebook without a name"


def test_a_cell_run_is_named_by_its_request_and_its_cell() -> None:
    parent = {"header": {"msg_id": "m1", "date": "09:00"}, "metadata": {"cellId": "c1"}}
    assert cell_run(shell(parent)) == CellRun("m1 09:00", "c1")


def test_a_client_that_counts_from_one_again_after_a_restart_does_not_repeat_a_run() -> None:
    before, after = ({"header": {"msg_id": "s_1", "date": d}} for d in ("09:00", "09:05"))
    assert cell_run(shell(before)).request_id != cell_run(shell(after)).request_id


def test_without_a_kernel_no_run_has_a_name() -> None:
    assert cell_run(SimpleNamespace(user_ns={})) == CellRun()


def test_a_front_end_that_takes_no_input_cannot_answer() -> None:
    headless = detect(shell({"content": {"allow_stdin": False}}))
    assert headless == FrontEnd("kernel", can_answer=False)
    assert not headless.shows_widgets
    assert detect(shell({"content": {"allow_stdin": True}})).shows_widgets


def test_a_bare_shell_is_a_script() -> None:
    assert detect(SimpleNamespace(user_ns={})) == FrontEnd("script", can_answer=False)
