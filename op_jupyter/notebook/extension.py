"""``%load_ext openprogram`` and ``%unload_ext openprogram``.

Loading registers and opens, it asks no network and imports no provider and no widget.
Unloading leaves the shell exactly as it was.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from op_jupyter.engine.context import SessionHandle
from op_jupyter.engine.loop import set_waiter
from op_jupyter.errors import OpenProgramError
from op_jupyter.notebook.completion import completers
from op_jupyter.notebook.config import AgentMagics
from op_jupyter.notebook.display import put
from op_jupyter.notebook.frontend import detect, kernel_of
from op_jupyter.notebook.identity import cell_run
from op_jupyter.notebook.magics import AgentMagic
from op_jupyter.notebook.models import MakeRuntime
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.store.base import Store

READY: Final = "OpenProgram ready: %agent help"
_MISSING: Final = object()


class _Loaded:
    """What was registered in one shell, and how each piece is put back."""

    def __init__(self, shell: Any, notebook: Notebook) -> None:
        self.shell = shell
        self.notebook = notebook
        self._undo: list[Callable[[], None]] = []

    def register(self) -> None:
        """Put everything in its place."""
        shell, notebook = self.shell, self.notebook
        for kind in ("line", "cell"):
            # Another extension may have used the name.
            self._put_back(shell.magics_manager.magics[kind], "agent")
        AgentMagic(notebook).register()
        shell.configurables.append(notebook.config)
        self._undo.append(lambda: shell.configurables.remove(notebook.config))
        for word, completer in completers(notebook).items():
            self._complete(word, completer)
        self._draw_handles()
        self._listen("pre_run_cell", notebook.before_cell)
        self._listen("post_run_cell", notebook.after_cell)
        atexit.register(self._leave)
        self._undo.append(lambda: atexit.unregister(self._leave))
        set_waiter(notebook.lent.wait)
        self._undo.append(lambda: set_waiter(None))
        self._undo.append(notebook.close)

    def _complete(self, word: str, completer: Callable[[Any, Any], list[str]]) -> None:
        table = self.shell.strdispatchers["complete_command"].strs
        self._put_back(table, word)
        theirs = table.pop(word, None)  # ours goes first, theirs is kept as it is
        self.shell.set_hook("complete_command", completer, str_key=word)
        if theirs is not None:
            table[word].chain.extend(theirs.chain)

    def _draw_handles(self) -> None:
        """Have a session's handle shown as its graph; the engine knows nothing of displays."""
        printers = self.shell.display_formatter.mimebundle_formatter.type_printers
        self._put_back(printers, SessionHandle)
        printers[SessionHandle] = _drawn

    def _listen(self, event: str, callback: Callable[[Any], None]) -> None:
        self.shell.events.register(event, callback)
        self._undo.append(lambda: self.shell.events.unregister(event, callback))

    def _put_back(self, table: dict[Any, Any], name: Any) -> None:
        before = table.get(name, _MISSING)

        def restore() -> None:
            if before is _MISSING:
                table.pop(name, None)
            else:
                table[name] = before

        self._undo.append(restore)

    def _leave(self) -> None:
        """End with the process.  The kernel has closed its channels: no click comes any more."""
        set_waiter(None)
        self.notebook.lent.leave()
        self.undo()

    def undo(self) -> None:
        """Take everything away again, the last thing first."""
        while self._undo:
            self._undo.pop()()


def _drawn(handle: SessionHandle) -> dict[str, str]:
    from op_jupyter.views.session_bundle import session_bundle

    return session_bundle(handle.agent.dag)


_loaded: dict[int, _Loaded] = {}
"""The notebook of each shell, by identity; a kernel has one."""


_left: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The session of each shell that was unloaded: `%reload_ext` goes on with it."""


def load(
    shell: Any, *, store: Store | None = None, make_runtime: MakeRuntime | None = None
) -> Notebook:
    """Load into *shell*, with a store and a model service of the caller's choice if given.

    Loading again changes nothing.
    """
    if (known := _loaded.get(id(shell))) is not None:
        return known.notebook
    notebook = Notebook(
        shell,
        AgentMagics(parent=shell),
        store=store,
        make_runtime=make_runtime,
        goes_on=_left.pop(shell, None),
    )
    loaded = _Loaded(shell, notebook)
    loaded.register()
    _loaded[id(shell)] = loaded
    return notebook


def unload(shell: Any) -> None:
    """Take away what `load` put there; harmless when it is not loaded."""
    loaded = _loaded.pop(id(shell), None)
    if loaded is None:
        return
    if (session_id := loaded.notebook.begun) is not None:
        _left[shell] = session_id
    loaded.undo()


def load_ipython_extension(shell: Any) -> None:
    """Load, say so in one line that is always the same, and open the session."""
    notebook = load(shell)
    notebook.lent.attach()
    metadata: dict[str, Any] = {}
    text = READY
    try:
        notebook.install()
        notebook.meet_pages()
        if detect(shell).can_answer and (earlier := notebook.offered()) is not None:
            metadata = {"openprogram": {"earlier_session_id": earlier.id}}
    except OpenProgramError as error:
        text = f"OpenProgram is loaded, but no session can be opened: {error.message}"
    if kernel_of(shell) is None or cell_run(shell).request_id is not None:
        put({"text/plain": text}, metadata=metadata)  # else the kernel starts; no cell shows it


def unload_ipython_extension(shell: Any) -> None:
    """Leave the shell as it was before."""
    unload(shell)
