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
        description="Agents in Jupyter notebooks, and the sessions that they leave.",
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

    lessons = commands.add(
        "lessons",
        _lessons,
        "copy the lessons into a folder, to run and to change them",
        "They are notebooks that play without a model, from the recordings beside them. What is "
        "in the folder already stays as it is.",
    )
    lessons.add_argument(
        "folder",
        type=Path,
        nargs="?",
        metavar="DIR",
        default=Path("lessons"),
        help="where to (default: %(default)s)",
    )

    run = commands.add("run", _run_function, "call a function of a file, in a session")
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
    ).completer = _session_ids  # type: ignore[attr-defined]  # where argcomplete looks for it

    resume = commands.add(
        "resume",
        _resume,
        "go on with a session here, by one prompt or in a conversation",
        "The answer is streamed, and questions for permission are asked in the terminal; without "
        "one, what has to ask is denied. Ctrl-C stops the turn; what it did is kept.",
    )
    add_session(resume, _session_ids)
    resume.add_argument("prompt", nargs="?", metavar="PROMPT", help="the only one (default: ask)")
    resume.add_argument("--shell", action="store_true", help="offer the shell to these turns")
    add_json(resume, "the attempt and the reply as JSON, in place of the stream")


def _declare_reading(commands: Commands) -> None:
    sessions = commands.add("sessions", _sessions, "list the stored sessions, newest first")
    sessions.add_argument(
        "--limit", type=positive, metavar="N", default=None, help="how many (default: all)"
    )
    sessions.add_argument(
        "--all", action="store_true", help="archived ones and those of sub-agents, too"
    )
    add_json(sessions)

    search = commands.add(
        "search",
        _search,
        "find messages and titles in all sessions",
        "A result holds every word; a word of three letters or more also stands for longer ones.",
    )
    search.add_argument("text", nargs="+", metavar="TEXT", help="words to look for")
    search.add_argument(
        "--limit", type=positive, metavar="N", default=20, help="how many (default: %(default)s)"
    )
    add_json(search)

    show = commands.add("show", _show, "show a session, a node of it, or its prompts")
    add_session(show, _session_ids)
    show.add_argument("--node", metavar="NODE", help="only this node, in full")
    show.add_argument(
        "--prompt",
        action="store_true",
        help="what the model was sent: by that node, or by every model call",
    )
    add_json(show, "its messages and attempts, as JSON")


def _declare_keeping(commands: Commands) -> None:
    doctor = commands.add(
        "doctor",
        _doctor,
        "say what is wrong with a session, or with this installation",
        "Without an id it looks at the installation, and briefly at every session. It changes "
        "nothing unless it is told to repair.",
    )
    add_session(doctor, _session_ids, optional=True)
    doctor.add_argument(
        "--repair", action="store_true", help="put right what can be; what is replaced is kept"
    )
    doctor.add_argument(
        "--force",
        action="store_true",
        help="with --repair: also when its last writer, on another machine, never let go",
    )
    add_json(doctor)

    gc = commands.add(
        "gc", _gc, "pack the git repository of a session, so that it takes less of the disk"
    )
    add_session(gc, _session_ids, optional=True)
    gc.add_argument("--all", action="store_true", help="of every session that nobody has open")

    push = commands.add(
        "push",
        _push,
        "send a session to another git repository",
        "REMOTE is a folder of this disk, or an address of ssh. Where the session went on there "
        "as well, what is here becomes a branch of its own there.",
    )
    add_session(push, _session_ids)
    push.add_argument("remote", metavar="REMOTE", help="for example me@host:sessions.git")
    pull = commands.add(
        "pull",
        _pull,
        "take a session, or all there are, from another git repository",
        "Where a session went on here as well, what comes becomes a branch of its own here.",
    )
    pull.add_argument("remote", metavar="REMOTE", help="a folder of this disk, or an ssh address")
    pull.add_argument("id", metavar="ID", nargs="?", help="the whole id (default: all there are)")

    archive = commands.add(
        "archive",
        _archive,
        "leave a session out of lists",
        "It stays where it is, a search finds it, and `sessions --all` lists it.",
    )
    add_session(archive, _session_ids)
    archive.add_argument("--undo", action="store_true", help="list it again")

    trash = commands.group("trash", "deleted sessions, which come back until they are purged")
    add_json(trash.add("list", _trash_list, "list them, the newest first"))
    add_session(trash.add("put", _trash_put, "delete a session"), _session_ids)
    restore = trash.add("restore", _trash_restore, "bring a session back")
    restore.add_argument("id", metavar="ID", help="its id, or a beginning of it that is unique")
    purge = trash.add("purge", _trash_purge, "remove for good, by id or by age")
    purge.add_argument("id", metavar="ID", nargs="?", help="the whole id of a deleted session")
    purge.add_argument(
        "--older-than",
        type=_age,
        metavar="AGE",
        help="whatever was deleted so long ago: 30d, 12h; 0s is all of it",
    )


