"""How to talk to a model of 135M parameters: few tools, worked examples, short prompts.

Everything here is a plain function over plain values: the body of a Messages request goes in,
the body that the tiny model can work with comes out.  Nothing that the model is to find out is
put into it: the examples are made from the tool's schema alone, with invented values.

Measured with SmolLM2-135M-Instruct: without examples it calls no tool at all; with them, and
with `data/smol_tools.jinja`, it calls a typed function right whenever the arguments can be
read off the question.  Arguments of type ``Literal`` are the safe ones: the server holds the
model to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from op_jupyter.core.prompt import SYSTEM_PROMPT
from op_jupyter.providers.profile import EndpointProfile

Body: TypeAlias = dict[str, Any]
Spec: TypeAlias = Mapping[str, Any]

MODEL: Final = "local"
CONTEXT_TOKENS: Final = 4096
MAX_OUTPUT_TOKENS: Final = 256
MAX_TOOLS: Final = 2
SAMPLING: Final[Mapping[str, Any]] = {"temperature": 0}
"""Not in the body but in the client's ``extra_body``: the SDK has no such parameter."""

EXAMPLES: Final = 3
"""For one tool; two tools get two each.  With fewer the model answers out of thin air."""

SYSTEM_CHARS: Final = 400
HISTORY_CHARS: Final = 3000
"""What the model keeps in mind of earlier turns: about 900 tokens, 7 seconds to read."""

RESULT_CHARS: Final = 1200
DESCRIPTION_CHARS: Final = 160

_SUBJECTS: Final = ("alpha", "beta", "gamma_x")
_RESULTS: Final = ("12.5", "84039", "-3.71")
_SUMS: Final = (("12 + 30", "42"), ("7 * 8", "56"), ("90 - 4", "86"))
_FILES: Final = ("notes.txt", "data.csv", "plan.md")
_CODE_NAMES: Final = frozenset({"code", "expression", "source"})
_FILE_NAMES: Final = frozenset({"path", "file", "filename"})
_VERBS: Final = frozenset(
    ("get", "compute", "find", "read", "show", "list", "fetch", "make", "tell", "look", "up")
)
_STOP_WORDS: Final = frozenset(
    ("the", "and", "for", "with", "from", "what", "which", "that", "this", "are", "was", "you")
)
_WORLD: Final = re.compile(r"\s*(?:<(\w+)>\n.*?\n</\1>\s*)+", re.DOTALL)
_WORLD_SECTION: Final = re.compile(r"<(\w+)>\n(.*?)\n</\1>", re.DOTALL)


def endpoint(base_url: str, api_key: str) -> EndpointProfile:
    """The profile of the local server at *base_url*."""
    return EndpointProfile(
        name="local",
        base_url=base_url,
        api_key=api_key,
        key_source="the local server",
        # It closes a connection that idles for 5 s, maybe just when the next request is sent.
        headers={"Connection": "close"},
        extra_body=SAMPLING,
        default_model=MODEL,
        context_tokens=CONTEXT_TOKENS,
        max_output_tokens=MAX_OUTPUT_TOKENS,
        max_tools=MAX_TOOLS,
        small=True,
        supports_thinking=False,
        supports_cache=False,
        supports_schema=False,
        read_timeout=300,  # a full window takes half a minute to read on an idle machine
    )


def prepare(body: Mapping[str, Any]) -> Body:
    """*body* as the tiny model can use it; *body* itself stays as it is.

    At most `MAX_TOOLS` tools, worked examples before the conversation, the world state in the
    system prompt, the oldest turns and the ends of long results left out.
    """
    messages, world = _without_world(body["messages"])
    tools = select_tools(
        body.get("tools") or (), _last_question(messages), called=_last_called(messages)
    )
    prepared = {k: v for k, v in body.items() if k not in ("system", "tools", "tool_choice")}
    prepared["max_tokens"] = min(body.get("max_tokens", MAX_OUTPUT_TOKENS), MAX_OUTPUT_TOKENS)
    prepared["messages"] = [*worked_examples(tools), *recent(messages)]
    system = short_system(body.get("system"), world)
    if system:
        prepared["system"] = [{"type": "text", "text": system}]
    if tools:
        prepared["tools"] = [_short_tool(tool) for tool in tools]
        if "tool_choice" in body:
            prepared["tool_choice"] = body["tool_choice"]
    return prepared


# --- tools ------------------------------------------------------------------------------


def select_tools(
    tools: Sequence[Spec], question: str, *, called: str = "", limit: int = MAX_TOOLS
) -> list[Spec]:
    """The tools to offer for *question*, in the order they were offered; at most *limit*.

    Those that have most to do with it; else the one *called* last, as a short question mostly
    goes on with the one before; else those with the simplest arguments.  A tool that has less
    to do with it is no second choice but a trap: with one beside the right tool, the success
    rate fell from 100 to 62 percent.
    """
    matches = [_match(question, tool) for tool in tools]
    best = max(matches, default=0)
    if best:
        wanted = [i for i, match in enumerate(matches) if 2 * match > best]
    else:
        wanted = [i for i, tool in enumerate(tools) if tool["name"] == called]
        wanted = wanted or list(range(len(tools)))
    wanted.sort(key=lambda i: (-matches[i], -_simplicity(tools[i])))
    return [tools[i] for i in sorted(wanted[:limit])]


