"""A real IPython shell and a scripted model, for tests of the notebook layer."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

from op_jupyter.engine.runtime import Runtime
from op_jupyter.testing.providers import Script, ScriptedProvider


class Shell:
    """A shell and what it showed; nobody can be asked in it."""

    def __init__(self, folder: Path, *, watched: bool = True) -> None:
        self._folder = folder
        self._watched = watched
        self.shown: list[dict[str, Any]] = []
        self.metadata: list[dict[str, Any]] = []
        self.start()

    def start(self) -> None:
        """Make `ip` a new shell, as a new process would have it."""
        InteractiveShell.clear_instance()
        self.ip = InteractiveShell.instance(ipython_dir=str(self._folder))
        self.ip.history_manager.enabled = False
        if self._watched:
            self.ip.display_pub.publish = self._publish

    def end(self) -> None:
        """Close what the shell has open."""
        self.ip.history_manager.end_session()
        # At the end of all tests it would collect garbage, once for each shell.
        atexit.unregister(self.ip.atexit_operations)
        InteractiveShell.clear_instance()

    def _publish(self, data: Any = None, metadata: Any = None, **_: Any) -> None:
        self.shown.append(dict(data))
        self.metadata.append(dict(metadata or {}))

    def run(self, code: str) -> ExecutionResult:
        """Run a cell; its error, if any, is in the result."""
        return self.ip.run_cell(code, store_history=True)

    def value(self, code: str) -> Any:
        """Run a cell that must go well, and return its value."""
        result = self.run(code)
        result.raise_error()
        return result.result

    def error(self, code: str) -> BaseException:
        """Run a cell that must fail, and return why."""
        result = self.run(code)
        error = result.error_in_exec or result.error_before_exec
        assert error is not None, f"{code!r} went well: {result.result!r}"
        return error

    def says(self, code: str) -> str:
        """Run a cell that must go well, and return the text it shows."""
        before = len(self.shown)
        self.value(code)
        return "\n".join(data.get("text/plain", "") for data in self.shown[before:])


class Model:
    """The scripted model behind the notebook's runtime."""

    def __init__(self) -> None:
        self.provider = ScriptedProvider()
        self.settings: list[Any] = []

    def answers(self, *scripts: Script) -> None:
        """Play these, one for each model call that is still to come."""
        self.provider.add(*scripts)

    def runtime(self, settings: Any, _replay: Any) -> Runtime:
        self.settings.append(settings)
        return Runtime(provider=self.provider, max_retries=0)

    def sent(self, call: int = -1) -> str:
        """All text of the messages of one request."""
        return "\n".join(m.text for m in self.provider.requests[call].messages)
