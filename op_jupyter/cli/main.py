"""The command `op-jupyter`.

Exit codes: 0 it worked; 1 it did not, and one line on stderr says why; 2 the command line is
wrong; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from op_jupyter import __version__
from op_jupyter.cli.usage import BadCommandLine
from op_jupyter.errors import OpenProgramError

FAILED: Final = 1
WRONG: Final = 2
INTERRUPTED: Final = 130

Command = Callable[[argparse.Namespace], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    args = parser().parse_args(argv)
    command: Command = args.command
    try:
        command(args)
        sys.stdout.flush()
    except BadCommandLine as error:
        print(f"op-jupyter: {error.message}", file=sys.stderr)
        return WRONG
    except OpenProgramError as error:
        print(f"op-jupyter: {error.message}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="op-jupyter",
        description="Agents in Jupyter notebooks, and the sessions that they leave.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"op-jupyter {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    demo = _add(commands, "demo", _demo, "open the quickstart in JupyterLab")
    demo.add_argument(
        "--headless",
        action="store_true",
        help="drive it in a headless browser instead, and write what came of it into a folder",
    )
    demo.add_argument("--csv", type=Path, metavar="PATH", help="ask about this file instead")
    demo.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        default=Path("demo-output"),
        help="folder for the notebook and its results (default: %(default)s)",
    )

    run = _add(commands, "run", _run, "call a function of a file, in a session")
    run.add_argument("target", metavar="FILE:FUNCTION", help="for example review.py:classify")
    run.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an argument: text, or JSON for what is no text; once for each",
    )
    run.add_argument(
        "--session",
        "--resume",
        metavar="ID",
        help="the session to go on with (default: a new one, whose id is printed)",
    )

    local = commands.add_parser("local", help="the tiny model that runs on this machine")
    local_commands = local.add_subparsers(metavar="COMMAND", required=True)
    _add(local_commands, "install", _local_install, "fetch the model's file")

    sessions = _add(commands, "sessions", _sessions, "list the stored sessions, newest first")
    sessions.add_argument("--json", action="store_true", help="as a JSON list")

    show = _add(commands, "show", _show, "show a session, a node of it, or its prompts")
    show.add_argument("id", metavar="ID", help="session id")
    show.add_argument("--node", metavar="NODE", help="only this node, in full")
    show.add_argument(
        "--prompt",
        action="store_true",
        help="what the model was sent: by that node, or by every model call",
    )

    kernel = commands.add_parser("kernel", help='the kernel "Python 3 (OpenProgram)"')
    kernel_commands = kernel.add_subparsers(metavar="COMMAND", required=True)
    install = _add(kernel_commands, "install", _kernel_install, "make it known to Jupyter")
    install.add_argument(
        "--prefix", type=Path, metavar="DIR", help="environment to install into (default: yours)"
    )
    return top


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    command: Command,
    summary: str,
) -> argparse.ArgumentParser:
    added = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    added.set_defaults(command=command)
    return added


# Each command imports what it needs: `op-jupyter --help` should not load a store or Jupyter.


def _demo(args: argparse.Namespace) -> None:
    from op_jupyter.cli.demo import run_demo

    run_demo(args.out, csv=args.csv, headless=args.headless)


def _run(args: argparse.Namespace) -> None:
    from op_jupyter.cli.run import run

    run(args.target, args.arg, args.session)


def _local_install(args: argparse.Namespace) -> None:
    from op_jupyter.providers.local_model import install

    print(f"The model is in {install(lambda line: print(line, flush=True))}")


def _sessions(args: argparse.Namespace) -> None:
    from op_jupyter.bootstrap import default_store
    from op_jupyter.cli import sessions

    store = default_store()
    print(sessions.sessions_json(store) if args.json else sessions.sessions_text(store))


def _show(args: argparse.Namespace) -> None:
    from op_jupyter.bootstrap import default_store
    from op_jupyter.cli import sessions

    store = default_store()
    if args.prompt:
        print(sessions.prompts_text(store, args.id, args.node))
    elif args.node is not None:
        print(sessions.node_text(store, args.id, args.node))
    else:
        print(sessions.session_text(store, args.id))


def _kernel_install(args: argparse.Namespace) -> None:
    from op_jupyter.cli.kernelspec import install

    print(f"The kernel is in {install(args.prefix)}")