def _match(question: str, tool: Spec) -> int:
    """How many words of *question* are words of *tool*; `maximum` is `max`."""
    known = _tool_words(tool)
    return sum(
        any(asked.startswith(word) or word.startswith(asked) for word in known)
        for asked in _words(question)
    )


def _tool_words(tool: Spec) -> set[str]:
    words = _words(f"{tool['name']} {tool.get('description', '')}")
    for name, schema in _properties(tool).items():
        words |= _words(" ".join([name, *map(str, _choices(schema))]))
    return words


def _words(text: str) -> set[str]:
    return {w for w in re.findall(r"[^\W_]{3,}", text.lower()) if w not in _STOP_WORDS}


def _simplicity(tool: Spec) -> int:
    """From 0 (code) to 3 (every argument is a choice)."""
    schemas = _properties(tool)
    if _CODE_NAMES & schemas.keys():
        return 0
    chosen = [bool(_choices(schema)) for schema in schemas.values()]
    return 1 + any(chosen) + all(chosen)


def _short_tool(tool: Spec) -> Body:
    """*tool*, of whose description the first paragraph is told."""
    paragraph = str(tool.get("description") or "").strip().split("\n\n")[0]
    return {**tool, "description": _clip(" ".join(paragraph.split()), DESCRIPTION_CHARS)}


# --- worked examples --------------------------------------------------------------------


def worked_examples(tools: Sequence[Spec]) -> list[Body]:
    """Invented conversations in which each of *tools* is called right."""
    count = EXAMPLES if len(tools) == 1 else 2
    messages: list[Body] = []
    for number in range(count):
        for position, tool in enumerate(tools):
            messages += _example(tool, number, f"example_{position}_{number}")
    return messages


def _example(tool: Spec, number: int, call_id: str) -> list[Body]:
    arguments = example_arguments(tool, number)
    question, answer, result = _phrase(tool, arguments, number)
    return [
        _message("user", {"type": "text", "text": question}),
        _message(
            "assistant",
            {"type": "tool_use", "id": call_id, "name": tool["name"], "input": arguments},
        ),
        _message(
            "user",
            {
                "type": "tool_result",
                "tool_use_id": call_id,
                "content": [{"type": "text", "text": result}],
            },
        ),
        _message("assistant", {"type": "text", "text": answer}),
    ]


def example_arguments(tool: Spec, number: int) -> dict[str, Any]:
    """Arguments for example *number*: every required one, or the first.

    The first is what the call is about.  It gets an invented word even where the schema lists
    its values: a real one from an example would be repeated in place of the one asked for.
    """
    schemas = _properties(tool)
    required = [name for name in schemas if name in tool["input_schema"].get("required", ())]
    names = required or list(schemas)[:1]
    return {
        name: _example_value(name, schemas[name], number, invented=i == 0 and len(names) > 1)
        for i, name in enumerate(names)
    }


def _example_value(name: str, schema: Spec, number: int, *, invented: bool) -> Any:
    choices = _choices(schema)
    kind = _type(schema)
    if choices and not (invented and kind == "string"):
        return choices[_spread(number, len(choices))]
    if name in _CODE_NAMES:
        return _SUMS[number][0]
    if name in _FILE_NAMES:
        return _FILES[number]
    match kind:
        case "integer" | "number":
            return (3, 12, 40)[number]
        case "boolean":
            return number % 2 == 0
        case "array":
            return [_SUBJECTS[number]]
        case "object":
            return {}
        case _:
            return _SUBJECTS[number]


