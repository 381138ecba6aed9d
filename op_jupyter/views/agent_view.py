"""The live view of a turn: one widget model, fed by updates, answering with clicks.

The wire is custom messages, never growing traits: every render says ``ready`` and gets the
whole state, then batches of updates.  Clicks carry the id of what they answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

import traitlets

from op_jupyter.core.permissions import PermissionAnswer
from op_jupyter.core.updates import Envelope, Snapshot
from op_jupyter.views.bundle import esm, loader, styled
from op_jupyter.views.live import LiveTurn
from op_jupyter.views.model import State, TurnModel, is_over, outcome_word
from op_jupyter.views.page_widget import PageWidget
from op_jupyter.views.text import storable

NodeAction = Literal["fork", "rewind", "show_prompt", "undo"]
_ACTIONS: Final = ("fork", "rewind", "show_prompt", "undo")
_KEPT_CHARS: Final = 2000

Listener = Callable[[Envelope | Mapping[str, Any]], None]
OnDecide = Callable[[str, PermissionAnswer], None]
OnDetails = Callable[[str], Mapping[str, Any]]
OnNodeAction = Callable[[NodeAction, str], str | None]


class AgentView(PageWidget):
    """What a page shows of one turn.

    Attributes:
        state: a few words for a page without a kernel; the live state goes by messages.
        source: what draws it.
    """

    source = traitlets.Unicode(styled(esm())).tag(sync=True)
    _esm = loader(styled(esm()))
    state = traitlets.Dict().tag(sync=True)

    def __init__(self) -> None:
        super().__init__(state={"status": "running"})
        self._live = LiveTurn(self._post)
        self._on_decide: OnDecide | None = None
        self._on_cancel: Callable[[], None] | None = None
        self._on_details: OnDetails | None = None
        self._on_node_action: OnNodeAction | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return "<agent turn: live where widgets are shown>"

    def attach(
        self,
        *,
        subscribe: Callable[[Listener], Callable[[], None]] | None = None,
        snapshot: Callable[[], Snapshot] | None = None,
        nodes: Callable[[], Iterable[Mapping[str, Any]]] | None = None,
        turn_id: str | None = None,
        client_request_id: str | None = None,
        on_decide: OnDecide | None = None,
        on_cancel: Callable[[], None] | None = None,
        on_details: OnDetails | None = None,
        on_node_action: OnNodeAction | None = None,
        node_actions: Iterable[NodeAction] = (),
    ) -> None:
        """Follow one turn of a session, and say who hears the clicks.

        Callbacks may come on any thread and must only hand over.  With *snapshot* (and
        *nodes*, the `node_view` of the turn's nodes) a turn that runs already is joined;
        without, the turn with *turn_id* or *client_request_id*, or else the next one.

        Args:
            on_details: gives ``input``, ``output`` and perhaps ``permission`` of a node, as text,
                and in ``changes`` the files that undoing it would put back.
            on_node_action: does one of *node_actions*; a returned text is shown.
        """
        self._on_decide, self._on_cancel = on_decide, on_cancel
        self._on_details, self._on_node_action = on_details, on_node_action
        self._live.extras = {
            "actions": [action for action in _ACTIONS if action in set(node_actions)],
            "details": on_details is not None,
            "can_cancel": on_cancel is not None,
            "place": self.model_id,
        }
        self._live.follow(turn_id=turn_id, client_request_id=client_request_id)
        if snapshot is not None:
            self._live.hold()
        if subscribe is not None:
            self._unsubscribe = subscribe(self.feed)
        if snapshot is not None:
            now = snapshot().to_json()
            ours = _is_followed(now["runtime"], turn_id, client_request_id)
            known = nodes() if nodes is not None and ours else ()
            self._live.join(TurnModel.from_session(now, known) if ours else None)
        self._live.start_pacing()

    def feed(self, envelope: Envelope | Mapping[str, Any]) -> None:
        """Take one update; quick, from any thread."""
        self._live.feed(envelope)

    def turn(self) -> State:
        """The turn's state so far, as `static_html.static_bundle` takes it."""
        return self._live.state()

    def finish(self) -> None:
        """Send what is left, and stop listening."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._live.close()
        self._keep_words()

    def expire(self) -> None:
        """Show open cards as expired: answers are taken no more."""
        self._live.expire()
        self._keep_words()

    def _keep_words(self) -> None:
        turn = self._live.state()
        self.state = {
            "status": outcome_word(turn) if is_over(turn) else "interrupted",
            "subject": turn["subject"][:_KEPT_CHARS],
            "answer": turn["answer"][:_KEPT_CHARS],
        }

    def _post(self, message: dict[str, Any]) -> None:
        self.send(message)

    # -- from the page; on the main thread or a subshell's, so: hand over, nothing else

    def hear(self, content: Mapping[str, Any]) -> None:
        """See `PageWidget`."""
        match content.get("kind"):
            case "ready":
                self._live.send_snapshot()
            case "decide":
                self._decide(content)
            case "cancel" if self._on_cancel is not None:
                self._on_cancel()
            case "details":
                self._details(content.get("id"))
            case "node_action":
                self._act(content.get("action"), content.get("id"))

    def _decide(self, content: Mapping[str, Any]) -> None:
        decision = self._live.take_decision(content)
        if decision is not None and self._on_decide is not None:
            self._on_decide(*decision)

    def _details(self, node_id: object) -> None:
        if self._on_details is not None and isinstance(node_id, str):
            details = self._on_details(node_id)
            self._live.send(storable({**details, "kind": "details", "id": node_id}))

    def _act(self, action: object, node_id: object) -> None:
        known = action in self._live.extras.get("actions", ())
        if self._on_node_action is not None and known and isinstance(node_id, str):
            said = self._on_node_action(action, node_id)  # type: ignore[arg-type]
            if said is not None:
                self._live.send({"kind": "note", "id": node_id, "action": action, "text": said})


def _is_followed(
    runtime: Mapping[str, Any], turn_id: str | None, client_request_id: str | None
) -> bool:
    """Whether the session is in the turn that the view shows, or that one is still to come."""
    if turn_id is not None:
        return bool(runtime.get("turn_id") == turn_id)
    if client_request_id is not None:
        return bool(runtime.get("client_request_id") == client_request_id)
    return bool(runtime["state"] == "running")
