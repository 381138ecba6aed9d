"""Which session this notebook works in, and what holds for it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from op_jupyter.bootstrap import EVERYTHING, told_provider
from op_jupyter.core.search_text import SNIPPET_CHARS
from op_jupyter.errors import UsageError
from op_jupyter.notebook.commands.base import LABEL_CHARS, Said, command, named
from op_jupyter.notebook.notebook import Notebook
from op_jupyter.notebook.parsing import flag
from op_jupyter.store.base import SearchHit, SessionInfo
from op_jupyter.store.whole_file import write_whole
from op_jupyter.views.text import count, one_line, visible


@command("status")
def status(notebook: Notebook, _args: argparse.Namespace) -> Said:
    """Show the session, the model, the mode, and where each setting comes from."""
    session, dag = notebook.session, notebook.session.dag
    chosen = notebook.config.settings()
    lines = [f"session      {session.session_id} ({count(len(dag.turns), 'turn')})"]
    if (folder := notebook.stored.path(session.session_id)) is not None:
        lines.append(f"folder       {folder}")
    lines.append(f"workspace    {session.workspace}")
    lines.append(f"mode         {session.permission_mode}")
    lines.append(f"sandbox      {session.sandbox}")
    lines.append(f"tools        {', '.join(session.tools.names) or 'none'}")
    if skills := notebook.skills.read().skills:
        lines.append(f"skills       {', '.join(skill.name for skill in skills)}")
    lines += [
        f"{name:<12} {_without_secrets(setting.value)} (from {setting.origin})"
        for name, setting in chosen.values.items()
        if name != "mode"  # the session's own is what counts, and stands above
    ]
    lines += [
        f"{name:<12} {value} (from {origin})"
        for name, (value, origin) in notebook.config.chosen().items()
    ]
    if (own := notebook.config.runtime) is not None:
        lines.append(f"runtime      {own!r} (from %config AgentMagics.runtime)")
    elif chosen.get("provider") is None and chosen.get("replay") != "replay":
        lines.append(f"provider     {told_provider(chosen)}")
    lines += [f"note         {note}" for note in _notes(notebook)]
    earlier = notebook.earlier()
    if earlier is not None:
        lines.append(f"earlier      {_session_words(earlier)}: `%agent resume` continues it")
    said = session.recorder.clean("\n".join(lines))
    return Said(visible(said), metadata=named(session.session_id))


def _without_secrets(value: str) -> str:
    """*value*; of an address, neither who logs in there nor what may be a key."""
    if "://" not in value:
        return value
    parts = urlsplit(value)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _notes(notebook: Notebook) -> list[str]:
    kept = notebook.session.store.status
    notes = [*kept.repaired, kept.read_only, kept.git_behind]
    if notebook.session.allow_everything:
        notes.append(EVERYTHING)
    if reason := notebook.lent.why_no_clicks():
        notes.append(f"cards cannot be clicked while a cell runs: {reason}; answer by text")
    if dropped := notebook.session.trace.dropped_signals:
        notes.append(f"{count(dropped, 'trace signal')} dropped: the exporter is slow or broken")
    notes += notebook.skills.read().warnings
    return [note for note in notes if note]


def _session_words(info: SessionInfo) -> str:
    when = info.updated_at[:16].replace("T", " ")
    title = f", {one_line(info.title, LABEL_CHARS)!r}" if info.title else ""
    return f"{info.id}, {count(info.turns, 'turn')}, last used {when} UTC{title}"


@command(
    "sessions",
    flag("--limit", type=int, default=20, help="At most this many, newest first."),
)
def sessions(notebook: Notebook, args: argparse.Namespace) -> Said:
    """List the stored sessions."""
    here = notebook.session
    listed = notebook.stored.list_sessions(args.limit)
    if not listed:
        return Said("There are no sessions yet; a %%agent cell makes the first.")
    lines = [
        # What is stored of the one that is open is behind until its turn has its commit.
        f"* {_session_words(replace(info, turns=len(here.dag.turns)))}"
        if info.id == here.session_id
        else f"  {_session_words(info)}"
        for info in listed
    ]
    return Said("\n".join(lines))


@command(
    "search",
    flag("text", help="Words to search for; a result contains all of them."),
    verbatim=True,
)
def search(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Search the messages and titles of all sessions."""
    hits = notebook.stored.search(args.text)
    lines = [f"{hit.session_id}  {hit.at[:16].replace('T', ' ')}  {_found(hit)}" for hit in hits]
    return Said("\n".join(lines) or "Nothing was found.")


def _found(hit: SearchHit) -> str:
    return f"{hit.role}: {one_line(hit.snippet, SNIPPET_CHARS)}"


@command(
    "export",
    flag("file", help="The file; its suffix chooses the format: .md, .html, .json or .ipynb."),
    flag("--session", kind="session", metavar="ID", help="Which one (default: this notebook's)."),
    flag("--whole", action="store_true", help="JSON: include all stored files, beyond 16 MB too."),
)
def export(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Export a session as Markdown, a web page, JSON or a notebook."""
    path = notebook.workspace / Path(args.file).expanduser()
    notes: list[str] = []
    text = notebook.stored.export(
        args.session or notebook.session.session_id,
        path.suffix.removeprefix(".").lower(),
        whole=args.whole,
        tell=notes.append,
    )
    try:
        write_whole(path, text.encode("utf-8"), replace=False)
    except OSError as error:
        raise UsageError(f"{args.file} cannot be written: {error.strerror}") from error
    return Said("\n".join([f"Written: {args.file}", *(f"note: {note}" for note in notes)]))


@command("memory", flag("--delete", metavar="ID", help="Delete this note."))
def memory(notebook: Notebook, args: argparse.Namespace) -> Said:
    """List the notes that agents keep across sessions (`%agent tools +remember +recall`)."""
    notes = notebook.stored.upkeep.notes
    if args.delete is not None:
        notes.delete(args.delete)
        return Said(f"Forgotten: {args.delete}")
    lines = [
        f"{note.id}  {note.created_at[:10]}  {one_line(note.text, LABEL_CHARS)}"
        for note in notes.all()
    ]
    return Said("\n".join(lines) or "No agent has kept a note.")


@command("new")
def new(notebook: Notebook, _args: argparse.Namespace) -> Said:
    """Start a new session in this notebook; the old one stays in the list."""
    handle = notebook.new()
    return Said("A new session has begun.", metadata=named(handle.session_id))


@command(
    "resume",
    flag(
        "id",
        kind="session",
        nargs="?",
        help="Which session; default: this notebook's latest.",
    ),
    flag(
        "--fork",
        action="store_true",
        help="Continue in a copy of that session.",
    ),
)
def resume(notebook: Notebook, args: argparse.Namespace) -> Said:
    """Continue an earlier session."""
    wanted = args.id
    if args.fork:
        if wanted is None:
            raise UsageError("name the session to fork: %agent resume ID --fork")
        wanted = notebook.stored.fork_session(wanted)
    handle = notebook.resume(wanted)
    dag = handle.agent.dag
    lines = [f"Resumed, with {count(len(dag.turns), 'turn')}. Nothing was run again."]
    lines += [f"note: {note}" for note in handle.agent.store.status.repaired]
    return Said("\n".join(lines), metadata=named(handle.session_id))
