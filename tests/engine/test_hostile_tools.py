"""Tools that misbehave: each call has one truthful result, and the model goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from op_jupyter.core.messages import ImageBlock, TextBlock, ToolResultBlock, ToolSpec
from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.engine.session import AgentSession
from op_jupyter.errors import SessionStateError
from op_jupyter.testing.providers import ScriptedProvider, call, reply
from op_jupyter.tools.base import CallDescription, ToolContext, ToolOutput
from tests.engine.harness import (
    ALLOW,
    FakeTool,
    ScriptedAsker,
    assert_sendable,
    assert_sound,
    results_in,
    run,
    states,
    texts,
)


class Final(BaseException):
    """No Exception, and not one of Python's own."""


def goes_on_after(session: AgentSession, tool: Any, *, asker: Any = None) -> ToolResultBlock:
    """Run *tool* and one beside it; the turn completes.  Returns what the model was told."""
    provider = ScriptedProvider(
        reply(call(tool.spec.name, {"what": "a"}), call("beside", {})), reply("ok")
    )
    outcome = run(session, provider, [tool, FakeTool("beside")], asker=asker)
    assert (outcome.status, outcome.text) == ("completed", "ok"), outcome
    assert_sound(session)
    assert_sendable(provider.requests[-1])
    first, second = results_in(provider)
    assert second.state == "success"
    return first


def raising(error: BaseException) -> Callable[[Mapping[str, Any]], Any]:
    def act(arguments: Mapping[str, Any]) -> Any:
        raise error

    return act


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        Final("odd"),
        StopIteration("done"),
        StopAsyncIteration(),
        RecursionError(),
        MemoryError(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_whatever_a_tool_raises_is_a_result(session: AgentSession, error: BaseException) -> None:
    result = goes_on_after(session, FakeTool(act=raising(error)))
    assert result.state == "error"
    assert type(error).__name__ in texts(session)[0]


@pytest.mark.parametrize(
    "garbage",
    [
        ToolOutput("text"),  # type: ignore[arg-type]
        ToolOutput(("text",)),  # type: ignore[arg-type]
        ToolOutput((TextBlock(3),)),  # type: ignore[arg-type]
        ToolOutput((ImageBlock("image/png", b"raw"),)),  # type: ignore[arg-type]
        ToolOutput((), state="splendid"),  # type: ignore[arg-type]
        ToolOutput((), state=["succeeded"]),  # type: ignore[arg-type]
        ToolOutput(None),  # type: ignore[arg-type]
        ToolOutput((None,)),  # type: ignore[arg-type]
    ],
)
def test_garbage_is_an_error_result(session: AgentSession, garbage: ToolOutput) -> None:
    result = goes_on_after(session, FakeTool(act=lambda arguments: garbage))
    assert result.state == "error"
    assert "no tool output" in texts(session)[0]


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, float("nan"), {"a": float("inf")}, nested(10_000), {3: "x"}, b"raw"],
    ids=lambda v: type(v).__name__,
)
def test_a_value_that_json_cannot_hold_is_described(session: AgentSession, value: Any) -> None:
    tool = FakeTool(act=lambda arguments: ToolOutput((TextBlock("fine"),), value=value))
    assert goes_on_after(session, tool).state == "success"
    assert states(session)[0] == "succeeded"


@pytest.mark.parametrize("text", ["\ud800 half", "a\0b", "\u202egnp.exe", "\x1b[31mred", "\r\n\t"])
def test_odd_characters_in_a_result_reach_the_model(session: AgentSession, text: str) -> None:
    result = goes_on_after(session, FakeTool(act=lambda arguments: text))
    assert result.state == "success"
    assert texts(session)[0] == text.replace("\ud800", "\ufffd")


def size_of(result: ToolResultBlock) -> int:
    return sum(len(b.text if isinstance(b, TextBlock) else b.data) for b in result.content)


@pytest.mark.parametrize(
    "blocks",
    [
        (TextBlock("x" * 5_000_000),),
        tuple(TextBlock("y" * 20_000) for _ in range(100)),
        tuple(TextBlock("z") for _ in range(100_000)),
    ],
    ids=["one text", "many texts", "very many texts"],
)
def test_a_huge_result_is_bounded_as_a_whole(session: AgentSession, blocks: Any) -> None:
    result = goes_on_after(session, FakeTool(act=lambda arguments: ToolOutput(blocks)))
    assert size_of(result) < 34_000
    assert len(result.content) < 20
    assert any("cut" in b.text for b in result.content if isinstance(b, TextBlock))
    finished = [
        e.update for e in session.replay_updates(0) or () if e.update.kind == "tool_call_finished"
    ]
    assert len(str(finished[0].data)) < 10_000


