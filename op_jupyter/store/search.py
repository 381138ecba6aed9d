"""Full-text search over titles and messages of all sessions (SQLite FTS5).

The index lies beside the sessions, in ``.index/``, and is never the truth: before each search
it is brought up to what the journals hold, so that it is live while another process writes, and
one that is absent, of another version or damaged is made again.  Where it cannot be written it
is kept in memory.  Several processes may search, and bring it up to date, at once.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import groupby
from typing import Any, Final, TypeAlias

from op_jupyter.core.search_text import (
    indexed,
    match_expression,
    query_words,
    shown,
    snippet,
)
from op_jupyter.core.updates import clip
from op_jupyter.core.values import dataclass
from op_jupyter.errors import StoreError
from op_jupyter.store import codec
from op_jupyter.store.base import SearchHit
from op_jupyter.store.codec import Record
from op_jupyter.store.files import FileSystem, read_file, remove
from op_jupyter.store.git import Repository
from op_jupyter.store.history import blob_path
from op_jupyter.store.journal import StoredSegment, list_files, parse_path, read_segments
from op_jupyter.store.loading import Folder
from op_jupyter.store.packs import MAX_OBJECT_BYTES
from op_jupyter.store.session import check_blob_hash
from op_jupyter.store.summary import META, parse_meta, session_ids

FOLDER: Final = ".index"
FILE: Final = "search.sqlite"
VERSION: Final = 2
WAIT_SECONDS: Final = 10.0
RANKED: Final = 2_000
"""Where more messages fit, nothing tells the best of them, and the newest are taken."""
CACHE_KIB: Final = 64 * 1024
MAX_MESSAGE_CHARS: Final = 1_000_000
_MAX_META_BYTES: Final = 16 * 1024 * 1024
_SETTLED_NS: Final = 100_000_000
"""A folder that changed less than this ago may change again without its time showing it."""

_SCHEMA: Final = f"""
CREATE VIRTUAL TABLE words USING fts5(
  text, shown UNINDEXED, session UNINDEXED, node UNINDEXED, turn UNINDEXED, role UNINDEXED,
  at UNINDEXED, tokenize = "unicode61 remove_diacritics 2", prefix = "3 4 5"
);
CREATE TABLE sessions(
  id TEXT PRIMARY KEY, mark TEXT NOT NULL, title TEXT NOT NULL, row INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE segments(
  session TEXT NOT NULL, name TEXT NOT NULL, size INTEGER NOT NULL, open INTEGER NOT NULL,
  first INTEGER NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (session, name)
) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
"""
_COUNT: Final = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
_FIND: Final = """
SELECT w.session, s.title, w.node, w.turn, w.role, w.at, w.text, w.shown, w.score
FROM (
  SELECT *, {score} AS score FROM words WHERE words MATCH ? ORDER BY {order} DESC LIMIT ?
) w
JOIN sessions s ON s.id = w.session
ORDER BY w.score DESC, w.rowid DESC
"""
_BEST: Final = _FIND.format(score="-bm25(words)", order="-bm25(words)")
_NEWEST: Final = _FIND.format(score="0.0", order="rowid")

Row: TypeAlias = tuple[str, str | None, str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class _Mark:
    """What tells cheaply that a session changed.

    Attributes:
        changed: when ``meta.json`` last was replaced, in ns.
        settled: whether a further change would show in *text*.
    """

    changed: int
    text: str
    settled: bool

    @property
    def kept(self) -> str:
        """What the index remembers; equal to no later mark while it is not settled."""
        return self.text if self.settled else ""


class SearchIndex:
    """The index of the sessions under one folder."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        files: FileSystem | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._root = os.fspath(root)
        self._files = files or FileSystem()
        self._clock = clock
        self._memory: sqlite3.Connection | None = None
        self._memory_lock = threading.Lock()

    @property
    def path(self) -> str:
        """Where the index is kept."""
        return f"{self._root}/{FOLDER}/{FILE}"

    def search(self, query: str, limit: int = 20) -> list[SearchHit]:
        """The messages and titles that hold every word of *query*, the best first."""
        words = query_words(query)
        if not words or limit < 1:
            return []
        return self._with_index(lambda db: _find(db, words, limit))

    def refresh(self) -> None:
        """Bring the index up to the journals; `search` does it itself."""
        self._with_index(lambda db: [])

    # -- the file

    def _with_index(self, use: Callable[[sqlite3.Connection], list[SearchHit]]) -> list[SearchHit]:
        """What *use* finds in an index that is up to date; one that is damaged is made again."""
        for _ in range(2):
            try:
                with closing(self._open()) as db:
                    self._update(db)
                    return use(db)
            except sqlite3.DatabaseError as error:
                if _is_out_of_reach(error) or not self._forget():
                    break
            except OSError:
                break
        return self._in_memory(use)

    def _open(self) -> sqlite3.Connection:
        self._files.make_folders(self._root, FOLDER)
        if not os.path.lexists(self.path):
            with suppress(FileExistsError):  # another process is as quick
                self._files.write_new({self.path: b""}, durable=False)
        db = sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            # With the usual 2 MB, a first index writes its pages over and over.
            db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        if _version(db) == VERSION:
            return
        with _writing(db):
            if _version(db) != VERSION:
                for (name,) in db.execute(
                    "SELECT name FROM sqlite_master WHERE name IN ('words', 'sessions', 'segments')"
                ).fetchall():
                    db.execute(f"DROP TABLE {name}")
                for statement in _SCHEMA.split(";\n"):
                    db.execute(statement)

    def _forget(self) -> bool:
        """Remove the index; whether that worked."""
        try:
            for suffix in ("", "-wal", "-shm"):
                remove(self.path + suffix)
        except OSError:
            return False
        return True

    def _in_memory(self, use: Callable[[sqlite3.Connection], list[SearchHit]]) -> list[SearchHit]:
        with self._memory_lock:
            if self._memory is None:
                self._memory = sqlite3.connect(
                    ":memory:", isolation_level=None, check_same_thread=False
                )
                weakref.finalize(self, self._memory.close)
                self._prepare(self._memory)
            self._update(self._memory)
            return use(self._memory)

    # -- up to date

    def _update(self, db: sqlite3.Connection) -> None:
        known = {row[0]: row[1] for row in db.execute("SELECT id, mark FROM sessions")}
        going_on = _open_segments(db)
        now = {name: self._mark(name) for name in session_ids(self._root)}
        gone = known.keys() - now.keys()
        changed = [
            name
            for name, mark in now.items()
            if known.get(name) != mark.kept
            or not mark.settled
            or self._has_grown(name, going_on.get(name, ()))
        ]
        if not gone and not changed:
            return
        changed.sort(key=lambda name: now[name].changed)  # a later row is a newer message
        with _writing(db):
            for name in gone:
                _forget_session(db, name)
            for name in changed:
                self._index(db, name, now[name])

    def _mark(self, session_id: str) -> _Mark:
        folder = f"{self._root}/{session_id}"
        history = f"{folder}/history"
        newest = ""
        with suppress(OSError):  # nothing has happened in it yet, or it is no folder of ours
            newest = max(os.listdir(history), default="")
        times = [_stamp(path) for path in (f"{folder}/{META}", history, f"{history}/{newest}")]
        settled = int(self._clock() * 1e9) - _SETTLED_NS
        return _Mark(times[0][0], f"{newest}{times}", max(times)[0] < settled)

    def _has_grown(self, session_id: str, segments: Iterable[tuple[str, int]]) -> bool:
        folder = f"{self._root}/{session_id}"
        return any(_segment_size(folder, name) != size for name, size in segments)

    def _index(self, db: sqlite3.Connection, session_id: str, mark: _Mark) -> None:
        folder = f"{self._root}/{session_id}"
        title = _title(session_id, folder)
        known = db.execute("SELECT title, row FROM sessions WHERE id = ?", (session_id,)).fetchone()
        if known is None or known[0] != title:
            if known is not None:
                db.execute("DELETE FROM words WHERE rowid = ?", (known[1],))
            row = _insert(db, [_row(session_id, "", "", "title", "", title)])[0]
        else:
            row = known[1]
        db.execute(
            "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?)",
            (session_id, mark.kept, title, row),
        )
        with suppress(StoreError, OSError):  # what cannot be read is for `doctor`, not for a list
            self._index_segments(db, session_id, folder)

    def _index_segments(self, db: sqlite3.Connection, session_id: str, folder: str) -> None:
        sizes: Mapping[str, int | None] = list_files(folder)
        read: Callable[[str], bytes] = lambda path: read_file(f"{folder}/{path}")  # noqa: E731
        read_blob = _blob_reader(folder)
        if not sizes:  # a clone without its files
            whole = Folder(folder, Repository(folder, self._files, self._clock))
            sizes, read, read_blob = whole.list_segments(), whole.read_segment, whole.read_blob
        known = {
            name: (size, first, last)
            for name, size, first, last in db.execute(
                "SELECT name, size, first, last FROM segments WHERE session = ?", (session_id,)
            )
        }
        for name, group in groupby(sorted(sizes, key=_segment_key), key=_segment_key):
            files = {path: sizes[path] for path in group}
            size = sum(each or 0 for each in files.values())
            before = known.get(name)
            if before is not None and before[0] == size:
                continue
            if before is not None:
                db.execute("DELETE FROM words WHERE rowid BETWEEN ? AND ?", before[1:])
            for segment in read_segments(files, read):
                rows = list(_messages(session_id, segment, read_blob))
                first, last = _insert(db, rows)
                kept = (session_id, name, size, int(segment.open), first, last)
                db.execute("INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?, ?, ?)", kept)


# -- what a session holds


def _messages(
    session_id: str, segment: StoredSegment, read_blob: Callable[[str], bytes]
) -> Iterator[Row]:
    """What people and models said, of the records of one segment."""
    nodes: dict[str, Mapping[str, Any]] = {}
    for _, _, _, record in segment.records:
        with suppress(StoreError, OSError, KeyError, TypeError, AttributeError):
            # A record that is not as it should be has nothing to be found by.
            for node, role, said in _said(codec.make_whole(record, read_blob), nodes):
                if text := "\n".join(_texts(said)).strip():
                    turn = str(node.get("metadata", {}).get("turn_id") or "")
                    at = str(node.get("created_at", ""))
                    yield _row(session_id, str(node["id"]), turn, role, at, text)


def _said(
    record: Record, nodes: dict[str, Mapping[str, Any]]
) -> list[tuple[Mapping[str, Any], str, Any]]:
    if record["kind"] == "enter":
        node = nodes[record["node"]["id"]] = record["node"]
        if node["role"] == "user":
            return [(node, "user", node.get("input"))]
        if node["role"] == "llm":
            asked = (node.get("input") or {}).get("content")
            return [(node, "user", asked), (node, "assistant", node.get("output"))]
    if record["kind"] == "update" and "output" in record["set"]:
        known = nodes.get(record["id"])
        if known is not None and known["role"] == "llm":
            return [(known, "assistant", record["set"]["output"])]
    return []


def _texts(said: Any) -> Iterator[str]:
    """The texts of a message, or of content blocks; not what tools were given or gave."""
    blocks = said.get("content") if isinstance(said, dict) else said
    if isinstance(blocks, str):
        yield blocks
    elif isinstance(blocks, list):
        for block in blocks:
            if isinstance(block, dict) and block.get("type") == "text":
                yield str(block.get("text", ""))


def _row(session: str, node: str, turn: str, role: str, at: str, text: str) -> Row:
    text = text[:MAX_MESSAGE_CHARS]
    stored = indexed(text)
    return stored, None if shown(stored) == text else text, session, node, turn, role, at


def _title(session_id: str, folder: str) -> str:
    try:
        return parse_meta(session_id, read_file(f"{folder}/{META}", _MAX_META_BYTES)).title
    except (OSError, ValueError, RecursionError):
        return ""


def _blob_reader(folder: str) -> Callable[[str], bytes]:
    def read(sha256: str) -> bytes:
        return read_file(f"{folder}/{blob_path(check_blob_hash(sha256))}", MAX_OBJECT_BYTES)

    return read


# -- files


def _stamp(path: str) -> tuple[int, int]:
    """When *path* last changed, in ns, and which file it is; (0, 0) when it is not there."""
    try:
        info = os.lstat(path)
    except OSError:
        return 0, 0
    return info.st_mtime_ns, info.st_ino


def _segment_key(path: str) -> str:
    """The first file of the segment that *path* belongs to."""
    parsed = parse_path(path)
    return path if parsed is None else parsed[0].path(0)


def _segment_size(folder: str, name: str) -> int:
    parsed = parse_path(name)
    size = 0
    with suppress(OSError):  # there is no further part
        for part in itertools.count():
            path = name if parsed is None else parsed[0].path(part)
            size += os.lstat(f"{folder}/{path}").st_size
    return size


# -- the database


@contextmanager
def _writing(db: sqlite3.Connection) -> Iterator[None]:
    """A transaction that nobody else can be in the middle of."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _is_out_of_reach(error: sqlite3.Error) -> bool:
    """Whether the file is whole, but cannot be used now: locked, read-only, no room."""
    return error.sqlite_errorcode & 0xFF in _OUT_OF_REACH


_OUT_OF_REACH: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
    }
)


def _open_segments(db: sqlite3.Connection) -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = {}
    for session, name, size in db.execute("SELECT session, name, size FROM segments WHERE open"):
        found.setdefault(session, []).append((name, size))
    return found


def _insert(db: sqlite3.Connection, rows: Sequence[Row]) -> tuple[int, int]:
    """Add *rows* and return the first and the last of their numbers, (0, -1) for none."""
    first, last = 0, -1
    for row in rows:
        last = db.execute("INSERT INTO words VALUES (?, ?, ?, ?, ?, ?, ?)", row).lastrowid or 0
        first = first or last
    return first, last


def _forget_session(db: sqlite3.Connection, session_id: str) -> None:
    ranges = db.execute("SELECT first, last FROM segments WHERE session = ?", (session_id,))
    for first, last in ranges.fetchall():
        db.execute("DELETE FROM words WHERE rowid BETWEEN ? AND ?", (first, last))
    title = db.execute("SELECT row FROM sessions WHERE id = ?", (session_id,)).fetchone()
    if title is not None:
        db.execute("DELETE FROM words WHERE rowid = ?", title)
    db.execute("DELETE FROM segments WHERE session = ?", (session_id,))
    db.execute("DELETE FROM sessions WHERE id = ?", (session_id,))


def _find(db: sqlite3.Connection, words: Sequence[str], limit: int) -> list[SearchHit]:
    query = match_expression(words)
    ((count,),) = db.execute(_COUNT, (query, RANKED))
    found = db.execute(_BEST if count < RANKED else _NEWEST, (query, limit))
    return [
        SearchHit(
            session_id=session,
            title=clip(title),
            node_id=node,
            turn_id=turn,
            role=role,
            snippet=snippet(as_written or shown(stored), words),
            score=round(score, 6),
            at=at,
        )
        for session, title, node, turn, role, at, stored, as_written, score in found
    ]
