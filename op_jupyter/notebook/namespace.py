"""The `python` tool: code of the model in the user's namespace, on the thread of the cell.

It is no cell: the execution count, ``In`` and ``Out``, ``_`` and the cell hooks stay as they
are.  What the code defines stays; what it prints and displays appears in the cell.
"""

from __future__ import annotations
import __future__

import ast
import asyncio
import contextvars
import hashlib
import inspect
import linecache
import re
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine, Mapping
from contextlib import chdir, nullcontext
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from op_jupyter.core.messages import TextBlock, ToolSpec
from op_jupyter.core.permissions import Effect
from op_jupyter.core.turn import ToolState
from op_jupyter.errors import InvalidArguments
from op_jupyter.notebook.capture import Redact, Transcript, captured
from op_jupyter.notebook.known_names import known_names
from op_jupyter.tools.base import CallDescription, ToolContext, ToolOutput
from op_jupyter.tools.schema import Signature, read_signature
from op_jupyter.tools.tracebacks import short_traceback

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_FUTURES: Final = sum(
    {getattr(__future__, name).compiler_flag for name in __future__.all_feature_names}
)

_SHELL_LINE: Final = re.compile(r"^\s*[%!]", re.MULTILINE)
_PLAIN_ONLY: Final = "; the code has to be plain Python, lines with % or ! do not work here"
CLICKS_WAIT: Final = (
    "on the notebook's main thread: clicks wait until it ends, the kernel's stop button works"
)
JOIN_SECONDS: Final = 0.2
STOP_SECONDS: Final = 2.0


def _python(code: str) -> None:
    """Run Python code in the person's notebook.

    Its variables, imports and functions are there, and what the code defines stays there. What
    the code prints and the value of its last expression come back, plots too. Plain Python
    only: no lines with % or !. `await` works.

    Args:
        code: the code to run.
    """


