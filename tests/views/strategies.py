"""Random graphs and random updates, for what must hold for all of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

KINDS = ["user", "model", "function", "tool", "summary"]
STATUSES = ["running", "completed", "error", "denied", "cancelled", "interrupted"]
NAMES = ["user", "model", "python", "review"]
ROLES = {"user": "user", "model": "llm"}

texts = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\u202e\x00\x1b\u200b<>&\n\r"),
    max_size=12,
)


@st.composite
def graphs(draw: st.DrawFn, *, max_size: int = 25, prefix: str = "n") -> list[dict[str, Any]]:
    """Nodes in order; callers and predecessors are earlier ones, missing ones or none."""
    nodes: list[dict[str, Any]] = []
    for index in range(draw(st.integers(0, max_size))):
        known = [node["id"] for node in nodes]
        earlier = st.sampled_from([*known[-6:], *known[:2], None, None, "elsewhere"])
        kind = draw(st.sampled_from(KINDS))
        nodes.append(
            {
                "id": f"{prefix}{index}",
                "seq": index + 1,
                "role": ROLES.get(kind, "code"),
                "kind": kind,
                "name": draw(st.sampled_from(NAMES)),
                "label": draw(texts),
                "status": draw(st.sampled_from(STATUSES)),
                "caller": draw(earlier) if kind != "user" else None,
                "predecessor": draw(earlier),
                "turn_id": "t1",
            }
        )
    return nodes


def _update(kind: str, /, **data: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"kind": st.just(kind), "data": st.fixed_dictionaries(data)})


_calls = st.sampled_from(["c1", "c2", "c3"])
_node_ids = st.sampled_from(["n0", "n1", "n2", "n9"])
_phases = st.sampled_from(["starting", "running_model", "running_tools", "waiting_permission"])
_answers = st.sampled_from(["allow", "allow_session", "deny", "deny_message"])
_steps = st.lists(
    st.fixed_dictionaries({"text": texts, "status": st.sampled_from(["pending", "completed"])}),
    max_size=3,
)
_updates = st.one_of(
    _update("turn_started", subject=texts, client_request_id=st.just("r")),
    _update("phase_changed", phase=_phases, step=st.integers(0, 9)),
    _update("text_delta", text=texts),
    _update("text_delta", text=texts),
    _update("reasoning_delta", text=texts),
    _update("draft_cleared"),
    _update(
        "tool_call_started",
        id=_calls,
        name=texts,
        arguments=texts,
        node_id=_node_ids | st.none(),
        phase=st.just("validating"),
    ),
    _update("tool_call_progress", id=_calls, text=texts),
    _update(
        "tool_call_finished",
        id=_calls,
        name=texts,
        state=st.sampled_from(["succeeded", "failed", "denied"]),
        text=texts,
        node_id=_node_ids,
        edited=st.booleans(),
    ),
    _update("permission_requested", id=_calls, tool=texts, arguments=st.just({"code": "1"})),
    _update("permission_resolved", id=_calls, answer=_answers, how=st.just("click")),
    _update("plan_updated", steps=_steps),
    _update(
        "turn_finished",
        status=st.sampled_from(["completed", "failed", "cancelled"]),
        text=texts,
        code=st.sampled_from([None, "model_error", "permission_denied"]),
        message=texts,
        usage=st.just({"input_tokens": 1, "output_tokens": 2}),
        steps=st.integers(0, 9),
        seconds=st.just(1.5),
    ),
    _update("node_appended", id=_node_ids, kind=st.sampled_from(KINDS), status=st.just("running")),
    _update("node_updated", id=_node_ids, status=st.sampled_from(STATUSES)),
    _update("something_newer", anything=texts),
)


@st.composite
def updates(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Envelopes of one turn in their wire form; now and then one comes twice."""
    told: list[dict[str, Any]] = []
    for sequence, update in enumerate(draw(st.lists(_updates, max_size=40)), start=1):
        envelope = {
            "version": 1,
            "session_id": "s1",
            "turn_id": "t1",
            "sequence": sequence,
            "occurred_at_ms": sequence * 100,
            **update,
        }
        told += [envelope] * draw(st.sampled_from([1, 1, 1, 2]))
    return told
