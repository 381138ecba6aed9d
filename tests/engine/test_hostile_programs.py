"""What a clumsy or hostile program hands to the engine: one clear error, nothing lost, no wait."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from op_jupyter import (
    WorkerPool,
    add_pre_invocation_hook,
    agent,
    agentic_function,
    agentic_map,
    ask,
    carry,
    confirm,
    llm,
    session_context,
    session_scope,
    set_ask_handler,
    set_cancellation_check,
    set_permission_handler,
    set_session_id_provider,
    submit,
    traced,
)
from op_jupyter.engine import loop
from op_jupyter.engine.call_options import to_blocks
from op_jupyter.engine.formats import Picked, settle_async
from op_jupyter.engine.prompts import prompt_text
from op_jupyter.engine.runtime import Runtime
from op_jupyter.errors import (
    ConfigurationError,
    MapFailed,
    OpenProgramError,
    ReplyInvalid,
    ToolDefinitionError,
    UsageError,
)
from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.providers import ScriptedProvider, reply
from tests.engine.harness import assert_sound

SECONDS = 20.0


@pytest.fixture(autouse=True)
def no_handler() -> Iterator[None]:
    yield
    set_ask_handler(None)


def in_session(store: MemoryStore, *answers: str) -> session_context:
    provider = ScriptedProvider(*map(reply, answers))
    return session_context("s1", store=store, runtime=Runtime(provider=provider))


def ended(work: Callable[[], Any]) -> Any:
    """What *work* returned or raised; a test fails when it waits for ever."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # noqa: BLE001 -- it is what is asked for
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert found, "it waits for ever"
    return found[0]


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


@agentic_function
def mute(item: int) -> int:
    """Fail without a word."""
    raise Mute


@agentic_function
def exhausted(item: int) -> int:
    """Take the next of nothing."""
    return next(iter(range(item, item)))


@agentic_function
def anything(*args: Any, **options: Any) -> list[str]:
    """Take every name."""
    return sorted(options)


# -- functions


def test_names_of_our_own_are_free_for_the_functions_arguments(store: MemoryStore) -> None:
    with in_session(store):
        names = ["args", "function", "kwargs", "name", "self"]
        assert anything(1, **dict.fromkeys(names, 1)) == names

        @agentic_function
        def named(self: str) -> str:
            """Say it."""
            return self

        assert named("a") == named(self="a") == "a"


def timed(function: Any) -> Any:
    """A decorator as programs have them: it knows nothing of async code."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


async def later(word: str) -> str:
    """Answer later."""
    return await llm.aio(word)


def lazily(word: str) -> Any:
    """Answer when somebody looks."""
    return (llm(letter) for letter in word)


async def lazily_async(word: str) -> Any:
    """Answer when somebody looks."""
    return (letter async for letter in agen(word))


async def agen(word: str) -> Any:
    for letter in word:
        yield letter


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (timed(later), "returned a coroutine, which would run after .* right above `async def`"),
        (lazily, "returned a generator, which would run after .* return a list"),
        (timed(timed(lazily)), "returned a generator"),
        (lazily_async, "returned a generator"),
    ],
)
def test_a_function_whose_code_would_run_after_its_call_says_so(
    store: MemoryStore, function: Any, said: str
) -> None:
    decorated = agentic_function(function)
    with in_session(store) as handle:
        with pytest.raises(ToolDefinitionError, match=said):
            value = decorated("word")
            asyncio.run(value)
        (node,) = handle.agent.dag
    assert node.status == "error"


def test_decorators_on_either_side_of_a_function_leave_the_docstring_rule_whole(
    store: MemoryStore,
) -> None:
    provider = ScriptedProvider(default=lambda request: reply("so"))
    with session_context("s1", store=store, runtime=Runtime(provider=provider)):
        assert asyncio.run(timed(agentic_function(later))("word")) == "so"
        assert agentic_function(timed(anything_asked))("{x} %s") == "so"
        assert functools.partial(agentic_function(anything_asked), "{x} %s")() == "so"
    prompts = [prompt_text(request) for request in provider.requests]
    assert "Answer later." in prompts[0]
    assert all("Ask {x} and {{y}}, 100 %s." in prompt for prompt in prompts[1:])


def anything_asked(x: str) -> str:
    """Ask {x} and {{y}}, 100 %s."""
    return llm(x)


KEY = "sk-" + "key-of-a-test" * 3


@pytest.mark.parametrize("text", ["half a \ud800 character", f"the key is {KEY}"])
def test_what_may_not_be_stored_is_not_sent_either_and_the_prompt_is_proven(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Wherever the program says it: in the docstring, a name, the system prompt, a choice."""
    monkeypatch.setenv("TEST_API_KEY", KEY)

    def told(x: str) -> Any:
        return llm(x, system=text, choices={"a": 1, text: 2})

    told.__doc__ = text
    function = agentic_function(told, name=text, system=text)
    seen: list[str] = []

    def model(content: list[dict[str, Any]], response_format: Any) -> str:
        seen.extend(block["text"] for block in content)
        return '{"choice": "a"}'

    with session_context("s1", store=store, runtime=Runtime(call=model)) as handle:
        assert function(text) == 1
        assert_sound(handle.agent)
    assert not any("\ud800" in part or KEY in part for part in seen[:-1])


