"""Turns told as updates, for the tests of the views: a running one, cards, ends, hostile text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Wire = dict[str, Any]
ACTIONS = ("fork", "rewind", "show_prompt")


class Story:
    """Makes envelopes in their wire form, a tenth of a second apart."""

    def __init__(self, *, turn_id: str = "t1", session_id: str = "s1", at_ms: int = 1_000) -> None:
        self.turn_id, self.session_id = turn_id, session_id
        self.sequence, self.at_ms = 0, at_ms
        self.updates: list[Wire] = []

    def tell(self, kind: str, /, **data: Any) -> Story:
        """Add one update."""
        self.sequence += 1
        self.at_ms += 100
        self.updates.append(
            {
                "version": 1,
                "session_id": self.session_id,
                "turn_id": self.turn_id,
                "sequence": self.sequence,
                "occurred_at_ms": self.at_ms,
                "kind": kind,
                "data": data,
            }
        )
        return self

    def start(self, subject: str = "Which months are outliers?") -> Story:
        """The turn begins."""
        return self.tell(
            "turn_started", subject=subject, client_request_id="r1", session_title="sales"
        )

    def phase(self, phase: str, step: int) -> Story:
        """The turn's phase changes."""
        return self.tell("phase_changed", phase=phase, step=step)

    def text(self, *pieces: str) -> Story:
        """The model writes."""
        for piece in pieces:
            self.tell("text_delta", text=piece)
        return self

    def node(
        self,
        node_id: str,
        kind: str,
        name: str,
        label: str = "",
        *,
        caller: str | None = None,
        predecessor: str | None = None,
        status: str = "completed",
        **more: Any,
    ) -> Story:
        """A node appears."""
        return self.tell(
            "node_appended",
            **node(
                node_id,
                kind,
                name,
                label,
                caller=caller,
                predecessor=predecessor,
                status=status,
                turn_id=self.turn_id,
                **more,
            ),
        )

    def call(
        self,
        call_id: str,
        name: str,
        arguments: str,
        text: str = "",
        state: str = "succeeded",
        node_id: str | None = None,
    ) -> Story:
        """A tool call from start to end."""
        self.tell(
            "tool_call_started",
            id=call_id,
            name=name,
            arguments=arguments,
            node_id=node_id,
            phase="validating",
        )
        return self.tell(
            "tool_call_finished",
            id=call_id,
            name=name,
            state=state,
            text=text,
            node_id=node_id,
            edited=False,
        )

    def finish(self, text: str = "", status: str = "completed", **more: Any) -> Story:
        """The turn ends."""
        data = {
            "status": status,
            "text": text,
            "code": None,
            "message": "",
            "usage": {"input_tokens": 10, "output_tokens": 5},
            "steps": 2,
            "seconds": 4.2,
        }
        return self.tell("turn_finished", **{**data, **more})


def node(node_id: str, kind: str, name: str, label: str = "", **more: Any) -> Wire:
    """A node as `core.updates.node_view` shows it."""
    role = {"user": "user", "model": "llm"}.get(kind, "code")
    return {
        "id": node_id,
        "seq": 0,
        "role": role,
        "kind": kind,
        "name": name,
        "label": label,
        "status": "completed",
        "caller": None,
        "predecessor": None,
        "turn_id": "t1",
        **more,
    }


ANSWER = """## Two months stand out

I compared each month with the **median** of all twelve. Two lie more than 3 deviations away:

| Month | Revenue | Deviations |
|-------|--------:|-----------:|
| 2024-03 | 182,440 | +4.1 |
| 2024-08 | 21,075 | −3.6 |

March holds one order of 120,000 that appears twice, with the same `order_id`. August is low \
because the file ends on"""

CODE = """by_month = df.groupby("month")["revenue"].sum()
labels = [review_month(m) for m in by_month.index]"""


