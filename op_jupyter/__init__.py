"""Agents inside Jupyter notebooks: docstring as prompt, a DAG of what ran, kept in git.

Importing this package is instant: every public name is loaded on first use.
"""

from __future__ import annotations

import gc
import importlib
from typing import TYPE_CHECKING, Any

from op_jupyter.engine import hooks as _hooks

if TYPE_CHECKING:
    from op_jupyter.bootstrap import create_runtime
    from op_jupyter.engine.context import carry, current_session
    from op_jupyter.engine.decision import decision
    from op_jupyter.engine.function import agentic_function
    from op_jupyter.engine.hooks import (
        add_pre_invocation_hook,
        remove_pre_invocation_hook,
        set_ask_handler,
        set_cancellation_check,
        set_permission_handler,
        set_session_id_provider,
    )
    from op_jupyter.engine.questions import ask, can_ask, confirm, form
    from op_jupyter.engine.runtime import Runtime, agent, llm
    from op_jupyter.engine.session_context import session_context, session_scope
    from op_jupyter.engine.traced import traced
    from op_jupyter.engine.workers.mapping import agentic_map, submit
    from op_jupyter.engine.workers.pool import WorkerPool
    from op_jupyter.store.sessions import SessionStore
    from op_jupyter.tools.shapes import anthropic_tool, openai_tool

__version__ = "0.1.0"

_hooks.set_defaults(lambda: importlib.import_module("op_jupyter.bootstrap"))

_HOMES = {
    "Runtime": "op_jupyter.engine.runtime",
    "SessionStore": "op_jupyter.store.sessions",
    "WorkerPool": "op_jupyter.engine.workers.pool",
    "add_pre_invocation_hook": "op_jupyter.engine.hooks",
    "agent": "op_jupyter.engine.runtime",
    "agentic_map": "op_jupyter.engine.workers.mapping",
    "agentic_function": "op_jupyter.engine.function",
    "anthropic_tool": "op_jupyter.tools.shapes",
    "ask": "op_jupyter.engine.questions",
    "can_ask": "op_jupyter.engine.questions",
    "carry": "op_jupyter.engine.context",
    "confirm": "op_jupyter.engine.questions",
    "create_runtime": "op_jupyter.bootstrap",
    "current_session": "op_jupyter.engine.context",
    "decision": "op_jupyter.engine.decision",
    "form": "op_jupyter.engine.questions",
    "llm": "op_jupyter.engine.runtime",
    "openai_tool": "op_jupyter.tools.shapes",
    "remove_pre_invocation_hook": "op_jupyter.engine.hooks",
    "session_context": "op_jupyter.engine.session_context",
    "session_scope": "op_jupyter.engine.session_context",
    "set_ask_handler": "op_jupyter.engine.hooks",
    "set_cancellation_check": "op_jupyter.engine.hooks",
    "set_permission_handler": "op_jupyter.engine.hooks",
    "set_session_id_provider": "op_jupyter.engine.hooks",
    "submit": "op_jupyter.engine.workers.mapping",
    "traced": "op_jupyter.engine.traced",
}

__all__ = [
    "Runtime",
    "SessionStore",
    "WorkerPool",
    "__version__",
    "add_pre_invocation_hook",
    "agent",
    "agentic_function",
    "agentic_map",
    "anthropic_tool",
    "ask",
    "can_ask",
    "carry",
    "confirm",
    "create_runtime",
    "current_session",
    "decision",
    "form",
    "llm",
    "openai_tool",
    "remove_pre_invocation_hook",
    "session_context",
    "session_scope",
    "set_ask_handler",
    "set_cancellation_check",
    "set_permission_handler",
    "set_session_id_provider",
    "submit",
    "traced",
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(importlib.import_module(home), name)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext op_jupyter`: see `notebook.extension`."""
    collects = gc.isenabled()
    gc.disable()  # modules are not garbage; to look for some is a good part of the time
    try:
        extension = importlib.import_module("op_jupyter.notebook.extension")
        extension.load_ipython_extension(shell)
    finally:
        if collects:
            gc.enable()


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext op_jupyter`: leave the shell as it was."""
    importlib.import_module("op_jupyter.notebook.extension").unload_ipython_extension(shell)
