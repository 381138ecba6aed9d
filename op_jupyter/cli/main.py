"""The command `op-jupyter`: its commands, and how each of them ends."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from op_jupyter import __version__
from op_jupyter.cli.exit_codes import ExitCode, code_of
from op_jupyter.cli.frame import (
    Command,
    CommandParser,
    Commands,
    add_json,
    add_session,
    parse,
    positive,
)
from op_jupyter.errors import OpenProgramError

PROGRAM: Final = "op-jupyter"
SHELLS: Final = ("bash", "zsh", "fish")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _open_closed()
    top = parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what could follow, and reads the answer
        import argcomplete

        argcomplete.autocomplete(top)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may know ASCII alone
    args = parse(top, sys.argv[1:] if argv is None else argv)
    try:
        code = _run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        _drop_output()
        return ExitCode.OK
    except OSError as error:  # of stdout, as a rule: its disk is full, or its terminal is gone
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        _drop_output()
        return ExitCode.FAILED
    return code


def _open_closed() -> None:
    """Somewhere to write to, where the process was started without (``>&-``)."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 -- for as long as the process lives
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _drop_output() -> None:
    """What is not written yet goes nowhere; otherwise Python would try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(args: argparse.Namespace) -> int:
    command: Command = args.command
    try:
        return command(args) or ExitCode.OK
    except OpenProgramError as error:
        code = code_of(error)
        if getattr(args, "json", False):
            said = {"type": type(error).__name__, "message": error.message, "exit_code": code}
            print(json.dumps({"error": said}), file=sys.stderr)
        else:
            print(f"{PROGRAM}: {error.message}", file=sys.stderr)
        return code


def parser() -> CommandParser:
    """The whole command line."""
    top = CommandParser(
        prog=PROGRAM,
        description="Work with the sessions of agents in Jupyter notebooks.",
    )
    top.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = top.add_commands()
    _declare_running(commands)
    _declare_reading(commands)
    _declare_keeping(commands)
    _declare_exchanging(commands)
    _declare_cassettes(commands)
    _declare_installing(commands)
    _declare_help(commands)
    return top


def _declare_running(commands: Commands) -> None:
    demo = commands.add("demo", _demo, "open the quickstart in JupyterLab")
    demo.add_argument(
        "--headless",
        action="store_true",
        help="run it in a headless browser instead, and write the results to a folder",
    )
    demo.add_argument("--csv", type=Path, metavar="PATH", help="ask about this CSV file instead")
    demo.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        default=Path("demo-output"),
        help="folder for the notebook and its results (default: %(default)s)",
    )

    lessons = commands.add(
        "lessons",
        _lessons,
        "copy the lessons to a folder",
        "The lessons are notebooks that replay recorded model calls, without a model. Existing "
        "files are kept.",
    )
    lessons.add_argument(
        "folder",
        type=Path,
        nargs="?",
        metavar="DIR",
        default=Path("lessons"),
        help="target folder (default: %(default)s)",
    )

    run = commands.add("run", _run_function, "call a function from a file")
    run.add_argument("target", metavar="FILE:FUNCTION", help="for example review.py:classify")
    run.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an argument; JSON, unless the parameter takes text; repeat for each argument",
    )
    run.add_argument(
        "--session",
        "--resume",
        metavar="ID",
        help="the session to continue (default: a new one, whose id is printed)",
    ).completer = _session_ids  # type: ignore[attr-defined]  # where argcomplete looks for it

    resume = commands.add(
        "resume",
        _resume,
        "continue a session in the terminal",
        "The answer is streamed, and approvals are asked in the terminal. Where there is no "
        "terminal, calls that need approval are denied. Ctrl-C stops the turn and keeps what it "
        "did.",
    )
    add_session(resume, _session_ids)
    resume.add_argument("prompt", nargs="?", metavar="PROMPT", help="run just this turn")
    resume.add_argument("--shell", action="store_true", help="enable the shell tool")
    add_json(resume, "print the attempt and the reply as JSON instead of streaming")


def _declare_reading(commands: Commands) -> None:
    sessions = commands.add("sessions", _sessions, "list the stored sessions, newest first")
    sessions.add_argument(
        "--limit", type=positive, metavar="N", default=None, help="list at most N (default: all)"
    )
    sessions.add_argument(
        "--all", action="store_true", help="include archived sessions and those of sub-agents"
    )
    add_json(sessions)

    search = commands.add(
        "search",
        _search,
        "search the messages and titles of all sessions",
        "A result contains every word. A word of three or more letters also matches longer words "
        "that start with it.",
    )
    search.add_argument("text", nargs="+", metavar="TEXT", help="words to search for")
    search.add_argument(
        "--limit", type=positive, metavar="N", default=20, help="at most N (default: %(default)s)"
    )
    add_json(search)

    show = commands.add("show", _show, "show a session, one of its nodes, or its prompts")
    add_session(show, _session_ids)
    show.add_argument("--node", metavar="NODE", help="show this node in full")
    show.add_argument(
        "--prompt",
        action="store_true",
        help="show what the model was sent, by that node or by every model call",
    )
    add_json(show, "print its messages and attempts as JSON")


def _declare_keeping(commands: Commands) -> None:
    doctor = commands.add(
        "doctor",
        _doctor,
        "check a session or this installation",
        "Without an id it checks the installation, and every session briefly. It changes nothing "
        "without --repair.",
    )
    add_session(doctor, _session_ids, optional=True)
    doctor.add_argument(
        "--repair", action="store_true", help="repair what can be; what is replaced is kept"
    )
    doctor.add_argument(
        "--force",
        action="store_true",
        help="with --repair: ignore a lock that another machine has left behind",
    )
    add_json(doctor)

    gc = commands.add("gc", _gc, "pack the git repository of a session to save disk space")
    add_session(gc, _session_ids, optional=True)
    gc.add_argument("--all", action="store_true", help="pack every session that is not open")

    push = commands.add(
        "push",
        _push,
        "push a session to another git repository",
        "REMOTE is a local folder or an ssh address. If the session has continued there as well, "
        "the local line becomes a separate branch there.",
    )
    add_session(push, _session_ids)
    push.add_argument("remote", metavar="REMOTE", help="for example me@host:sessions.git")
    pull = commands.add(
        "pull",
        _pull,
        "pull one session, or all, from another git repository",
        "If a session has continued here as well, the remote line becomes a separate branch here.",
    )
    pull.add_argument("remote", metavar="REMOTE", help="a local folder or an ssh address")
    pull.add_argument("id", metavar="ID", nargs="?", help="the full id (default: all sessions)")

    archive = commands.add(
        "archive",
        _archive,
        "hide a session from lists",
        "It stays where it is; search finds it, and `sessions --all` lists it.",
    )
    add_session(archive, _session_ids)
    archive.add_argument("--undo", action="store_true", help="show it in lists again")

    trash = commands.group("trash", "deleted sessions, which can be restored until they are purged")
    add_json(trash.add("list", _trash_list, "list deleted sessions, newest first"))
    add_session(trash.add("put", _trash_put, "move a session to the trash"), _session_ids)
    restore = trash.add("restore", _trash_restore, "restore a deleted session")
    restore.add_argument("id", metavar="ID", help="its id, or a unique beginning of it")
    purge = trash.add("purge", _trash_purge, "delete permanently, by id or by age")
    purge.add_argument("id", metavar="ID", nargs="?", help="the full id of a deleted session")
    purge.add_argument(
        "--older-than",
        type=_age,
        metavar="AGE",
        help="everything deleted longer ago than this: 30d, 12h; 0s is everything",
    )


def _declare_exchanging(commands: Commands) -> None:
    export = commands.add("export", _export, "export a session as a document")
    add_session(export, _session_ids)
    export.add_argument(
        "--format",
        choices=("md", "html", "json", "ipynb"),
        help="Markdown, a web page, JSON for import, or a notebook (default: by FILE's suffix, or "
        "md)",
    )
    export.add_argument("--output", "-o", type=Path, metavar="FILE", help="write to this file")
    export.add_argument(
        "--whole",
        action="store_true",
        help="JSON: include all stored file contents, even beyond 16 MB",
    )

    fork = commands.add(
        "fork",
        _fork,
        "copy a session to a new one",
        "This also works while another process has the session open; nothing is changed there.",
    )
    add_session(fork, _session_ids)
    fork.add_argument("--id", dest="new", metavar="ID", help="id of the copy (default: generated)")

    import_ = commands.add(
        "import",
        _import,
        "import a session from a JSON export or a session's folder",
        "Permissions are not imported: allow rules, modes, extra tools. If the id is taken, a new "
        "one is generated.",
    )
    import_.add_argument("path", type=Path, metavar="PATH", help="the JSON file or the folder")
    import_.add_argument("--id", metavar="ID", help="its id here (default: unchanged)")
    add_json(import_)


def _declare_cassettes(commands: Commands) -> None:
    cassette = commands.group("cassette", "recorded model calls, replayed by notebooks and tests")
    list_ = cassette.add("list", _cassette_list, "list cassettes and what they contain")
    list_.add_argument(
        "paths", type=Path, nargs="*", metavar="PATH", help="cassettes or folders (default: here)"
    )
    show = cassette.add("show", _cassette_show, "show what is recorded in a cassette")
    show.add_argument("path", type=Path, metavar="CASSETTE", help="the file")
    show.add_argument("--request", metavar="KEY", help="this request and its replies, in full")
    for name, command, summary in (
        ("check", _cassette_check, "replay notebooks and list unused recordings"),
        ("prune", _cassette_prune, "replay notebooks and remove unused recordings"),
    ):
        made = cassette.add(name, command, summary)
        made.add_argument(
            "paths", type=Path, nargs="+", metavar="PATH", help="the notebooks, or a cassette"
        )
        made.add_argument("--run", metavar="COMMAND", help="run this command instead of notebooks")
    refresh = cassette.add(
        "refresh",
        _cassette_refresh,
        "replay notebooks and save their current outputs",
        "Use it when outputs look different with a new version, although the recording still fits.",
    )
    refresh.add_argument(
        "paths", type=Path, nargs="+", metavar="NOTEBOOK", help="the notebooks, changed in place"
    )
    merge = cassette.add(
        "merge",
        _cassette_merge,
        "merge two versions of a cassette into the first",
        "To use it as a git merge driver: `git config merge.cassette.driver "
        f"'{PROGRAM} cassette merge %A %B --base %O'`, and `*.cassette merge=cassette` in "
        ".gitattributes. What both sides changed stays as in the first, and is reported.",
    )
    merge.add_argument("ours", type=Path, metavar="OURS", help="the file that is changed")
    merge.add_argument("theirs", type=Path, metavar="THEIRS", help="the other version")
    merge.add_argument("--base", type=Path, metavar="BASE", help="their common ancestor")
    record = cassette.add(
        "record",
        _cassette_record,
        "run a notebook live and record its outputs, model calls and decisions",
        "Cards and questions are asked in the terminal. If a cell fails, nothing is changed.",
    )
    record.add_argument("path", type=Path, metavar="NOTEBOOK", help="the notebook")
    record.add_argument(
        "--card",
        action="append",
        default=[],
        metavar="ANSWER",
        help="answer a card: y, n, s (for this session), or a message that denies; repeat in order",
    )
    record.add_argument("--yes", action="store_true", help="allow all (remaining) cards")
    record.add_argument(
        "--answer",
        action="append",
        default=[],
        metavar="TEXT",
        help="answer a question from the program; repeat in order",
    )


def _declare_installing(commands: Commands) -> None:
    local = commands.group("local", "the tiny model that runs on this machine")
    local.add("install", _local_install, "download the model")

    kernel = commands.group("kernel", 'the kernel "Python 3 (OpenProgram)"')
    install = kernel.add("install", _kernel_install, "register the kernel with Jupyter")
    install.add_argument(
        "--prefix",
        type=Path,
        metavar="DIR",
        help="environment to install into (default: your user)",
    )

    completion = commands.add(
        "completion",
        _completion,
        "print the shell code that completes commands and session ids",
        f'For bash, put `eval "$({PROGRAM} completion bash)"` into ~/.bashrc; for zsh the same '
        f"with zsh into ~/.zshrc, after compinit; for fish, "
        f"`{PROGRAM} completion fish > ~/.config/fish/completions/{PROGRAM}.fish`.",
    )
    completion.add_argument("shell", choices=SHELLS, help="which shell")


def _declare_help(commands: Commands) -> None:
    help_ = commands.add("help", _help, "list all commands, or explain one")
    help_.add_argument(
        "words", nargs="*", metavar="COMMAND", help="for example: kernel install"
    ).completer = (  # type: ignore[attr-defined]  # where argcomplete looks for it
        lambda prefix, **_more: [name for name in commands.by_name if name.startswith(prefix)]
    )
    help_.add_argument("--markdown", action="store_true", help="print docs/cli.md")


# Each command imports what it needs: `op-jupyter --help` should not load a store or Jupyter.


def _session_ids(prefix: str, **more: object) -> list[str]:
    from op_jupyter.cli.ids import complete_session

    return complete_session(prefix, **more)


def _demo(args: argparse.Namespace) -> None:
    from op_jupyter.cli.demo import run_demo

    run_demo(args.out, csv=args.csv, headless=args.headless)


def _lessons(args: argparse.Namespace) -> None:
    from op_jupyter.cli.lessons import copy_lessons

    copy_lessons(args.folder)


def _run_function(args: argparse.Namespace) -> None:
    from op_jupyter.cli.run import run

    run(args.target, args.arg, args.session)


def _resume(args: argparse.Namespace) -> int:
    from op_jupyter.cli.resume import resume

    return resume(args.id, args.prompt, shell=args.shell, as_json=args.json)


def _local_install(args: argparse.Namespace) -> None:
    from op_jupyter.providers.local_model import install

    print(f"The model is in {install(lambda line: print(line, flush=True))}")


def _sessions(args: argparse.Namespace) -> None:
    from op_jupyter.cli import sessions

    sessions.list_sessions(args.limit, all_kinds=args.all, as_json=args.json)


def _show(args: argparse.Namespace) -> None:
    from op_jupyter.bootstrap import default_service
    from op_jupyter.cli import sessions

    service = default_service()
    wanted = service.find(args.id)
    if args.json:
        sessions.show_json(service, wanted)
    elif args.prompt:
        print(sessions.prompts_text(service, wanted, args.node))
    elif args.node is not None:
        print(sessions.node_text(service, wanted, args.node))
    else:
        print(sessions.session_text(service, wanted))


def _search(args: argparse.Namespace) -> None:
    from op_jupyter.bootstrap import default_service
    from op_jupyter.cli import sessions

    query = " ".join(args.text)
    sessions.print_found(default_service(), query, args.limit, as_json=args.json)


def _doctor(args: argparse.Namespace) -> int:
    from op_jupyter.cli.doctor import doctor

    return doctor(args.id, repair=args.repair, force=args.force, as_json=args.json)


def _gc(args: argparse.Namespace) -> int:
    from op_jupyter.cli.gc import gc

    return gc(args.id, everything=args.all)


def _push(args: argparse.Namespace) -> None:
    from op_jupyter.cli.sync import push

    push(args.id, args.remote)


def _pull(args: argparse.Namespace) -> int:
    from op_jupyter.cli.sync import pull

    return pull(args.remote, args.id)


def _age(text: str) -> float:
    from op_jupyter.cli.trash import age

    return age(text)


def _trash_list(args: argparse.Namespace) -> None:
    from op_jupyter.cli import trash

    trash.list_trash(as_json=args.json)


def _trash_put(args: argparse.Namespace) -> None:
    from op_jupyter.cli import trash

    trash.put(args.id)


def _trash_restore(args: argparse.Namespace) -> None:
    from op_jupyter.cli import trash

    trash.restore(args.id)


def _trash_purge(args: argparse.Namespace) -> None:
    from op_jupyter.cli import trash

    trash.purge(args.id, args.older_than)


def _export(args: argparse.Namespace) -> None:
    from op_jupyter.cli.exchange import export_session

    export_session(args.id, args.format, args.output, whole=args.whole)


def _fork(args: argparse.Namespace) -> None:
    from op_jupyter.cli.exchange import fork_session

    fork_session(args.id, args.new)


def _archive(args: argparse.Namespace) -> None:
    from op_jupyter.cli.sessions import archive

    archive(args.id, undo=args.undo)


def _import(args: argparse.Namespace) -> None:
    from op_jupyter.cli.exchange import import_session

    import_session(args.path, args.id, as_json=args.json)


def _cassette_list(args: argparse.Namespace) -> None:
    from op_jupyter.cli import cassette

    cassette.list_cassettes(args.paths or [Path()])


def _cassette_show(args: argparse.Namespace) -> None:
    from op_jupyter.cli import cassette

    cassette.show(args.path, args.request)


def _cassette_check(args: argparse.Namespace) -> int:
    from op_jupyter.cli import cassette

    return cassette.check(args.paths, args.run)


def _cassette_prune(args: argparse.Namespace) -> None:
    from op_jupyter.cli import cassette

    cassette.prune(args.paths, args.run)


def _cassette_refresh(args: argparse.Namespace) -> None:
    from op_jupyter.cli import cassette

    cassette.refresh(args.paths)


def _cassette_merge(args: argparse.Namespace) -> int:
    from op_jupyter.cli import cassette

    return cassette.merge(args.ours, args.theirs, args.base)


def _cassette_record(args: argparse.Namespace) -> None:
    from op_jupyter.cli import cassette

    cassette.record(args.path, cards=args.card, yes=args.yes, answers=args.answer)


def _kernel_install(args: argparse.Namespace) -> None:
    from op_jupyter.cli.kernelspec import install

    print(f"The kernel is in {install(args.prefix)}")


def _completion(args: argparse.Namespace) -> None:
    from argcomplete.shell_integration import shellcode

    print(shellcode([PROGRAM], shell=args.shell))


def _help(args: argparse.Namespace) -> None:
    from op_jupyter.cli.reference import help_text, markdown

    print(markdown(parser()) if args.markdown else help_text(parser(), args.words))