def test_more_images_than_a_person_would_send_are_left_out_and_said(session: AgentSession) -> None:
    images = tuple(ImageBlock("image/png", "iVBORw0KGgo=" * 10) for _ in range(50))
    result = goes_on_after(session, FakeTool(act=lambda arguments: ToolOutput(images)))
    kept = [b for b in result.content if isinstance(b, ImageBlock)]
    assert 0 < len(kept) <= 10
    said = "".join(b.text for b in result.content if isinstance(b, TextBlock))
    assert f"{50 - len(kept)} images" in said


def test_an_image_of_many_megabytes_is_left_out_and_said(session: AgentSession) -> None:
    image = ImageBlock("image/png", "A" * 12_000_000)
    result = goes_on_after(session, FakeTool(act=lambda arguments: ToolOutput((image,))))
    assert size_of(result) < 1_000
    assert "image" in result.content[0].text  # type: ignore[union-attr]


class Undescribable(FakeTool):
    def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
        raise ValueError("embedded null byte")


def test_a_tool_that_cannot_describe_its_call_is_not_run(session: AgentSession) -> None:
    tool = Undescribable()
    result = goes_on_after(session, tool)
    assert result.state == "error" and tool.calls == []
    assert "embedded null byte" in texts(session)[0]


def test_a_path_with_a_null_byte_is_an_error_result(session: AgentSession, tmp_path: Path) -> None:
    class Reads(FakeTool):
        def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
            return CallDescription(paths_read=(Path("/tmp/a\0b"),))

    tool = Reads()
    assert goes_on_after(session, tool).state == "error"
    assert tool.calls == []


class BrokenAsker(ScriptedAsker):
    """Raises wherever it can."""

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        raise RuntimeError("the terminal is gone")


class DeafAsker(ScriptedAsker):
    def answered(self, request: PermissionRequest, answer: PermissionAnswer) -> None:
        raise RuntimeError("cannot hear")


def test_a_way_to_ask_that_breaks_denies_and_says_so(session: AgentSession) -> None:
    tool = FakeTool(effect="execute")
    result = goes_on_after(session, tool, asker=BrokenAsker())
    assert result.state == "denied" and tool.calls == []
    assert "the terminal is gone" in texts(session)[0]


def test_a_way_to_ask_that_cannot_work_here_tells_the_caller_and_leaves_results(
    session: AgentSession,
) -> None:
    class Elsewhere(ScriptedAsker):
        async def decide(self, request: PermissionRequest) -> PermissionAnswer:
            raise SessionStateError("nobody waits; call it without await")

    provider = ScriptedProvider(reply(call("look", {}), call("look", {"what": "b"})))
    outcome = run(session, provider, [FakeTool(effect="execute")], asker=Elsewhere())
    assert outcome.status == "failed" and "without await" in outcome.message
    assert states(session) == ["failed", "cancelled"]
    assert_sound(session)


def test_an_asker_that_cannot_hear_the_answer_changes_nothing(session: AgentSession) -> None:
    tool = FakeTool(effect="execute")
    assert goes_on_after(session, tool, asker=DeafAsker([ALLOW])).state == "success"
    assert len(tool.calls) == 1


def test_edited_arguments_that_do_not_fit_never_reach_the_tools_own_code(
    session: AgentSession,
) -> None:
    class Picky(FakeTool):
        @property
        def spec(self) -> ToolSpec:
            return ToolSpec("look", "Look.", {"type": "object", "required": ["what"]})

        def describe(self, arguments: Mapping[str, Any], workspace: Path) -> CallDescription:
            return CallDescription(code=arguments["what"], language="python")

    tool = Picky(effect="execute")
    asker = ScriptedAsker([PermissionAnswer("allow", "click", arguments={})])
    assert goes_on_after(session, tool, asker=asker).state == "error"
    assert tool.calls == []
    assert "edited arguments do not fit" in texts(session)[0]


def test_a_tool_that_leaves_threads_and_tasks_behind_ends_like_any_other(
    session: AgentSession,
) -> None:
    release = threading.Event()
    task: list[asyncio.Task[None]] = []

    async def linger() -> None:
        await asyncio.to_thread(release.wait, 10)

    class Leaves(FakeTool):
        async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
            threading.Thread(target=release.wait, args=(10,), daemon=True).start()
            task.append(asyncio.ensure_future(linger()))
            context.progress("started")
            return ToolOutput((TextBlock("left"),))

    assert goes_on_after(session, Leaves()).state == "success"
    release.set()


def test_progress_is_text_and_bounded_whatever_the_tool_says(session: AgentSession) -> None:
    class Talks(FakeTool):
        async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
            context.progress("x" * 1_000_000)
            context.progress(object())  # type: ignore[arg-type]
            return ToolOutput((TextBlock("said"),))

    assert goes_on_after(session, Talks()).state == "success"
    said = [e for e in session.replay_updates(0) or () if e.update.kind == "tool_call_progress"]
    assert len(said) == 2
    assert all(isinstance(e.update.data["text"], str) for e in said)
    assert all(len(e.update.data["text"]) < 10_000 for e in said)
