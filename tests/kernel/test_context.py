"""What the model is told, through a real kernel, a real store and real HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel.harness import Cell, Kernel
from kernel.page import Page

from op_jupyter.core.compaction import HEADINGS
from op_jupyter.testing.fake_messages import FakeMessages, Reply, text, tool

pytestmark = pytest.mark.parametrize("ipykernel", ["newest"], indirect=True)

SUMMARY = "\n".join(f"## {heading}\nit was about penguins" for heading in HEADINGS)


def agent(kernel: Kernel, prompt: str, flags: str = "") -> Cell:
    return kernel.finish(kernel.send(f"%%agent {flags}\n{prompt}", allow_stdin=True))


def shown(cell: Cell) -> str:
    return "\n".join(d["data"].get("text/plain", "") for d in cell.displays)


def told(fake: FakeMessages) -> str:
    return str(fake.requests[-1].body["messages"])


def test_skills_plan_compaction_and_rewind_in_a_real_kernel(
    notebook: Kernel, fake: FakeMessages, tmp_path: Path
) -> None:
    # AGENTS.md, a skill and the variables are told; the plan is in the saved output.
    skill = tmp_path / ".agents" / "skills" / "plots" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: plots\ndescription: How plots look.\n---\nUse blue.\n")
    (tmp_path / "AGENTS.md").write_text("Answer in French.")
    notebook.check("weights = [3, 4, 5]")
    steps = [{"text": "Look", "status": "completed"}, {"text": "Plot", "status": "in_progress"}]
    fake.script(
        Reply([tool("update_plan", id="toolu_plan", steps=steps)]), Reply([text("first answer")])
    )
    cell = agent(notebook, "first question", "--skill plots")
    assert cell.status == "ok", cell.of("error")
    assert "<summary>Plan, 1 of 2</summary>" in cell.displays[-1]["data"]["text/html"]
    for part in ("Answer in French.", "How plots look.", "Use blue.", "weights: list"):
        assert part in told(fake)

    # The stop button ends a compaction, and nothing has changed but what was asked for meanwhile.
    answered = shown(notebook.run("%agent history")).splitlines()[-1].split()[0]
    fake.script(Reply([text(SUMMARY)], fault="hang", at=1))
    compacting = notebook.send("%agent compact", allow_stdin=True)
    fake.wait_held()
    page = Page(notebook, compacting)
    page.say_ready()
    (snapshot,) = page.received("snapshot")
    assert snapshot["state"]["phase"] == "compacting"
    assert "fork" in snapshot["actions"]
    page.send({"kind": "node_action", "action": "fork", "id": answered})
    notebook.wait_for(lambda: any(page.received("note")), "what will happen")
    notebook.interrupt()
    assert notebook.finish(compacting).error == "KeyboardInterrupt"
    view, *others = [display["data"] for display in compacting.displays]
    assert view == {} and others == [{"text/plain": "On branch fork-2 now."}]
    fake.script(Reply([text(SUMMARY)]))
    done = notebook.run("%agent compact")
    assert done.status == "ok" and "it was about penguins" in shown(done)
    assert "first question" in told(fake)  # what it was asked to summarise

    # The summary takes the place of all before it, and holds through a restart.
    fake.script(Reply([text("second answer")]))
    agent(notebook, "second question")
    assert "it was about penguins" in told(fake) and "first answer" not in told(fake)
    assert "Answer in French." in told(fake)  # the world is told anew
    notebook.restart()
    notebook.run("%load_ext op_jupyter")
    notebook.run("%agent resume")
    fake.script(Reply([text("third answer" + "x" * 60_000)]))
    agent(notebook, "third question")
    assert "it was about penguins" in told(fake) and "second answer" in told(fake)

    # A service that refuses the request as too long gets a summary first.
    fake.script(
        Reply(status=400, error_message="prompt is too long: 9 tokens > 8 maximum"),
        Reply([text(SUMMARY)]),
        Reply([text("fourth answer")]),
    )
    assert "fourth answer" in shown(agent(notebook, "fourth question"))
    assert "third answer" not in told(fake) and "fourth question" in told(fake)

    # Rewinding to before the first summary brings the originals back.
    history = shown(notebook.run("%agent history")).splitlines()
    first, second = [line.split()[0] for line in history if line.startswith("summary")]
    assert second in shown(notebook.run(f"%agent show {second}"))
    assert notebook.run(f"%agent rewind {first}").status == "ok"
    fake.script(Reply([text("fifth answer")]))
    agent(notebook, "fifth question")
    assert "first answer" in told(fake) and "it was about penguins" not in told(fake)
