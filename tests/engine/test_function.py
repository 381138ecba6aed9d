"""The docstring rule, and the nodes that calls leave behind."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest

from op_jupyter.engine import context, loop
from op_jupyter.engine.function import agentic_function
from op_jupyter.engine.prompts import prompt_text, request_of
from op_jupyter.engine.runtime import Runtime, agent, llm
from op_jupyter.engine.session_context import session_context, session_scope
from op_jupyter.errors import (
    EmptyInput,
    ProviderConnectionError,
    RecursionLimit,
    RetriesExhausted,
    RuntimeClosed,
    ToolDefinitionError,
)
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import ScriptedProvider, reply
from tests.engine.harness import assert_sound, run

DOC = "Classify the sentiment of a review as positive or negative. Answer with one word."


@agentic_function
def classify(review: str) -> str:
    """Classify the sentiment of a review as positive or negative. Answer with one word."""
    return llm(review)


@agentic_function
def judge_twice(review: str) -> str:
    """Judge the review, then reconsider."""
    first = llm(f"first look at {review}")
    return llm(f"you said {first}; final word?")


@agentic_function
def outer(reviews: list[str]) -> list[str]:
    """Classify many reviews."""
    return [classify(review) for review in reviews]


def in_session(store: MemoryStore, runtime: Runtime) -> session_context:
    return session_context("s1", store=store, runtime=runtime)


def echo(content: list[dict[str, Any]]) -> str:
    return "positive"


def sent(provider: ScriptedProvider, index: int = -1) -> str:
    return prompt_text(provider.requests[index])


@pytest.mark.parametrize("bound", [True, False], ids=["in a session", "without a session"])
def test_the_docstring_is_in_the_prompt_exactly_once_with_path_and_arguments(
    store: MemoryStore, bound: bool
) -> None:
    provider = ScriptedProvider(reply("positive"))
    runtime = Runtime(provider=provider)
    if bound:
        with in_session(store, runtime):
            assert classify("great film") == "positive"
    else:
        with context_runtime(runtime):
            assert classify("great film") == "positive"
    prompt = sent(provider)
    assert prompt.count(DOC) == 1
    assert "Call path: classify" in prompt
    assert '"review": "great film"' in prompt
    assert prompt.rstrip().endswith("great film")


def context_runtime(runtime: Runtime) -> Any:
    """The ambient runtime without a session."""
    from contextlib import contextmanager

    @contextmanager
    def installed() -> Any:
        tokens = context.bind(None, None, runtime)
        try:
            yield
        finally:
            context.unbind(tokens)

    return installed()


def test_a_function_sees_its_own_earlier_reply_and_the_docstring_still_once(
    store: MemoryStore,
) -> None:
    provider = ScriptedProvider(reply("hm, good"), reply("positive"))
    with in_session(store, Runtime(provider=provider)):
        assert judge_twice("ok film") == "positive"
    prompt = sent(provider)
    assert prompt.count("Judge the review, then reconsider.") == 1
    assert prompt.index("first look at ok film") < prompt.index("hm, good")
    assert prompt.index("hm, good") < prompt.index("you said hm, good; final word?")


def test_without_a_session_a_function_still_sees_its_own_reply() -> None:
    provider = ScriptedProvider(reply("hm, good"), reply("positive"))
    with context_runtime(Runtime(provider=provider)):
        judge_twice("ok film")
    assert "hm, good" in sent(provider)
    assert context.current_session() is None


def test_a_nested_call_names_its_path_and_hangs_under_its_caller(store: MemoryStore) -> None:
    provider = ScriptedProvider(reply("positive"), reply("negative"))
    with in_session(store, Runtime(provider=provider)) as handle:
        assert outer(["a", "b"]) == ["positive", "negative"]
        dag = handle.agent.dag
    assert "Call path: outer → classify" in sent(provider)
    assert "Classify many reviews." not in sent(provider)
    (top,) = [n for n in dag if n.name == "outer"]
    calls = dag.children(top.id)
    assert [c.name for c in calls] == ["classify", "classify"]
    assert [dag.children(c.id)[0].role for c in calls] == ["llm", "llm"]
    assert top.output == ["positive", "negative"]


def test_earlier_bare_calls_are_history_without_their_docstring(store: MemoryStore) -> None:
    provider = ScriptedProvider(reply("positive"), reply("negative"))
    with in_session(store, Runtime(provider=provider)):
        classify("good")
        classify("bad")
    prompt = sent(provider)
    assert 'classify({"review": "good"})' in prompt
    assert prompt.count(DOC) == 1
    assert [m.role for m in provider.requests[-1].messages] == ["user", "assistant", "user"]


def test_expose_decides_what_others_see_afterwards(store: MemoryStore) -> None:
    for expose, seen in (("io", False), ("llm", True), ("full", True), ("hidden", False)):

        @agentic_function(expose=expose, name=f"f_{expose}")  # type: ignore[call-overload]
        def thinker(x: str) -> str:
            """Think."""
            llm(f"secret thought about {x}")
            return "done"

        provider = ScriptedProvider(reply("inner reply"), reply("ok"))
        with session_context(store=store, runtime=Runtime(provider=provider)) as handle:
            thinker("x")
            llm("and now?")
            names = [n.name for n in handle.agent.dag if n.role == "code"]
        assert ("inner reply" in sent(provider)) is seen, expose
        assert (f'f_{expose}({{"x": "x"}})' in sent(provider)) is (expose != "hidden")
        assert names == ([] if expose == "hidden" else [f"f_{expose}"])


def test_render_range_bounds_history_and_the_frame(store: MemoryStore) -> None:
    @agentic_function(render_range={"callers": 0, "subcalls": 1})
    def narrow() -> str:
        """Be narrow."""
        llm("one")
        llm("two")
        return llm("three")

    provider = ScriptedProvider(reply("before"), *(reply(t) for t in ("r1", "r2", "r3")))
    with in_session(store, Runtime(provider=provider)):
        llm("earlier")
        narrow()
    prompt = sent(provider)
    assert "earlier" not in prompt and "r1" not in prompt
    assert "r2" in prompt and prompt.count("Be narrow.") == 1


def test_every_stored_prompt_renders_again_byte_for_byte(store: MemoryStore) -> None:
    provider = ScriptedProvider(*(reply(f"r{i}") for i in range(5)))
    with in_session(store, Runtime(provider=provider)):
        judge_twice("x")
        outer(["a", "b"])
        llm("bare")
    with session_context("s1", store=store, create_runtime_if_none=False) as handle:
        nodes = [n for n in handle.agent.dag if n.role == "llm"]
        for node, request in zip(nodes, provider.requests, strict=True):
            again, same = request_of(handle.agent.dag, node.id, handle.agent.store.read_blob)
            assert same and again == request


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError("bad"), "error"), (KeyboardInterrupt(), "cancelled"), (SystemExit(), "cancelled")],
)
def test_the_way_out_is_recorded_truthfully(
    store: MemoryStore, error: BaseException, status: str
) -> None:
    @agentic_function
    def fails() -> None:
        """Fail."""
        raise error

    with in_session(store, Runtime(call=echo)) as handle:
        with pytest.raises(type(error)):
            fails()
        (node,) = handle.agent.dag
        (turn,) = handle.agent.dag.turns.values()
    assert node.status == status
    assert node.metadata["error"]["type"] == type(error).__name__
    assert "in fails\n    raise error" in node.metadata["error"]["traceback"]
    assert turn.status == ("failed" if status == "error" else "cancelled")


def test_a_running_function_is_already_a_node(store: MemoryStore) -> None:
    @agentic_function
    def look() -> str:
        """Look at myself."""
        handle = context.current_session()
        assert handle is not None
        node = handle.agent.dag.node(context.current_call_id() or "")
        return node.status

    with in_session(store, Runtime(call=echo)):
        assert look() == "running"


async def test_async_functions_gather_as_siblings(store: MemoryStore) -> None:
    @agentic_function
    async def think(n: int) -> str:
        """Think of a number."""
        return await llm.aio(f"number {n}")

    async with in_session(store, Runtime(call=echo)) as handle:
        assert await asyncio.gather(*(think(n) for n in range(50))) == ["positive"] * 50
        dag = handle.agent.dag
    tops = [n for n in dag if n.caller is None]
    assert len(tops) == 50
    assert all(len(dag.children(n.id)) == 1 for n in tops)
    assert [n.seq for n in dag] == sorted(n.seq for n in dag)
    assert all(t.status == "completed" for t in dag.turns.values())


def test_sync_calls_from_our_threads_keep_the_caller(store: MemoryStore) -> None:
    import contextvars

    @agentic_function
    def spread() -> list[str]:
        """Spread work."""
        with ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(contextvars.copy_context().run, classify, str(n)) for n in range(8)]
            return [job.result() for job in jobs]

    with in_session(store, Runtime(call=echo)) as handle:
        spread()
        dag = handle.agent.dag
    (top,) = [n for n in dag if n.caller is None]
    assert len(dag.children(top.id)) == 8


def test_a_programming_error_in_the_call_is_tried_exactly_once(store: MemoryStore) -> None:
    for kind in (TypeError, NotImplementedError, ImportError):
        calls = []

        def broken(content: Any, kind: type[Exception] = kind, calls: list[int] = calls) -> str:
            calls.append(1)
            raise kind("broken")

        with session_context(store=store, runtime=Runtime(call=broken)), pytest.raises(kind):
            llm("hello")
        assert len(calls) == 1


def test_a_final_failure_lists_its_attempts(store: MemoryStore) -> None:
    provider = ScriptedProvider(*[[ProviderConnectionError("refused")]] * 2)
    runtime = Runtime(provider=provider, max_retries=1)
    with in_session(store, runtime) as handle:
        with pytest.raises(RetriesExhausted) as caught:
            llm("hello")
        (node,) = handle.agent.dag
    assert "Attempt 2: ProviderConnectionError: refused" in str(caught.value)
    assert node.status == "error"
    assert len(provider.requests) == 2


def test_self_recursion_ends_with_a_clear_error(store: MemoryStore) -> None:
    @agentic_function(max_depth=3)
    def again(n: int) -> int:
        """Go on."""
        return again(n + 1)  # type: ignore[no-any-return]

    with in_session(store, Runtime(call=echo)), pytest.raises(RecursionLimit, match="max_depth=3"):
        again(0)


def test_what_a_hidden_function_asks_at_top_level_follows_the_head(store: MemoryStore) -> None:
    @agentic_function(expose="hidden")
    def whisper() -> str:
        """Answer in the dark."""
        return llm("psst")

    with in_session(store, Runtime(call=lambda content: "so")) as handle:
        run(handle.agent, ScriptedProvider(reply("said")))
        head = handle.agent.dag.head
        whisper()
        *_, asked = handle.agent.dag
        assert_sound(handle.agent)
    assert head is not None and (asked.role, asked.caller, asked.predecessor) == ("llm", None, head)


def test_a_runtime_that_is_closed_twice_closes_its_provider_once() -> None:
    closed: list[str] = []

    class Closing(ScriptedProvider):
        async def aclose(self) -> None:
            closed.append("closed")

    with Runtime(provider=Closing()) as runtime:
        runtime.close()
    assert runtime.closed and closed == ["closed"]


def test_the_system_prompt_of_a_function_stands_before_that_of_its_call(
    store: MemoryStore,
) -> None:
    @agentic_function(system="Be brief.")
    def ask_it() -> str:
        """Answer."""
        return llm("why?", system="Be kind.")

    provider = ScriptedProvider(reply("so"))
    with in_session(store, Runtime(provider=provider)):
        ask_it()
    assert "Be brief.\n\nBe kind." in prompt_text(provider.requests[0])


def test_recursion_is_counted_by_name_and_five_deep_unless_the_function_says_otherwise(
    store: MemoryStore,
) -> None:
    entered: list[str] = []

    @agentic_function
    def one(n: int) -> None:
        """Go on in the other."""
        entered.append("one")
        other(n)

    @agentic_function
    def other(n: int) -> None:
        """Go on in the one."""
        entered.append("other")
        one(n)

    with (
        in_session(store, Runtime(call=echo)),
        pytest.raises(RecursionLimit, match=r"one .* 5 times"),
    ):
        one(0)
    assert entered == ["one", "other"] * 5


def test_what_a_hidden_function_calls_hangs_on_the_nearest_recorded_caller(
    store: MemoryStore,
) -> None:
    @agentic_function
    def inner() -> str:
        """Answer."""
        return llm("inner")

    @agentic_function(expose="hidden")
    def between() -> str:
        """Answer in the dark."""
        return llm("between") + inner()

    @agentic_function
    def outer() -> str:
        """Have it answered."""
        return between()

    with in_session(store, Runtime(call=lambda content: "so")) as handle:
        assert outer() == "soso"
        dag = handle.agent.dag
        assert_sound(handle.agent)
    (top,) = dag.children(None)
    assert [(n.role, n.name) for n in dag if n.role == "code"] == [
        ("code", "outer"),
        ("code", "inner"),
    ]
    assert [n.role for n in dag.children(top.id)] == ["llm", "code"]


def test_a_runtime_parameter_is_filled_and_inherited(store: MemoryStore) -> None:
    @agentic_function
    def ask_it(question: str, runtime: Runtime | None = None) -> str:
        """Answer."""
        assert runtime is not None
        return runtime.exec(question)

    runtime = Runtime(call=echo)
    with in_session(store, runtime) as handle:
        assert ask_it("well?") == "positive"
        (node, _) = handle.agent.dag
    assert node.input == {"question": "well?"}
    assert "runtime" not in ask_it.spec["input_schema"]["properties"]


def test_bad_definitions_say_what_to_do() -> None:
    with pytest.raises(ToolDefinitionError, match="generator"):

        @agentic_function
        def numbers() -> Any:
            """Count."""
            yield 1

    with pytest.raises(ToolDefinitionError, match="above `def`"):
        agentic_function(len)
    with pytest.raises(ToolDefinitionError, match="expose"):
        agentic_function(expose="all")(lambda: None)  # type: ignore[call-overload]


def test_empty_content_and_a_closed_runtime_are_refused(store: MemoryStore) -> None:
    runtime = Runtime(call=echo)
    with in_session(store, runtime) as handle:
        with pytest.raises(EmptyInput):
            llm("  ")
        assert len(handle.agent.dag) == 0
        runtime.close()
        with pytest.raises(RuntimeClosed):
            llm("hello")
        with pytest.raises(TypeError, match="unexpected"):
            llm("hello", temprature=1)  # type: ignore[call-arg]


def test_a_sync_call_on_the_background_loop_raises_instead_of_waiting_for_itself() -> None:
    async def inside() -> None:
        Runtime(call=echo).exec("hello")

    with pytest.raises(RuntimeError, match="async form"):
        loop.run_sync(inside)


def test_leaving_restores_everything(store: MemoryStore) -> None:
    with in_session(store, Runtime(call=echo)) as outer_handle:
        assert outer_handle.created
        with session_scope(MemoryStore(), "other") as inner:
            assert context.current_session() is inner
            assert context.current_runtime() is None
        assert context.current_session() is outer_handle
        with pytest.raises(KeyboardInterrupt), session_context(store=store, turn_id="t1") as h:
            assert context.current_turn_id() == "t1"
            assert h.agent.dag.turns["t1"].status == "running"
            raise KeyboardInterrupt
        assert context.current_turn_id() is None
    assert context.current_session() is None
    assert context.current_frame() is None


@pytest.mark.parametrize("way_out", [None, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("installed", ["with", "async with"])
def test_inside_everything_is_visible_and_every_way_out_resets_it(
    store: MemoryStore, installed: str, way_out: type[BaseException] | None
) -> None:
    runtime = Runtime(call=echo)

    def seen() -> tuple[Any, ...]:
        frame = context.current_frame()
        caller = None if frame is None else frame.caller_id
        ambient = context.current_session(), context.current_runtime()
        return *ambient, context.current_turn_id(), caller

    @agentic_function
    def leave() -> None:
        """Leave."""
        assert seen() == (handle, runtime, "t1", [*handle.agent.dag][-1].id)
        if way_out is not None:
            raise way_out

    def inside() -> None:
        assert seen() == (handle, runtime, "t1", None)
        leave()

    nowhere = (None, None, None, None)
    assert seen() == nowhere
    here = session_context("s1", store=store, runtime=runtime, turn_id="t1")
    expected = nullcontext() if way_out is None else pytest.raises(way_out)
    if installed == "with":
        with expected, here as handle:
            inside()
        assert seen() == nowhere
        return

    async def work() -> None:
        nonlocal handle
        with expected:
            async with here as handle:
                inside()
        assert seen() == nowhere

    asyncio.run(work())


def test_a_session_goes_on_by_id(store: MemoryStore) -> None:
    provider = ScriptedProvider(reply("blue"), reply("still blue"))
    with in_session(store, Runtime(provider=provider)) as first:
        llm("what colour?")
    with in_session(store, Runtime(provider=provider)) as second:
        llm("and now?")
    assert (first.created, second.created) == (True, False)
    assert "what colour?" in sent(provider) and "blue" in sent(provider)


def test_a_plain_function_as_tool_may_ask_the_model_itself(store: MemoryStore) -> None:
    from op_jupyter.testing.providers import call

    def helper(topic: str) -> str:
        """Find out about a topic."""
        return llm(f"tell me about {topic}")

    provider = ScriptedProvider(
        reply(call("helper", {"topic": "owls"})), reply("owls are birds"), reply("done")
    )
    with in_session(store, Runtime(provider=provider)) as handle:
        assert agent("research", tools=[helper]) == "done"
        dag = handle.agent.dag
    (tool,) = [n for n in dag if n.metadata.get("kind") == "tool"]
    (inner,) = dag.children(tool.id)
    assert inner.role == "llm"
    assert "owls are birds" in sent(provider)


def test_an_agentic_function_as_tool_is_one_node(store: MemoryStore) -> None:
    from op_jupyter.testing.providers import call

    provider = ScriptedProvider(
        reply(call("classify", {"review": "fine"})), reply("positive"), reply("it is positive")
    )
    with in_session(store, Runtime(provider=provider)) as handle:
        assert agent("is it good?", tools=[classify]) == "it is positive"
        dag = handle.agent.dag
    assert [n.name for n in dag if n.role == "code"] == ["classify"]
    assert prompt_text(provider.requests[1]).count(DOC) == 1
    assert "Call path: classify" in prompt_text(provider.requests[1])


def test_calls_from_a_thread_without_our_context_are_not_lost_but_unbound() -> None:
    found: list[Any] = []

    def work() -> None:
        found.append(context.current_session())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [None]
