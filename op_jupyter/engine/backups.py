"""What files were before a call changes them, kept with the session.

Before a call runs, the old content of the files that it names goes to the session's
``context/``, by content hash; before code runs, that of a whole workspace that is small
enough.  The node of the call tells what it was, and at its end what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from op_jupyter.core.backups import ABSENT, FileState, Step, steps_to_json
from op_jupyter.core.keys import canonical_json
from op_jupyter.core.permissions import GateCall
from op_jupyter.core.values import dataclass
from op_jupyter.engine.recorder import Recorder
from op_jupyter.tools.backup_files import (
    WORKSPACE_BYTES,
    WORKSPACE_ENTRIES,
    Seen,
    Workspace,
    absent_folders,
    look,
    state_of,
)
from op_jupyter.tools.gate import real_path
from op_jupyter.tools.threads import in_thread

MEDIA: Final = "application/octet-stream"
CAN_UNDO: Final = "`%agent undo` puts the old content back."
CODE_CAN_UNDO: Final = (
    "The files of the workspace are kept before it runs, and `%agent undo` puts them back; what "
    "it does elsewhere, in .git or over a network cannot be undone."
)
CODE_CANNOT_UNDO: Final = (
    "What it does cannot be undone: the workspace is too large to be kept "
    f"(more than {WORKSPACE_ENTRIES:,} entries or {WORKSPACE_BYTES // 1024 // 1024} MB)."
)


@dataclass(frozen=True, slots=True)
class Taken:
    """What was kept before a call; *workspace* when everything in it was looked at."""

    states: Mapping[Path, FileState]
    workspace: Workspace | None = None


@dataclass(slots=True)
class Backups:
    """The backups of one session; *skipped* tells which folders are never copied."""

    recorder: Recorder
    skipped: Callable[[], Iterable[Path]]
    _workspaces: dict[Path, Workspace] = field(default_factory=dict)
    _kept: dict[str, tuple[str, int]] = field(default_factory=dict)
    _last: dict[Path, Mapping[Path, FileState]] = field(default_factory=dict)

    async def promise(self, call: GateCall, workspace: Path) -> str:
        """Whether the call can be undone, in words for a card; what the tool says otherwise."""
        if call.code:
            return await in_thread(lambda: self._promise_code(workspace))
        paths = _written(call)
        if not paths:
            return call.undo
        return await in_thread(lambda: self._promise_files(paths))

    def _promise_code(self, workspace: Path) -> str:
        small = self._workspace(workspace).entries() is not None
        return CODE_CAN_UNDO if small else CODE_CANNOT_UNDO

    def _promise_files(self, paths: Iterable[Path]) -> str:
        for path in paths:
            state = self._look(path).state
            if state.why:
                return f"It cannot be undone: the old {path.name} is not kept, because {state.why}."
        return CAN_UNDO

    async def before(self, call: GateCall, node_id: str, workspace: Path) -> Taken | None:
        """Keep what the call may change, durably; None: nothing can be kept.

        Raises:
            StoreError: it could not be kept; the call must not run.
        """
        if call.code:
            return await in_thread(lambda: self._keep_workspace(node_id, workspace))
        paths = _written(call)
        return await in_thread(lambda: self._keep_files(node_id, paths)) if paths else None

    async def after(self, taken: Taken | None) -> dict[str, Any]:
        """What became of it, as the metadata of the call's node."""
        return {} if taken is None else await in_thread(lambda: _what_became(taken))

    # -- in a thread

    def _workspace(self, root: Path) -> Workspace:
        if root not in self._workspaces:
            real = real_path(root)
            self._workspaces[root] = Workspace(real, frozenset(map(real_path, self.skipped())))
        return self._workspaces[root]

    def _look(self, path: Path) -> Seen:
        return look(path, self.recorder.holds_secret)

    def _keep_files(self, node_id: str, paths: Iterable[Path]) -> Taken:
        states: dict[Path, FileState] = {}
        seen: dict[Path, Seen] = {}
        for path in paths:
            for folder in absent_folders(path):
                states[folder] = ABSENT
            seen[path] = self._look(path)
        self._keep({s.state.sha256: s.content for s in seen.values() if s.content is not None})
        states |= {path: self._located(found.state) for path, found in seen.items()}
        steps = [Step(str(path), state, None) for path, state in states.items()]
        self.recorder.note(node_id, backup={"before": steps_to_json(steps)})
        return Taken(states)

    def _keep_workspace(self, node_id: str, root: Path) -> Taken | None:
        workspace = self._workspace(root)
        seen = workspace.states(self._look, self._last.get(root))
        if seen is None:
            return None
        self._keep({s.state.sha256: s.content for s in seen.values() if s.content is not None})
        states = {path: self._located(found.state) for path, found in seen.items()}
        self._last[root] = states
        told = {str(path): state.to_json() for path, state in states.items()}
        manifest = self.recorder.keep_blob(canonical_json(told).encode(), "application/json")
        self.recorder.note(node_id, backup={"manifest": manifest})
        return Taken(states, workspace)

    def _keep(self, contents: Mapping[str, bytes]) -> None:
        """Keep contents by their sha256; several that are new as one value, which is quicker."""
        new = {sha: data for sha, data in contents.items() if sha not in self._kept}
        if not new:
            return
        blob = self.recorder.keep_blob(b"".join(new.values()), MEDIA)
        offset = 0
        for sha, data in new.items():
            self._kept[sha] = (blob, offset)
            offset += len(data)

    def _located(self, state: FileState) -> FileState:
        """*state* with the place where its content is kept."""
        if state.why or state.sha256 not in self._kept:
            return state
        blob, offset = self._kept[state.sha256]
        return replace(state, blob=blob, offset=offset)


def _written(call: GateCall) -> list[Path]:
    if call.effect == "control":  # it makes a folder for others to work in, and no file
        return []
    return [Path(use.real) for use in call.paths if use.write]


def _what_became(taken: Taken) -> dict[str, Any]:
    whole = None if taken.workspace is None else taken.workspace.states(had=taken.states)
    if whole is None:
        now = {path: state_of(path) for path in taken.states}
    else:
        now = dict.fromkeys(taken.states, ABSENT) | {p: seen.state for p, seen in whole.items()}
    steps = []
    for path, after in now.items():
        before = taken.states.get(path, ABSENT)
        if not after.is_same(before) and {before.kind, after.kind} != {"other"}:
            steps.append(Step(str(path), before, after))
    return {"files": steps_to_json(steps)}