class PythonTool:
    """`python`."""

    effect: Effect = "execute"
    timeout: float | None = None
    trusted = False

    def __init__(self, shell: InteractiveShell, *, redact: Redact = str) -> None:
        """Run code in the namespace of *shell*; *redact* keeps secrets out of the cell."""
        self._shell = shell
        self._redact = redact
        self.signature: Signature = read_signature(_python, name="python")

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        return self.signature.spec

    def check(self, arguments: Mapping[str, Any]) -> str:
        """What is wrong with *arguments*, or nothing; code that cannot run asks nobody."""
        try:
            code = self.signature.bind(arguments)["code"]
        except InvalidArguments as error:
            return error.message
        return _syntax_problem(code)

    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        """The code."""
        code = arguments["code"]
        known = known_names(code, self._shell.user_ns)
        return CallDescription(code=code, language="python", known=known)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Run the code on the main thread; output and errors are the result."""
        code = self.signature.bind(arguments)["code"]
        if context.main_thread is None:
            text = "python was not run: code runs only while a cell of the notebook waits for it"
            return ToolOutput((TextBlock(text),), "failed")
        context.progress(CLICKS_WAIT)
        place = nullcontext() if context.worktree is None else chdir(context.workspace)

        def work() -> ToolOutput:
            with place:
                return run_code(self._shell, code, self._redact)

        return await context.main_thread.run(work)


def run_code(shell: InteractiveShell, code: str, redact: Redact = str) -> ToolOutput:
    """Run *code* in the namespace of *shell*, on this thread.

    Never raises: an interrupt is a ``cancelled`` result, anything else a ``failed`` one.
    """
    transcript = Transcript()
    state: ToolState = "succeeded"
    try:
        with captured(shell, transcript, redact) as threads, shell.builtin_trap:
            state = _run(_Code(shell, code, threads), transcript)
            _flush_figures()
    except KeyboardInterrupt:  # while the outcome of the code was being shown
        state = "cancelled"
    return ToolOutput(transcript.content(), state)


def _run(code: _Code, transcript: Transcript) -> ToolState:
    try:
        code.run()
    except KeyboardInterrupt:
        transcript.write_block("\n(interrupted)")
        return "cancelled"
    except SystemExit as error:
        transcript.write_block(f"SystemExit: {error}; the code ended there, Python did not")
        return "failed"
    except BaseException as error:  # noqa: BLE001 -- code of the model; it reads what it raised
        transcript.write_block(short_traceback(error, code.filename))
        return "failed"
    return "succeeded"


# --- compiling --------------------------------------------------------------------------


def _parse(code: str, flags: int = 0) -> ast.Module:
    flags |= ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(code, "<code>", "exec", flags, dont_inherit=True)
    assert isinstance(tree, ast.Module)
    return tree


def _syntax_problem(code: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said when it runs
            _parse(code)
    except SyntaxError as error:
        hint = _PLAIN_ONLY if _SHELL_LINE.search(code) else ""
        line = (error.text or "").strip()
        return f"code: SyntaxError: {error.msg} (line {error.lineno}: {line}){hint}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"code: {type(error).__name__}: {error}"
    return ""


class _Code:
    """One piece of code, ready to run like a cell: its last expression is displayed."""

    def __init__(self, shell: InteractiveShell, code: str, threads: set[int]) -> None:
        self._shell = shell
        self._code = code
        self._threads = threads
        digest = hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
        self.filename = f"<python tool {digest[:12]}>"
        # None for the time: the lines are never dropped, so functions keep their source.
        lines = [f"{line}\n" for line in code.splitlines()]
        linecache.cache[self.filename] = (len(code), None, lines, self.filename)

    def run(self) -> None:
        """Run it, and display the value of its last expression."""
        flags = self._shell.compile.flags & _FUTURES
        tree = self._shell.transform_ast(_parse(self._code, flags))  # type: ignore[no-untyped-call]
        last = tree.body[-1] if tree.body else None
        shown = isinstance(last, ast.Expr) and not self._is_silenced(last)
        if shown:
            tree.body.pop()
        flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self._execute(compile(tree, self.filename, "exec", flags, dont_inherit=True))
        if shown and isinstance(last, ast.Expr):
            expression = ast.Expression(last.value)
            value = self._execute(
                compile(expression, self.filename, "eval", flags, dont_inherit=True)
            )
            _display(value)

    def _is_silenced(self, last: ast.Expr) -> bool:
        """Whether a semicolon follows the last expression, as in a cell."""
        lines = self._code.splitlines()
        end = (last.end_lineno or 1) - 1
        rest = lines[end].encode()[last.end_col_offset or 0 :].decode("utf-8", "replace")
        return rest.lstrip().startswith(";")

    def _execute(self, code: CodeType) -> Any:
        value = eval(code, self._shell.user_global_ns, self._shell.user_ns)
        if code.co_flags & inspect.CO_COROUTINE:
            return _await(self._shell, value, self._threads)
        return value


def _display(value: Any) -> None:
    if value is None:
        return
    from IPython.display import display

    display(value)  # type: ignore[no-untyped-call]


def _flush_figures() -> None:
    """Show the figures that the code has drawn, as the end of a cell would."""
    backend = sys.modules.get("matplotlib_inline.backend_inline")
    if backend is not None:
        backend.flush_figures()


# --- await ------------------------------------------------------------------------------


def _await(shell: InteractiveShell, coroutine: Coroutine[Any, Any, Any], threads: set[int]) -> Any:
    """The value of *coroutine*.

    A kernel's own loop is busy with the cell that waits for us, so there the coroutine runs
    in a loop of its own, in another thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return shell.loop_runner(coroutine)
    return _OwnLoop(coroutine, threads).value()


class _OwnLoop:
    """A coroutine in an event loop and a thread of its own."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], threads: set[int]) -> None:
        self._coroutine = coroutine
        self._threads = threads
        self._ready = threading.Event()
        self._cancel: Callable[[], object] = lambda: None
        self._outcome: Callable[[], Any] = lambda: None
        context = contextvars.copy_context()  # output goes to the same cell
        self._thread = threading.Thread(target=context.run, args=(self._work,), daemon=True)

    def value(self) -> Any:
        """Wait for the value; an interrupt cancels the coroutine."""
        try:
            self._thread.start()
            while self._thread.is_alive():
                self._thread.join(JOIN_SECONDS)
        except KeyboardInterrupt:
            self._ready.wait(STOP_SECONDS)
            self._cancel()
            if self._thread.ident is not None:
                self._thread.join(STOP_SECONDS)
            raise
        return self._outcome()

    def _work(self) -> None:
        self._threads.add(threading.get_ident())
        try:
            value = asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 -- raised again in the waiting thread
            self._outcome = _raiser(error)
        else:
            self._outcome = lambda: value
        finally:
            self._threads.discard(threading.get_ident())

    async def _main(self) -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        self._ready.set()
        return await self._coroutine


def _raiser(error: BaseException) -> Callable[[], Any]:
    def raise_it() -> Any:
        raise error

    return raise_it
