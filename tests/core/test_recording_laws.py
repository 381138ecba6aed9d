"""What a key survives and what it notices, for conversations of every shape.

A conversation is written once, with holes where a machine shows; then it is told as two machines
would tell it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from op_jupyter.core.messages import (
    Message,
    ModelRequest,
    OpaqueBlock,
    ResponseDone,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
)
from op_jupyter.core.prompt import world_text
from op_jupyter.core.recording import (
    MACHINE_SECTIONS,
    Folders,
    canonical_request,
    reply_from_recording,
    reply_in_history,
    reply_to_recording,
    request_key,
)
from op_jupyter.core.recording_diff import difference

EXAMPLES = settings(max_examples=60)


@dataclass(frozen=True)
class Machine:
    """What differs from one machine, and one run, to another."""

    number: int
    workspace: str
    home: str
    temp: str
    sessions: str

    @property
    def folders(self) -> Folders:
        paths = (self.workspace, self.home, self.sessions, self.temp)
        workspace, home, sessions, temp = map(PurePosixPath, paths)
        return Folders.of(workspace=workspace, home=home, sessions=sessions, temp=temp)

    @property
    def session(self) -> str:
        return f"nb-{self.number:012x}"

    def says(self, hole: str) -> str:
        return {
            "WORKSPACE": f"{self.workspace}/a.csv",
            "HOME": f"{self.home}/.cache",
            "TEMP": f"{self.temp}/tmp{self.number:08d}/x",
            "SESSIONS": self.sessions,
            "SESSION": self.session,
            "ADDRESS": f"<table at 0x{self.number:012x}>",
            "CELL": f"{self.temp}/ipykernel_{self.number}/{self.number}.py",
            "COUNT": f"Cell In[{self.number}], line 1",
            "LIBRARY": f"{self.home}/e/lib/python3.{self.number % 9}/site-packages/pandas/x.py",
        }.get(hole, hole)

    def text(self, words: tuple[str, ...]) -> str:
        return " ".join(map(self.says, words))


names = st.text("abcdefghij", min_size=3, max_size=8)
machines = st.builds(
    lambda number, a, b, c, d: Machine(number, f"/w{a}/{b}", f"/h{b}/{c}", f"/t{d}/{a}", f"/s/{d}"),
    st.integers(1, 10**8 - 1),
    *[names] * 4,
)
HOLES = (
    "WORKSPACE",
    "HOME",
    "TEMP",
    "SESSIONS",
    "SESSION",
    "ADDRESS",
    "CELL",
    "COUNT",
    "LIBRARY",
)
plain = st.sampled_from(["add", "rows", "München", "1.5", "x=3", "a/b", "at", "tmp", "[2]", "the"])
words = st.lists(plain | st.sampled_from(HOLES), min_size=1, max_size=6).map(tuple)


@dataclass(frozen=True)
class Written:
    """A conversation with holes: the system prompt, tools, and steps of prompt, call, result."""

    system: tuple[str, ...]
    tools: tuple[tuple[str, tuple[str, ...]], ...]
    steps: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...]

    def on(self, machine: Machine) -> ModelRequest:
        messages: list[Message] = []
        for number, (prompt, code, result) in enumerate(self.steps):
            use = f"toolu_{machine.number}_{number}"
            about = dict.fromkeys(MACHINE_SECTIONS, f"of {machine.session}")
            arguments = {"code": machine.text(code), machine.says("WORKSPACE"): 1}
            thinking = {
                "type": "thinking",
                "thinking": machine.text(result),
                "signature": machine.session,
            }
            messages += (
                Message(
                    "user",
                    (
                        TextBlock(world_text({**about, "variables": "df: table"})),
                        TextBlock(machine.text(prompt)),
                    ),
                ),
                Message(
                    "assistant",
                    (OpaqueBlock(thinking), ToolUseBlock(use, "python", json.dumps(arguments))),
                ),
                Message("user", (ToolResultBlock(use, (TextBlock(machine.text(result)),)),)),
            )
        tools = tuple(
            ToolSpec(name, machine.text(told), {"type": "object"}) for name, told in self.tools
        )
        return ModelRequest(
            "m",
            tuple(messages),
            system=machine.text(self.system),
            tools=tools,
            session_key=machine.session,
        )


conversations = st.builds(
    Written,
    words,
    st.lists(st.tuples(names, words), max_size=2, unique_by=lambda t: t[0]).map(tuple),
    st.lists(st.tuples(words, words, words), min_size=1, max_size=3).map(tuple),
)


def key(written: Written, machine: Machine) -> str:
    return request_key(canonical_request(written.on(machine), machine.folders))


def apart(one: Machine, other: Machine) -> bool:
    """No folder of one is a folder of the other by chance."""
    paths = [path for m in (one, other) for path in (m.workspace, m.home, m.temp, m.sessions)]
    return len(set(paths)) == len(paths)


@EXAMPLES
@given(conversations, machines, machines)
def test_a_conversation_has_one_key_on_every_machine(written, one, other):
    assume(apart(one, other))
    assert key(written, one) == key(written, other)


@EXAMPLES
@given(conversations, machines, st.data())
def test_one_changed_word_anywhere_changes_the_key_and_is_shown(written, machine, data):
    def changed(told):
        place = data.draw(st.integers(0, len(told) - 1), "word")
        return (*told[:place], told[place] + "s", *told[place + 1 :])

    where = data.draw(st.sampled_from(["system", "prompt", "code", "result", "tool"]), "where")
    if where == "system":
        other = replace(written, system=changed(written.system))
    elif where == "tool":
        assume(written.tools)
        (name, told), *rest = written.tools
        other = replace(written, tools=((name, changed(told)), *rest))
    else:
        place = ["prompt", "code", "result"].index(where)
        step = list(written.steps[-1])
        step[place] = changed(step[place])
        other = replace(written, steps=(*written.steps[:-1], tuple(step)))
    assert key(written, machine) != key(other, machine)
    lines = difference(
        *(canonical_request(each.on(machine), machine.folders) for each in (written, other))
    ).splitlines()
    was, now = ({line[1:] for line in lines[2:] if line[0] == sign} for sign in "-+")
    assert was and now and was != now  # and a person sees what it was


@EXAMPLES
@given(conversations, machines, machines, words)
def test_a_reply_recorded_here_and_told_back_there_is_the_one_in_the_history(
    written, here, there, said
):
    assume(apart(here, there))
    arguments = json.dumps({"code": here.text(said)})
    reply = ResponseDone(
        Message("assistant", (TextBlock(here.text(said)), ToolUseBlock("toolu_z", "f", arguments))),
        "tool_use",
    )
    request = written.on(here)
    recording = reply_to_recording(reply, request, here.folders)
    again = reply_from_recording(recording, there.folders, there.session)

    def history(told, machine, message):
        following = replace(told, messages=(*told.messages, message))
        return canonical_request(following, machine.folders)["messages"][-1]

    expected = reply_in_history(recording)
    assert history(request, here, reply.message) == expected
    assert history(written.on(there), there, again.message) == expected
    kept = json.dumps(recording.content)
    assert not any(trace in kept for trace in (here.workspace, here.home, here.session))
