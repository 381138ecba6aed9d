"""What a page does with the live view of a turn, without a browser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kernel.harness import Cell, Kernel


class Page:
    """The front end's side of the view that one cell shows."""

    def __init__(self, kernel: Kernel, cell: Cell, *, subshell: str | None = None) -> None:
        self._kernel = kernel
        self._subshell = subshell
        kernel.wait_for(lambda: bool(self._view_of(cell)) or cell.finished, "the live view")
        assert self._view_of(cell), f"the cell ended without a view: {cell.reply}"
        self.comm: str = str(self._view_of(cell))

    @staticmethod
    def _view_of(cell: Cell) -> str | None:
        for content in cell.of("comm_open"):
            if "_esm" in content["data"].get("state", {}):
                return str(content["comm_id"])
        return None

    def send(self, content: Mapping[str, Any]) -> str:
        """What `model.send` does in the page."""
        return self._kernel.widget_event(self.comm, content, subshell=self._subshell)

    def say_ready(self) -> None:
        """The page has rendered the view."""
        self.send({"kind": "ready"})
        self._kernel.wait_for(lambda: any(self.received("snapshot")), "the state of the turn")

    def received(self, kind: str) -> Iterator[dict[str, Any]]:
        """The messages of one kind that the page was sent."""
        for message in self._kernel.comms.get(self.comm, ()):
            data = message["content"]["data"]
            if data.get("method") == "custom" and data["content"]["kind"] == kind:
                yield data["content"]

    def updates(self, kind: str) -> list[dict[str, Any]]:
        """The data of all updates of one kind that the page was sent."""
        items = [item for batch in self.received("updates") for item in batch["items"]]
        return [item["data"] for item in items if item["kind"] == kind]

    def saw_text(self) -> bool:
        """Whether the page has any of the answer by now."""
        drafts = (shown["state"]["draft"] for shown in self.received("snapshot"))
        return any(drafts) or bool(self.updates("text_delta"))

    def nodes(self) -> dict[str, str]:
        """The newest node of each role, by id."""
        states = [s["state"]["nodes"] for s in self.received("snapshot")]
        seen = [*(states[-1] if states else ()), *self.updates("node_appended")]
        return {node["role"]: node["id"] for node in seen}

    def _cards(self) -> list[dict[str, Any]]:
        snapshots = [s["state"]["permission"] for s in self.received("snapshot")]
        return [*(card for card in snapshots if card), *self.updates("permission_requested")]

    def card(self, number: int = 1) -> dict[str, Any]:
        """The card with that number, counted by the calls they ask about."""

        def different() -> dict[str, dict[str, Any]]:
            return {card["id"]: card for card in self._cards()}

        self._kernel.wait_for(lambda: len(different()) >= number, f"card number {number}")
        return list(different().values())[number - 1]

    def decide(self, card: Mapping[str, Any], answer: str, **more: Any) -> str:
        """Press one of the card's buttons."""
        return self.send({"kind": "decide", "id": card["id"], "answer": answer, **more})
