"""Keeping stored sessions in order, and on other machines: what the service does on a disk.

It knows which sessions this process has open: what they have stored is committed before it is
pushed, they are packed by their own writer, and nothing takes their place under them.
"""

from __future__ import annotations

from op_jupyter.engine import registry
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import SessionActive
from op_jupyter.store.disk import DiskSession
from op_jupyter.store.doctor import Examined
from op_jupyter.store.notes import Notes
from op_jupyter.store.sessions import SessionStore
from op_jupyter.store.sync import Synced
from op_jupyter.store.trash import Trashed


class Upkeep:
    """The sessions of one store on disk.  Safe to use from any thread, not on the loop."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    # -- the trash

    def trash(self) -> list[Trashed]:
        """What was deleted, the newest first."""
        return self._store.trashed()

    def purge_older(self, seconds: float) -> list[str]:
        """Remove for good what was deleted at least *seconds* ago; the ids of that."""
        return self._store.purge_older(seconds)

    def clear_leftovers(self) -> None:
        """Finish what a purge that was killed has begun."""
        self._store.purge_older(float("inf"))  # nothing is that old

    # -- order

    def pack(self, session_id: str) -> tuple[int, int]:
        """Pack the repository of a session; bytes on disk, before and after.

        Raises:
            UnknownSession: nothing of it is stored.
            SessionLocked: another process has it open for writing.
            StoreError: there is no git executable, or it failed.
        """
        here = self._live(session_id)
        if here is not None and isinstance(here.store, DiskSession):
            return here.store.pack()
        return self._store.pack(session_id)

    def examine(self, session_id: str, *, thorough: bool = True) -> Examined:
        """What is wrong with a session; looking changes nothing.

        Args:
            thorough: read every large value and git object as well.

        Raises:
            UnknownSession, StoreError: nothing of it is stored, or it cannot be looked at.
        """
        return self._store.doctor(session_id).examine(thorough=thorough)

    def mend(self, session_id: str, *, force: bool = False) -> Examined:
        """Mend what can be mended, and look again.

        Args:
            force: also take over from a writer on another machine that never let go.

        Raises:
            SessionActive: this process has it open.
            SessionLocked: another one does; nothing was done.
            UnknownSession, StoreError: nothing of it is stored, or something is in the way.
        """
        self._check_not_open(session_id, "repaired")
        return self._store.doctor(session_id).mend(force=force)

    # -- other machines

    def push(self, session_id: str, remote: str) -> Synced:
        """Let the git repository *remote* have a session (see `SessionStore.push`)."""
        here = self._live(session_id)
        if here is not None:
            here.store.flush()
        return self._store.push(session_id, remote)

    def pushed(self, remote: str) -> list[str]:
        """The ids of the sessions that were pushed to *remote*."""
        return self._store.pushed(remote)

    def pull(self, remote: str, session_id: str | None = None) -> Synced:
        """Take a session from the git repository *remote* (see `SessionStore.pull`).

        Raises:
            SessionActive: this process has it open.
        """
        if session_id is not None:
            self._check_not_open(session_id, "pulled")
        return self._store.pull(remote, session_id)

    # -- across sessions

    @property
    def notes(self) -> Notes:
        """The notes that agents keep beside the sessions."""
        return Notes(self._store.root_path)

    # -- how

    def _live(self, session_id: str) -> AgentSession | None:
        return registry.live(self._store, session_id)

    def _check_not_open(self, session_id: str, what: str) -> None:
        if self._live(session_id) is not None:
            raise SessionActive(
                f"session {session_id!r} is open in this process, and cannot be {what} meanwhile; "
                "leave it first"
            )