def _declare_exchanging(commands: Commands) -> None:
    export = commands.add("export", _export, "print a session as a document, or write it to a file")
    add_session(export, _session_ids)
    export.add_argument(
        "--format",
        choices=("md", "html", "json", "ipynb"),
        help="Markdown, a page, what import reads, a notebook (default: by FILE's ending, or md)",
    )
    export.add_argument("--output", "-o", type=Path, metavar="FILE", help="write it there")
    export.add_argument(
        "--whole",
        action="store_true",
        help="JSON: with all that is kept of files, also beyond 16 MB",
    )

    fork = commands.add(
        "fork",
        _fork,
        "make a new session of all that is stored of another one",
        "Whoever has the other one open goes on in it; nothing is changed there.",
    )
    add_session(fork, _session_ids)
    fork.add_argument("--id", dest="new", metavar="ID", help="the id of the new one (default: any)")

    import_ = commands.add(
        "import",
        _import,
        "take in a session that was exported as JSON, or a session's folder",
        "What it could allow is left out: rules, modes, tools. An id that is taken becomes a new "
        "one.",
    )
    import_.add_argument("path", type=Path, metavar="PATH", help="the document or the folder")
    import_.add_argument("--id", metavar="ID", help="its id here (default: the one it had)")
    add_json(import_)


def _declare_cassettes(commands: Commands) -> None:
    cassette = commands.group("cassette", "recorded model calls, which notebooks and tests play")
    list_ = cassette.add("list", _cassette_list, "list cassettes, and how much is in each")
    list_.add_argument(
        "paths", type=Path, nargs="*", metavar="PATH", help="cassettes or folders (default: here)"
    )
    show = cassette.add("show", _cassette_show, "show what is recorded in a cassette")
    show.add_argument("path", type=Path, metavar="CASSETTE", help="the file")
    show.add_argument("--request", metavar="KEY", help="this request and its replies, in full")
    for name, command, summary in (
        ("check", _cassette_check, "play notebooks, and say which recordings they do not use"),
        ("prune", _cassette_prune, "play notebooks, and drop the recordings that they do not use"),
    ):
        made = cassette.add(name, command, summary)
        made.add_argument(
            "paths", type=Path, nargs="+", metavar="PATH", help="the notebooks, or a cassette"
        )
        made.add_argument(
            "--run", metavar="COMMAND", help="what plays the cassette, where no notebook does"
        )
    refresh = cassette.add(
        "refresh",
        _cassette_refresh,
        "play notebooks, and save what they show now",
        "For outputs that look different with another version, although the recording still fits.",
    )
    refresh.add_argument(
        "paths", type=Path, nargs="+", metavar="NOTEBOOK", help="the notebooks, in place"
    )
    merge = cassette.add(
        "merge",
        _cassette_merge,
        "join two versions of a cassette, in place of the first",
        "As git's driver for merges: `git config merge.cassette.driver "
        f"'{PROGRAM} cassette merge %A %B --base %O'`, and `*.cassette merge=cassette` in "
        ".gitattributes. What both sides changed stays as in the first, and is named.",
    )
    merge.add_argument("ours", type=Path, metavar="OURS", help="the file that is changed")
    merge.add_argument("theirs", type=Path, metavar="THEIRS", help="the other version")
    merge.add_argument("--base", type=Path, metavar="BASE", help="what both went on from")
    record = cassette.add(
        "record",
        _cassette_record,
        "run a notebook live, and keep its outputs, model calls and decisions",
        "Cards and questions are asked here. When a cell fails, everything stays as it was.",
    )
    record.add_argument("path", type=Path, metavar="NOTEBOOK", help="the notebook")
    record.add_argument(
        "--card",
        action="append",
        default=[],
        metavar="ANSWER",
        help="answer a card: y, n, s for this session, or a sentence for the model, which denies; "
        "once for each, in order",
    )
    record.add_argument("--yes", action="store_true", help="allow what (further) cards ask for")
    record.add_argument(
        "--answer",
        action="append",
        default=[],
        metavar="TEXT",
        help="answer a question of the program's; once for each, in order",
    )


def _declare_installing(commands: Commands) -> None:
    local = commands.group("local", "the tiny model that runs on this machine")
    local.add("install", _local_install, "fetch the model's file")

    kernel = commands.group("kernel", 'the kernel "Python 3 (OpenProgram)"')
    install = kernel.add("install", _kernel_install, "make it known to Jupyter")
    install.add_argument(
        "--prefix", type=Path, metavar="DIR", help="environment to install into (default: yours)"
    )

    completion = commands.add(
        "completion",
        _completion,
        "print what makes a shell complete these commands and ids",
        f'For bash, put `eval "$({PROGRAM} completion bash)"` into ~/.bashrc; for zsh the same '
        f"with zsh into ~/.zshrc, after compinit; for fish, "
        f"`{PROGRAM} completion fish > ~/.config/fish/completions/{PROGRAM}.fish`.",
    )
    completion.add_argument("shell", choices=SHELLS, help="which shell")


def _declare_help(commands: Commands) -> None:
    help_ = commands.add("help", _help, "tell what there is, or all about one command")
    help_.add_argument(
        "words", nargs="*", metavar="COMMAND", help="for example: kernel install"
    ).completer = (  # type: ignore[attr-defined]  # where argcomplete looks for it
        lambda prefix, **_more: [name for name in commands.by_name if name.startswith(prefix)]
    )
    help_.add_argument("--markdown", action="store_true", help="everything, as docs/cli.md has it")


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