def running(**ids: Any) -> Story:
    """The design's running turn: three calls, a loop of twelve, an answer being written."""
    import json

    story = Story(**ids).start()
    story.node("n8", "user", "user", "Which months are outliers?")
    story.phase("running_model", 1)
    story.node("n9", "model", "model", "", predecessor="n8", status="running")
    story.tell(
        "node_updated",
        id="n9",
        status="completed",
        label="step 1: 3 tool calls",
        seconds=4.0,
        input_tokens=7000,
        output_tokens=402,
    )
    story.phase("running_tools", 1)
    steps = [
        "Sum revenue by month",
        "Label each month",
        "Explain the outliers",
        "Suggest a correction",
    ]
    arguments = json.dumps({"steps": [{"text": t, "status": "pending"} for t in steps]})
    story.node("n10", "tool", "update_plan", "4 steps", caller="n9", seconds=0.01)
    story.call("c1", "update_plan", arguments, "4 steps stored, 1 in progress", node_id="n10")
    states = ["completed", "completed", "in_progress", "pending"]
    story.tell(
        "plan_updated",
        steps=[{"text": t, "status": s} for t, s in zip(steps, states, strict=True)],
    )
    story.node("n11", "tool", "python", "by_month = df.groupby(…)", caller="n9", status="running")
    story.tell(
        "tool_call_started",
        id="c2",
        name="python",
        arguments=json.dumps({"code": CODE}),
        node_id="n11",
        phase="validating",
    )
    story.tell("permission_requested", **request("c2"))
    story.tell("permission_resolved", id="c2", answer="allow", how="click")
    for month in range(1, 13):
        name = f'month="2024-{month:02d}"'
        story.node(f"f{month}", "function", "review_month", name, caller="n11", seconds=0.8)
        story.node(f"m{month}", "model", "model", "one label each", caller=f"f{month}", seconds=0.7)
    story.tell("node_updated", id="n11", status="completed", seconds=9.8)
    story.tell(
        "tool_call_finished",
        id="c2",
        name="python",
        state="succeeded",
        text="12 labels: 10 normal, 2 outlier",
        node_id="n11",
        edited=False,
    )
    story.node(
        "n12",
        "tool",
        "read_file",
        "notes/2023.md: not found",
        caller="n9",
        status="error",
        seconds=0.02,
    )
    story.call(
        "c3",
        "read_file",
        '{"path": "notes/2023.md"}',
        "FileNotFound: notes/2023.md",
        "failed",
        "n12",
    )
    story.phase("running_model", 2)
    story.node(
        "n13", "model", "model", "step 2: writing the answer", predecessor="n9", status="running"
    )
    return story.text(*pieces(ANSWER))


def compacting() -> Story:
    """A turn whose history is being shortened, before the model is asked again."""
    story = Story().start("Go on").node("u", "user", "user", "Go on", status="completed")
    story.phase("compacting", 1)
    story.node("s", "summary", "summary", "stands for 40 nodes", predecessor="u", status="running")
    return story.node("m", "model", "model", "summary, try 1", caller="s", status="running")


def pieces(text: str, size: int = 12) -> Iterator[str]:
    """*text* as a model would stream it."""
    for start in range(0, len(text), size):
        yield text[start : start + size]


def completed(**ids: Any) -> Story:
    """The same turn, ended well."""
    story = running(**ids)
    answer = ANSWER.rsplit("\n\n", 1)[0] + (
        "\n\nMarch counts one order twice; without it the month is normal. "
        "August stops on the 9th, so it is incomplete and not low."
    )
    story.tell("draft_cleared")
    story.tell("node_updated", id="n13", status="completed", label="Two months stand out")
    return story.finish(answer)


def request(call_id: str = "c1", **more: Any) -> Wire:
    """What a card asks, as `core.permissions.PermissionRequest` tells it."""
    code = more.pop("code", "print(1)")
    return {
        "id": call_id,
        "turn_id": "t1",
        "tool": "python",
        "effect": "execute",
        "arguments": {"code": code},
        "reason": "Running code always asks in this mode.",
        "mode": "accept_edits",
        "rule": "python(*)",
        "dangers": [],
        "touches": [],
        "display": {"kind": "code", "language": "python", "code": code, "lines": {}},
        "undo": "",
        **more,
    }


