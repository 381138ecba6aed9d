"""What a turn works with, and what that takes: model, provider, tools, tokens."""

from __future__ import annotations

import argparse
from typing import Final

from op_jupyter.bootstrap import told_provider
from op_jupyter.core.prices import Spent, spent
from op_jupyter.errors import UsageError
from op_jupyter.notebook.commands.base import Said, command
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import flag
from op_jupyter.views.text import visible

DEFAULT: Final = "default"
"""The word that takes a choice of this notebook back."""


@command(
    "model",
    flag("model", kind="model", nargs="?", help=f"The new model; {DEFAULT}: the configured one."),
)
def model(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Show or set the model, for as long as this kernel runs."""
    if args.model is not None:
        notebook.config.model = "" if args.model == DEFAULT else args.model
        notebook.install()
    return Said(f"model: {_origin(notebook, 'model')}")


@command(
    "provider",
    flag(
        "provider",
        kind="provider",
        nargs="?",
        help=f"The new provider; {DEFAULT}: the configured one.",
    ),
)
def provider(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Show or set the provider, for as long as this kernel runs."""
    if args.provider is not None:
        wanted = "" if args.provider == DEFAULT else args.provider
        if wanted:  # refused here, not by the next turn
            _ = notebook.service(provider=wanted).runtime.provider.capabilities
        notebook.config.provider = wanted
        notebook.install()
    return Said(f"provider: {_origin(notebook, 'provider')}")


def _origin(notebook: Notebook, name: str) -> str:
    setting = notebook.config.settings().values.get(name)
    if setting is None:
        found = told_provider(notebook.config.settings())
        return f"none is named; what is found first is asked: {found}"
    return f"{setting.value} (from {setting.origin})"


@command(
    "tools",
    flag(
        "changes",
        kind="extra tool",
        nargs="?",
        help="+NAME to offer an optional tool (shell, remember, recall), -NAME to withdraw it.",
    ),
    verbatim=True,
)
def tools(notebook: Notebook, args: argparse.Namespace) -> Said:
    """List the tools on offer, or add and remove optional ones: +shell, -shell."""
    from op_jupyter.notebook.toolbox import extra_tool

    session = notebook.session
    notebook.connect_servers(session)
    extra = list(session.dag.meta.get("extra_tools", ()))
    changes = (args.changes or "").split()
    for change in changes:
        sign, name = change[0], change[1:]
        if sign not in "+-":
            raise UsageError(f"write +{change} to offer it, -{change} to offer it no longer")
        extra_tool(name, session)
        extra = [*(kept for kept in extra if kept != name), *([name] if sign == "+" else ())]
    if changes:
        session.recorder.set_meta(extra_tools=extra)
        notebook.offer_tools(session)
    lines = [f"tools: {', '.join(session.tools.names)}", f"sandbox: {session.sandbox}"]
    return Said("\n".join([*lines, *notebook.servers.problems]))


@command(
    "cost",
    flag("turn", kind="turn", nargs="?", help="Only this turn; default: all turns."),
)
def cost(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Show the tokens used by each model, and the cost if the settings file has prices."""
    graph = notebook.session.dag
    found = [turn_id for turn_id in graph.turns if turn_id.startswith(args.turn or "")]
    if args.turn is not None and args.turn not in graph.turns and len(found) != 1:
        raise UsageError(f"{args.turn!r} names {len(found)} turns of this session; name one")
    of = {args.turn} if args.turn in graph.turns else set(found)
    rows, settings = spent(n for n in graph if n.turn_id in of), notebook.config.settings()
    if not rows:
        return Said("No model was asked yet.")
    costs = [
        None if (price := settings.prices.get(row.model)) is None else price.of(row.usage)
        for row in rows
    ]
    lines = [_row(row, amount) for row, amount in zip(rows, costs, strict=True)]
    known = [amount for amount in costs if amount is not None]
    if len(known) > 1:
        lines.append(f"together {sum(known):.4f}")
    if unknown := [row.model for row in rows if row.model not in settings.prices]:
        lines.append(
            f"no price for {', '.join(unknown)}: the settings file {settings.file} can name one, "
            f'[prices."{unknown[0]}"] with input and output for a million tokens'
        )
    return Said(visible("\n".join(lines)))


def _row(row: Spent, price: float | None) -> str:
    usage = row.usage
    told = "" if price is None else f", cost {price:.4f}"
    calls = f"{row.calls} call{'' if row.calls == 1 else 's'}"
    return (
        f"{row.model}: {calls}, {usage.input_tokens:,} tokens sent ({usage.cache_read_tokens:,} "
        f"cached), {usage.output_tokens:,} received{told}"
    )