def _spread(number: int, count: int) -> int:
    """First, last, middle: examples that differ as much as they can."""
    return (0, count - 1, count // 2)[number]


def _phrase(tool: Spec, arguments: Mapping[str, Any], number: int) -> tuple[str, str, str]:
    """A question, its answer and the result that the answer repeats."""
    if _CODE_NAMES & arguments.keys():
        said, result = _SUMS[number]
        return f"What is {said}?", f"{said} is {result}.", result
    result = _RESULTS[number]
    choices = [name for name in arguments if _choices(_properties(tool)[name])]
    subjects = [str(v) for name, v in arguments.items() if name not in choices]
    picked = [str(arguments[name]) for name in choices]
    if not subjects and len(picked) > 1:
        subjects = [picked.pop(0)]
    what = " ".join(picked) or _plain_name(tool["name"])
    thing = f"{what} of {' and '.join(subjects)}" if subjects else what
    return f"What is the {thing}?", f"The {thing} is {result}.", result


def _plain_name(name: str) -> str:
    words = re.findall(r"[^\W_]+", name)
    return " ".join(word for word in words if word.lower() not in _VERBS) or name


# --- schemas ----------------------------------------------------------------------------


def _properties(tool: Spec) -> Mapping[str, Spec]:
    found: Mapping[str, Spec] = tool["input_schema"].get("properties", {})
    return found


def _alternatives(schema: Spec) -> Iterator[Spec]:
    """*schema*, or what it may be besides null."""
    options = [s for key in ("anyOf", "oneOf") for s in schema.get(key, ())]
    yield from (s for s in options if s.get("type") != "null")
    if not options:
        yield schema


def _choices(schema: Spec) -> list[Any]:
    found = [value for s in _alternatives(schema) for value in s.get("enum", ())]
    found += [s["const"] for s in _alternatives(schema) if "const" in s]
    return [value for value in found if value is not None]


def _type(schema: Spec) -> str:
    kind = next((s["type"] for s in _alternatives(schema) if "type" in s), "string")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "string")
    return str(kind)


# --- system prompt and world state --------------------------------------------------------


def short_system(system: str | Sequence[Spec] | None, world: str = "") -> str:
    """What is the caller's own in *system*, and *world*; our general advice only costs time."""
    text = system if isinstance(system, str) else "\n".join(b["text"] for b in system or ())
    own = text.replace(SYSTEM_PROMPT, "").strip()
    return "\n".join(part for part in (_clip(own, SYSTEM_CHARS), world) if part)


def _without_world(messages: Sequence[Spec]) -> tuple[list[Body], str]:
    """*messages* without the blocks of world state, and the last that they said, shortened.

    A text between question and answer distracts such a model: in front of the question it
    took the success rate from 100 to 80 percent, in the system prompt it did no harm.
    """
    sections: dict[str, str] = {}
    kept = []
    for message in messages:
        content = _blocks(message)
        rest = [b for b in content if not _is_world(b)]
        for block in content:
            if _is_world(block):
                sections.update(_WORLD_SECTION.findall(block["text"]))
        if rest:
            kept.append(_message(message["role"], *rest))
    return kept, "\n".join(_first_sentence(text) for text in sections.values())


def _is_world(block: Spec) -> bool:
    return block["type"] == "text" and _WORLD.fullmatch(block["text"]) is not None


def _first_sentence(text: str) -> str:
    return _clip(re.split(r"(?<=[.!?])\s", text.strip())[0], SYSTEM_CHARS // 2)


# --- the conversation ---------------------------------------------------------------------


def recent(messages: Sequence[Spec], limit_chars: int = HISTORY_CHARS) -> list[Body]:
    """The newest turns of *messages* that fit into *limit_chars*; the running one always."""
    turns = _turns([_message(m["role"], *map(_short_block, _blocks(m))) for m in messages])
    kept: list[list[Body]] = []
    left = limit_chars
    for turn in reversed(turns):
        left -= _size(turn)
        if kept and left < 0:
            break
        kept.insert(0, turn)
    return [message for turn in kept for message in turn]


def _turns(messages: Sequence[Body]) -> list[list[Body]]:
    """*messages*, cut before each thing that the user said."""
    turns: list[list[Body]] = []
    for message in messages:
        if not turns or (message["role"] == "user" and not _has_result(message)):
            turns.append([])
        turns[-1].append(message)
    return turns


def _last_question(messages: Sequence[Spec]) -> str:
    for message in reversed(messages):
        if message["role"] == "user" and not _has_result(message):
            return _text(message)
    return ""


def _last_called(messages: Sequence[Spec]) -> str:
    for message in reversed(messages):
        for block in _blocks(message):
            if block["type"] == "tool_use":
                return str(block["name"])
    return ""


def _has_result(message: Spec) -> bool:
    return any(b["type"] == "tool_result" for b in _blocks(message))


def _size(turn: Sequence[Spec]) -> int:
    return sum(len(str(block)) for message in turn for block in message["content"])


def _short_block(block: Spec) -> Body:
    if block["type"] != "tool_result":
        return {k: v for k, v in block.items() if k != "cache_control"}
    content = block.get("content") or ()
    parts = [content] if isinstance(content, str) else [b.get("text", "") for b in content]
    text = _clip("\n".join(parts), RESULT_CHARS)
    return {
        "type": "tool_result",
        "tool_use_id": block["tool_use_id"],
        "content": [{"type": "text", "text": text}],
        **({"is_error": True} if block.get("is_error") else {}),
    }


def _blocks(message: Spec) -> Sequence[Spec]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text(message: Spec) -> str:
    return "\n".join(b["text"] for b in _blocks(message) if b["type"] == "text")


def _message(role: str, *blocks: Spec) -> Body:
    return {"role": role, "content": [dict(block) for block in blocks]}


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