def agents() -> Story:
    """Two sub-agents, one that failed and one that is at work, and a map of two hundred calls."""
    story = Story().start("Compare the regions").node("u", "user", "user", "Compare the regions")
    story.phase("running_tools", 1)
    story.node("m", "model", "model", "step 1: 3 tool calls", predecessor="u", seconds=3.1)
    for name, status, more in (
        ("north", "error", {"seconds": 4.0}),
        ("south", "running", {}),
    ):
        story.node(f"a{name}", "tool", "spawn_agent", name, caller="m", status=status, **more)
        task = f"t{name}"
        story.node(task, "function", "agent", f"{name}: look", caller=f"a{name}", status=status)
        story.node(f"m{name}", "model", "model", "step 1", caller=task, status=status, **more)
    story.node("k", "tool", "python", "agentic_map(review, rows)", caller="m", status="running")
    ends = {7: "error", 8: "cancelled", 9: "interrupted", 198: "running", 199: "running"}
    for number in range(200):
        status = ends.get(number, "completed")
        story.node(f"r{number}", "function", "review", f"row {number}", caller="k", status=status)
        ended = {} if status == "running" else {"seconds": 0.4}
        story.node(f"q{number}", "model", "model", "", caller=f"r{number}", status=status, **ended)
    return story


DANGEROUS = """import shutil, pathlib
root = pathlib.Path("build/cache")
# keep the newest run only
runs = sorted(root.iterdir(), key=lambda p: p.stat().st_mtime)
for run in runs[:-1]:
    shutil.rmtree(run)
(root / "index.json").unlink()
print(len(runs) - 1, "runs removed")"""

DIFF = """--- a/src/clean.py
+++ b/src/clean.py
@@ -12,3 +12,4 @@ def monthly(df):
     df = df.copy()
-    df = df.dropna()
+    df = df.drop_duplicates("order_id")
+    df = df.dropna(subset=["revenue"])
     return df.groupby("month")["revenue"].sum()
"""


def asking(ask: Wire, *, tool: str = "python", step: int = 3) -> Story:
    """A turn that waits on the card *ask*."""
    story = Story().start("Free some disk space").node("u", "user", "user", "Free some disk space")
    story.node("m", "model", "model", "calls python", predecessor="u", seconds=2.0)
    story.phase("running_tools", step)
    story.node("k", "tool", tool, "", caller="m", status="running")
    story.tell(
        "tool_call_started", id=ask["id"], name=tool, arguments="{}", node_id="k", phase="asking"
    )
    story.phase("waiting_permission", step)
    return story.tell("permission_requested", **ask)


def dangerous_request() -> Wire:
    """The design's dangerous code."""
    return request(
        code=DANGEROUS,
        arguments={"code": DANGEROUS},
        reason=(
            "Deleting always asks, in every mode. "
            "The check reads the code only: Python is not sandboxed."
        ),
        rule="python(code sha256:5f1c…)",
        dangers=["Deletes files."],
        touches=["build/cache/"],
        undo="A copy of the workspace (41 MB) is kept first. You can put the files back.",
        display={
            "kind": "code",
            "language": "python",
            "code": DANGEROUS,
            "lines": {"6": "deletes folders", "7": "deletes a file"},
        },
    )


def shell_request() -> Wire:
    """A command of several lines, one of them longer than the page."""
    command = "set -e\ncd build\n" + "tar --create --gzip --file ../release.tar.gz " * 4 + "."
    return request(
        tool="shell",
        arguments={"command": command},
        reason="Commands always ask in this mode.",
        rule=f"shell({command})",
        display={"kind": "code", "language": "shell", "code": command, "lines": {}},
    )


def long_request() -> Wire:
    """A call of a function with arguments that fill more than a page."""
    values = {
        "to": [f"someone-{number}@example.org" for number in range(30)],
        "subject": "The month " * 20,
        "text": "A paragraph without an end, " * 60,
    }
    return request(
        tool="send_report",
        arguments=values,
        reason="This function asks each time.",
        rule="",
        display={"kind": "json"},
    )


def diff_request() -> Wire:
    """The design's edit of a file."""
    return request(
        tool="edit_file",
        effect="write",
        arguments={
            "path": "src/clean.py",
            "old": "    df = df.dropna()",
            "new": '    df = df.drop_duplicates("order_id")\n'
            '    df = df.dropna(subset=["revenue"])',
        },
        reason="Every change asks in this mode.",
        mode="read_only",
        rule="edit_file(src/**)",
        undo="The old content is kept. You can put it back.",
        display={"kind": "diff", "path": "src/clean.py", "diff": DIFF},
    )