class Masked:
    """An object that lies about what it is."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("none of your business")


def test_a_value_that_does_not_say_what_it_is_comes_back(store: MemoryStore) -> None:
    masked = Masked()

    def same(value: Any) -> Any:
        return value

    with in_session(store) as handle:
        assert agentic_function(same)(masked) is masked
        assert traced(same)(masked) is masked
        assert {n.status for n in handle.agent.dag} == {"completed"}


def test_a_docstring_that_is_no_text_is_refused() -> None:
    def odd() -> None: ...

    odd.__doc__ = 7  # type: ignore[assignment]
    with pytest.raises(ToolDefinitionError, match="the docstring of odd is a int: give a text"):
        agentic_function(odd)


def test_a_context_manager_is_a_generator_too() -> None:
    with pytest.raises(ToolDefinitionError, match="is a generator"):

        @agentic_function
        @contextlib.contextmanager
        def around() -> Iterator[str]:
            """Be around something."""
            yield llm("before")


LONG = 1_000_000


@pytest.mark.parametrize("fails", [ValueError, ConnectionError], ids=["theirs", "a provider's"])
def test_an_error_message_without_end_is_stored_in_short_and_raised_whole(
    store: MemoryStore, fails: type[Exception]
) -> None:
    def model(content: Any) -> str:
        raise fails("x" * LONG)

    with session_context("s1", store=store, runtime=Runtime(call=model, max_retries=1)) as handle:
        with pytest.raises(Exception, match="xxxx") as caught:
            agentic_function(anything_asked)("why?")
        stored = [*handle.agent.dag, *handle.agent.dag.turns.values()]
    assert len(str(caught.value)) >= LONG
    assert {record.status for record in stored} == {"error", "failed"}
    assert max(len(repr(record)) for record in stored) < 40_000


@pytest.mark.parametrize("wrap", [agentic_function, traced])
def test_an_error_that_cannot_say_what_is_wrong_passes_through_and_is_recorded(
    store: MemoryStore, wrap: Any
) -> None:
    def fail() -> None:
        """Fail."""
        raise Mute

    with in_session(store) as handle:
        with pytest.raises(Mute):
            wrap(fail)()
        (node,) = handle.agent.dag
    assert (node.status, node.metadata["error"]["type"]) == ("error", "Mute")


@pytest.mark.parametrize(
    "options",
    [
        {"max_depth": "many"},
        {"max_depth": None},
        {"max_depth": 0},
        {"max_depth": True},
        {"render_range": 3},
        {"render_range": {"callers": "all"}},
        {"render_range": {"callers": 1.5}},
        {"render_range": {"callers": True}},
        {"render_range": {"subcalls": -1}},
        {"render_range": {3: 1, "x": 2}},
        {"system": 3},
        {"name": 3},
    ],
)
def test_an_option_that_makes_no_sense_is_refused_at_the_definition(
    options: dict[str, Any],
) -> None:
    (option,) = options
    with pytest.raises(ToolDefinitionError, match=option):
        agentic_function(**options)(lambda: None)


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda: session_scope(None, "s2"), "session_scope.. needs a store"),  # type: ignore[arg-type]
        (lambda: session_context("s2", store="here"), "is no store; pass SessionStore"),  # type: ignore[arg-type]
        (lambda: session_context("s2", runtime="anthropic"), "is no runtime; create_runtime"),  # type: ignore[arg-type]
        (lambda: Runtime(provider="anthropic"), "is no provider; create_runtime"),  # type: ignore[arg-type]
        (lambda: agentic_map(anything_asked, ["a"], "pool"), "executor='pool' runs nothing"),  # type: ignore[arg-type]
        (lambda: submit(anything_asked, "a", executor=5), "executor=5 runs nothing"),  # type: ignore[arg-type]
        (lambda: agent("hello", tools=anything_asked), r"is no list; .* tools=\[...\]"),  # type: ignore[arg-type]
        (lambda: agent("hello", tools="search"), "tools='search' is no list"),
    ],
)
def test_what_is_passed_in_a_wrong_place_is_named_and_nothing_is_recorded(
    store: MemoryStore, mistake: Callable[[], Any], said: str
) -> None:
    with in_session(store, "never") as handle:
        with pytest.raises(UsageError, match=said):
            mistake()
        assert len(handle.agent.dag) == 0


def test_arguments_that_do_not_fit_name_the_function(store: MemoryStore) -> None:
    asked = agentic_function(anything_asked)
    with in_session(store), pytest.raises(TypeError, match=r"anything_asked\(\) too many"):
        asked("a", "b")


# -- what the model is asked


class Table:
    """Walks like a table: over the names of its columns."""

    def __iter__(self) -> Iterator[str]:
        return iter(["sales", "region"])


@pytest.mark.parametrize(
    "content", [None, 3, b"text", {"type": "text", "text": "hello"}, {"a"}, Table(), iter(["a"])]
)
def test_what_is_no_content_is_refused_and_never_taken_apart(content: Any) -> None:
    with pytest.raises(TypeError, match=f"{type(content).__name__}; pass text"):
        to_blocks(content)


@pytest.mark.parametrize(
    "options",
    [{"max_steps": 0}, {"max_steps": "2"}, {"model": 3}, {"system": 3}, {"on_stream": 3}],
)
def test_an_option_that_makes_no_sense_is_refused_before_anything_is_recorded(
    store: MemoryStore, options: dict[str, Any]
) -> None:
    (option,) = options
    with in_session(store, "hello") as handle:
        assert handle.runtime is not None
        with pytest.raises(ConfigurationError, match=option):
            handle.runtime.exec("hi", **options)
        assert len(handle.agent.dag) == 0
        assert llm("hi") == "hello"


def test_a_reply_nested_too_deep_is_the_replys_fault_and_kept(store: MemoryStore) -> None:
    nested = {"$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}
    deep = "[" * 900 + "]" * 900
    with in_session(store, deep, deep, deep, "[[]]"):
        with pytest.raises(ReplyInvalid, match="nested too deep") as caught:
            llm("?", response_format={**nested, "$ref": "#/$defs/n"})
        assert caught.value.raw == deep
        assert llm("?", response_format={**nested, "$ref": "#/$defs/n"}) == [[]]


def test_a_schema_that_refers_to_itself_for_ever_ends_and_asks_for_nothing(
    store: MemoryStore,
) -> None:
    endless = {"$defs": {"n": {"$ref": "#/$defs/n"}}, "$ref": "#/$defs/n"}
    with in_session(store, "[1]"):
        assert llm("?", response_format=endless) == [1]


# -- functions that run in threads of ours: asyncio's own futures never end by StopIteration


def test_a_map_over_threads_ends_whatever_an_item_raises(store: MemoryStore) -> None:
    def work() -> Any:
        with in_session(store), ThreadPoolExecutor(2) as threads:
            return agentic_map(exhausted, [1, 2], threads, return_exceptions=True)

    assert [type(e) for e in ended(work)] == [StopIteration, StopIteration]


def test_a_choice_and_a_handler_end_whatever_they_raise() -> None:
    def fail(*question: Any) -> Any:
        raise StopIteration

    set_ask_handler(fail)
    assert isinstance(ended(lambda: ask("Which?")), RuntimeError)
    assert isinstance(ended(lambda: loop.run_sync(settle_async, Picked(fail))), RuntimeError)


def test_a_map_tells_of_an_error_that_cannot_say_what_is_wrong(store: MemoryStore) -> None:
    with (
        in_session(store),
        ThreadPoolExecutor(1) as threads,
        pytest.raises(MapFailed, match="Mute"),
    ):
        agentic_map(mute, [1], threads)


@pytest.mark.slow
def test_a_worker_tells_of_an_error_that_cannot_say_what_is_wrong(store: MemoryStore) -> None:
    with in_session(store) as handle, WorkerPool(1) as pool:
        with pytest.raises(MapFailed, match="Mute"):
            agentic_map(mute, [1], pool)
        (node,) = handle.agent.dag
    assert (node.status, node.metadata["error"]["type"]) == ("error", "Mute")


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2", True])
def test_a_pool_of_no_whole_number_is_refused(workers: Any) -> None:
    with pytest.raises(UsageError, match="workers="):
        WorkerPool(workers)


# -- seams


@pytest.mark.parametrize(
    "register",
    [
        set_cancellation_check,
        set_ask_handler,
        set_permission_handler,
        set_session_id_provider,
        add_pre_invocation_hook,
    ],
)
def test_what_is_no_function_is_refused_where_it_is_registered(register: Any) -> None:
    with pytest.raises(OpenProgramError, match=register.__name__):
        register("stop")


# -- threads that nobody gave a context


@agentic_function
def greeted(name: str) -> str:
    """Greet somebody."""
    return llm(name)


def in_a_plain_thread(work: Callable[[], Any]) -> Any:
    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append(work())
        except UsageError as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return ended[0]


@agentic_function
async def greeted_later(name: str) -> str:
    """Greet somebody."""
    return await llm.aio(name)


@traced
def traced_greeting(name: str) -> str:
    return "hello"


@traced
async def traced_later(name: str) -> str:
    return "hello"


async def asked_runtime(name: str) -> str:
    with Runtime(call=lambda content: "hello") as runtime:
        return str(await runtime.async_exec(name))


WITHOUT_CONTEXT: dict[str, Callable[[], Any]] = {
    "agentic function": lambda: greeted("Ann"),
    "llm": lambda: llm("Ann"),
    "agent": lambda: agent("Ann"),
    "async agentic function": lambda: asyncio.run(greeted_later("Ann")),
    "llm.aio": lambda: asyncio.run(llm.aio("Ann")),
    "agent.aio": lambda: asyncio.run(agent.aio("Ann")),
    "async_exec": lambda: asyncio.run(asked_runtime("Ann")),
    "traced": lambda: traced_greeting("Ann"),
    "async traced": lambda: asyncio.run(traced_later("Ann")),
    "map": lambda: agentic_map(greeted, ["Ann"], ThreadPoolExecutor(1))[0],
    "map.aio": lambda: asyncio.run(agentic_map.aio(greeted, ["Ann"], ThreadPoolExecutor(1)))[0],
    "submit": lambda: submit(greeted, "Ann", executor=ThreadPoolExecutor(1)).result(),
}


@pytest.mark.parametrize("work", WITHOUT_CONTEXT.values(), ids=WITHOUT_CONTEXT)
def test_a_call_in_a_thread_without_context_is_refused_instead_of_being_lost(
    store: MemoryStore, work: Callable[[], Any]
) -> None:
    with in_session(store, "hello") as handle:
        refused = in_a_plain_thread(work)
        assert isinstance(refused, UsageError) and "carry" in str(refused)
        assert len(handle.agent.dag) == 0
        assert in_a_plain_thread(carry(work)) == "hello"
        assert len(handle.agent.dag) > 0


@pytest.mark.parametrize(
    "work", [lambda: ask("Who?"), lambda: asyncio.run(ask.aio("Who?")), lambda: confirm("Sure?")]
)
def test_a_question_in_a_thread_without_context_is_refused(
    store: MemoryStore, work: Callable[[], Any]
) -> None:
    with in_session(store, "hello"):
        assert "carry" in str(in_a_plain_thread(work))


def test_a_host_may_have_threads_in_no_session_and_so_may_a_program_outside_of_any(
    store: MemoryStore,
) -> None:
    def work() -> str:
        with Runtime(call=lambda content: "hello") as runtime:
            return str(runtime.exec("Ann"))

    assert in_a_plain_thread(work) == "hello"
    with session_scope(store, "s1") as handle:
        assert in_a_plain_thread(work) == "hello"
        assert len(handle.agent.dag) == 0
    with session_context(store=store, runtime=Runtime(call=lambda content: "x")):

        def enters() -> str:
            with session_scope(store, "s2"):
                return work()

        assert in_a_plain_thread(enters) == "hello"
