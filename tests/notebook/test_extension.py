"""Loading and unloading: nothing asked for, nothing left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from shells import Model, Shell

import op_jupyter
from op_jupyter.engine import loop
from op_jupyter.engine.context import current_session
from op_jupyter.errors import StoreError
from op_jupyter.notebook.extension import (
    READY,
    load,
    load_ipython_extension,
    unload,
    unload_ipython_extension,
)
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.store.memory import MemoryStore


def everything(ip: InteractiveShell) -> dict[str, Any]:
    """All of a shell that an extension can change."""
    return {
        "magics": {kind: dict(table) for kind, table in ip.magics_manager.magics.items()},
        "registry": dict(ip.magics_manager.registry),
        "callbacks": {name: list(calls) for name, calls in ip.events.callbacks.items()},
        "transformers": [
            list(ip.input_transformers_cleanup),
            list(ip.input_transformers_post),
            list(ip.input_transformer_manager.line_transforms),
            list(ip.input_transformer_manager.token_transformers),
            list(ip.ast_transformers),
        ],
        "exceptions": (ip.custom_exceptions, ip.CustomTB),
        "completers": [
            list(ip.Completer.custom_matchers),
            list(ip.Completer.matchers),
            {name: list(d.dispatch(name)) for name, d in ip.strdispatchers.items()},
        ],
        "hooks": {name: getattr(ip.hooks, name) for name in vars(ip.hooks)},
        "formatters": {
            mime: (dict(f.type_printers), dict(f.deferred_printers), dict(f.singleton_printers))
            for mime, f in {
                **ip.display_formatter.formatters,
                "bundle": ip.display_formatter.mimebundle_formatter,
                "itself": ip.display_formatter.ipython_display_formatter,
            }.items()
        },
        "configurables": list(ip.configurables),
        "names": set(ip.user_ns),
        "interrupts": signal.getsignal(signal.SIGINT),
        "waiter": loop._waiter,
        "session": current_session(),
    }


def test_unloading_leaves_the_shell_as_it_was_ten_times_over(
    clean_environment: None, shell: Shell, model: Model, store: MemoryStore
) -> None:
    before = everything(shell.ip)
    for _ in range(10):
        load(shell.ip, store=store, make_runtime=model.runtime).install()
        shell.ip.run_line_magic("agent", "status")
        assert everything(shell.ip) != before
        unload(shell.ip)
        assert everything(shell.ip) == before


def test_a_magic_of_somebody_else_comes_back(
    clean_environment: None, shell: Shell, store: MemoryStore
) -> None:
    shell.ip.register_magic_function(lambda line: "theirs", "line", "agent")
    load(shell.ip, store=store)
    unload(shell.ip)
    assert shell.value("%agent") == "theirs"


def test_loading_says_one_constant_line(clean_environment: None, shell: Shell) -> None:
    load_ipython_extension(shell.ip)
    assert shell.shown == [{"text/plain": READY}]


def test_loading_and_unloading_twice_is_harmless(clean_environment: None, shell: Shell) -> None:
    load_ipython_extension(shell.ip)
    first = load(shell.ip)
    load_ipython_extension(shell.ip)
    assert load(shell.ip) is first
    assert len(shell.ip.events.callbacks["pre_run_cell"]) == 1
    unload_ipython_extension(shell.ip)
    unload_ipython_extension(shell.ip)


def test_loading_by_either_name(clean_environment: None, shell: Shell) -> None:
    for name in ("op_jupyter", "openprogram"):
        shell.value(f"%load_ext {name}")
        assert READY in shell.shown[-1]["text/plain"]
        shell.value(f"%reload_ext {name}")
        shell.value(f"%unload_ext {name}")


def test_other_magics_and_help_parse_as_before(notebook: Notebook, shell: Shell) -> None:
    assert shell.value("%%capture out\nprint('x')") is None
    assert shell.ip.user_ns["out"].stdout == "x\n"
    shell.value("a = 'b?'")
    assert shell.ip.transform_cell("a?") == "get_ipython().run_line_magic('pinfo', 'a')\n"


def test_an_unwritable_place_for_sessions_is_an_error_of_the_turn_alone(
    clean_environment: None,
    shell: Shell,
    model: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    monkeypatch.setenv("OPENPROGRAM_HOME", str(blocked / "sessions"))
    load(shell.ip, make_runtime=model.runtime)
    assert shell.value("1 + 1") == 2
    for cell in ("%%agent\nHello", "%agent search Hello", "%agent export --session other a.md"):
        error = shell.error(cell)
        assert isinstance(error, StoreError) and "blocked" in str(error)
    assert shell.value("1 + 1") == 2


def test_a_broken_settings_file_is_said(
    clean_environment: None, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text("colour = 'red'")
    load_ipython_extension(shell.ip)
    assert "colour" in shell.shown[0]["text/plain"]
    assert shell.value("1 + 1") == 2


def test_a_named_settings_file_that_is_not_there_is_said(
    clean_environment: None, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").unlink()
    load_ipython_extension(shell.ip)
    said = shell.shown[0]["text/plain"]
    assert "OPENPROGRAM_CONFIG names" in said and "unset OPENPROGRAM_CONFIG" in said
    assert "is not there" in str(shell.error("%agent status"))


LOAD = """
import gc, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before = set(sys.modules)
shell.run_line_magic("load_ext", "op_jupyter")
new = {name.split(".")[0] for name in set(sys.modules) - before}
unwanted = {"anthropic", "git", "ipywidgets", "anywidget", "jupyterlab", "httpx",
            "pandas", "numpy", "matplotlib", "claude_agent_sdk", "xllamacpp", "jsonschema",
            "jsonschema_rs", "tomllib"}
later = ("notebook.commands", "notebook.node_actions", "store.doctor", "store.interchange",
         "store.remotes")
names = [name for name in sys.modules if name.removeprefix("op_jupyter.").startswith(later)]
print(sorted(new & unwanted), names, gc.isenabled())
"""


def test_loading_imports_only_what_every_notebook_needs(tmp_path: Path) -> None:
    env = {
        "HOME": str(tmp_path),
        "PATH": "",
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "PYTHONPATH": str(Path(op_jupyter.__file__).parents[1]),
    }
    said = subprocess.run(
        [sys.executable, "-c", LOAD], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.split("\n")[-2] == "[] [] True"
