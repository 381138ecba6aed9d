"""What a tiny model is sent: pure functions over request bodies."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest

from op_jupyter.core.prompt import SYSTEM_PROMPT, world_text
from op_jupyter.providers import local_profile
from op_jupyter.providers.local_profile import (
    HISTORY_CHARS,
    MAX_OUTPUT_TOKENS,
    MAX_TOOLS,
    example_arguments,
    prepare,
    recent,
    select_tools,
    short_system,
    worked_examples,
)


def tool(name: str, description: str = "", **properties: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "input_schema": {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        },
    }


STATISTICS = ["mean", "median", "min", "max"]
COLUMN_STAT = tool(
    "column_stat",
    "Compute one statistic of one column of the table df.",
    column={"type": "string", "enum": ["bill_length_mm", "body_mass_g"]},
    statistic={"type": "string", "enum": STATISTICS},
)
WEATHER = tool("get_weather", city={"type": "string"}, unit={"enum": ["C", "F"], "type": "string"})
PYTHON = tool("python", "Run code in the notebook.", code={"type": "string"})
READ = tool("read_file", "Read a text file.", path={"type": "string"})
ODD = tool(
    "plot",
    size={"type": "integer"},
    grid={"type": "boolean"},
    names={"type": "array", "items": {"type": "string"}},
    options={"type": "object"},
    title={"anyOf": [{"type": "string"}, {"type": "null"}]},
    style={"const": "dark"},
)
NOTHING = tool("list_files", "List the files.")
TOOLS = [COLUMN_STAT, WEATHER, PYTHON, READ, ODD, NOTHING]


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def body(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "local", "max_tokens": 8192, "messages": list(messages), **fields}


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [b["text"] for m in messages for b in m["content"] if b["type"] == "text"]


# --- worked examples


@pytest.mark.parametrize("offered", [[t] for t in TOOLS] + [[COLUMN_STAT, PYTHON]])
def test_examples_are_a_conversation_that_the_service_would_accept(offered):
    messages = worked_examples(offered)
    assert [m["role"] for m in messages] == ["user", "assistant"] * (len(messages) // 2)
    calls = [b for m in messages for b in m["content"] if b["type"] == "tool_use"]
    results = [b for m in messages for b in m["content"] if b["type"] == "tool_result"]
    assert [c["id"] for c in calls] == [r["tool_use_id"] for r in results]
    assert len({c["id"] for c in calls}) == len(calls)
    assert {c["name"] for c in calls} == {t["name"] for t in offered}


@pytest.mark.parametrize("offered", [WEATHER, PYTHON, READ, ODD, NOTHING], ids=lambda t: t["name"])
def test_example_arguments_fit_the_schema(offered):
    for number in range(3):
        jsonschema.validate(example_arguments(offered, number), offered["input_schema"])


def test_an_answer_repeats_the_result_and_the_question():
    messages = worked_examples([COLUMN_STAT])
    assert texts(messages)[:2] == [
        "What is the mean of alpha?",
        "The mean of alpha is 12.5.",
    ]


def test_examples_hold_no_value_that_the_question_could_be_about():
    written = json.dumps(worked_examples([COLUMN_STAT]))
    assert "bill_length_mm" not in written
    assert "body_mass_g" not in written


def test_options_besides_the_subject_are_real_ones():
    used = [example_arguments(COLUMN_STAT, n)["statistic"] for n in range(3)]
    assert used == ["mean", "max", "min"]


def test_the_only_argument_is_a_real_choice():
    switch = tool("switch", mode={"type": "string", "enum": ["on", "off"]})
    assert example_arguments(switch, 1) == {"mode": "off"}


def test_without_tools_there_are_no_examples():
    assert worked_examples([]) == []


# --- which tools


def test_the_tool_that_the_question_speaks_of_is_offered_alone():
    assert select_tools(TOOLS, "What is the median body mass?") == [COLUMN_STAT]
    assert select_tools(TOOLS, "And the maximum?") == [COLUMN_STAT]
    assert select_tools(TOOLS, "What is the weather in Oslo?") == [WEATHER]


def test_a_question_without_a_hint_goes_on_with_the_tool_of_the_one_before():
    assert select_tools(TOOLS, "Again?", called="python") == [PYTHON]
    assert select_tools(TOOLS, "What is the weather in Oslo?", called="python") == [WEATHER]


def test_among_equals_the_simplest_arguments_win_and_the_order_stays():
    kept = select_tools([PYTHON, READ, COLUMN_STAT, WEATHER], "hm")
    assert kept == [COLUMN_STAT, WEATHER]
    assert len(select_tools([READ] * 5, "Read it")) == MAX_TOOLS


def test_without_tools_none_are_selected():
    assert select_tools([], "Hm?") == []


def test_a_turn_keeps_its_tools_while_it_runs():
    question = said("user", "What is the median of body_mass_g?")
    call = {"type": "tool_use", "id": "1", "name": "column_stat", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": "Read the file"}
    first = prepare(body(question, tools=TOOLS))
    later = prepare(
        body(
            question,
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
            tools=TOOLS,
        )
    )
    assert later["tools"] == first["tools"]


# --- the whole body


def test_a_large_request_becomes_a_small_one_and_stays_itself():
    request = body(
        said("user", "What is the mean of body_mass_g?"),
        system=[{"type": "text", "text": SYSTEM_PROMPT, "cache_control": {"type": "ephemeral"}}],
        tools=TOOLS,
    )
    before = copy.deepcopy(request)
    prepared = prepare(request)
    assert request == before
    assert [t["name"] for t in prepared["tools"]] == ["column_stat"]
    assert prepared["max_tokens"] == MAX_OUTPUT_TOKENS
    assert "system" not in prepared
    assert prepared["messages"][-1] == request["messages"][-1]
    assert not prepared.keys() & local_profile.SAMPLING.keys()  # the SDK would refuse them


def test_a_smaller_max_tokens_stays():
    assert prepare(body(said("user", "hi")) | {"max_tokens": 7})["max_tokens"] == 7


def test_a_call_without_tools_keeps_its_words():
    prepared = prepare(body({"role": "user", "content": "Say hi."}, system="Be kind."))
    assert prepared["messages"] == [said("user", "Say hi.")]
    assert prepared["system"] == [{"type": "text", "text": "Be kind."}]
    assert "tools" not in prepared


def test_a_functions_own_system_text_outlives_our_general_advice():
    assert short_system(f"{SYSTEM_PROMPT}\n\nAnswer in French.") == "Answer in French."


def test_world_state_moves_into_the_system_prompt_and_is_short():
    world = world_text({"kernel": "The kernel was restarted. " + "More. " * 300, "notebook": "a"})
    prepared = prepare(
        body(
            {
                "role": "user",
                "content": [*said("user", world)["content"], *said("user", "Hi")["content"]],
            }
        )
    )
    assert prepared["messages"] == [said("user", "Hi")]
    assert prepared["system"][0]["text"] == "The kernel was restarted.\na"


def test_a_question_that_only_quotes_a_tag_is_no_world_state():
    question = "What does <b>\nx\n</b> mean?"
    assert prepare(body(said("user", question)))["messages"] == [said("user", question)]


def test_of_a_description_the_first_paragraph_is_told():
    long = tool("f", "Does one\nthing.\n\nArgs: many.", a={"type": "string"})
    assert prepare(body(said("user", "hi"), tools=[long]))["tools"][0]["description"] == (
        "Does one thing."
    )


# --- the conversation


def test_old_turns_are_forgotten_whole_and_the_running_one_never():
    turns = [
        m for n in range(20) for m in (said("user", f"{n} " + "x" * 400), said("assistant", "y"))
    ]
    last = said("user", "z" * 2 * HISTORY_CHARS)
    assert recent([*turns, last]) == [last]
    kept = recent([*turns, said("user", "short")])
    assert kept[0]["role"] == "user"
    assert 3 <= len(kept) < len(turns)
    assert kept[-1] == said("user", "short")


def test_a_call_is_never_parted_from_its_result():
    turn = [
        said("user", "q"),
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r"}]},
        said("assistant", "a"),
    ]
    for limit in range(0, 400, 10):
        kept = recent([*turn, *turn, said("user", "last")], limit)
        assert len(kept) in (1, 5, 9)


def test_long_results_are_cut_and_errors_stay_errors():
    result = {"type": "tool_result", "tool_use_id": "1", "content": "9" * 5000, "is_error": True}
    (block,) = recent([{"role": "user", "content": [result]}])[0]["content"]
    assert block["is_error"] is True
    assert len(block["content"][0]["text"]) == local_profile.RESULT_CHARS
