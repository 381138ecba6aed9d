"""What of a model call is recorded: the canonical request, its key, and the reply.

A recording made on one machine has to be found on another, in another folder, on another day.
So a canonical request holds what decides the answer (model, system, tools, messages, format)
and nothing of the machine: paths become placeholders, tool-call ids are numbered in order of
appearance, the session's id, memory addresses, random names of temporary files and the places
of the kernel and of Python's libraries are masked, and the sections of the world state that
describe the machine are left out, as is thinking.  An image that a tool returned counts by its
kind alone: every version of a plotting library draws other bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import PurePath
from typing import Any, Final, get_args

from op_jupyter.core.keys import canonical_json, sha256
from op_jupyter.core.messages import (
    Block,
    ImageBlock,
    Message,
    ModelRequest,
    OpaqueBlock,
    ResponseDone,
    StopReason,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    block_from_json,
)
from op_jupyter.core.permissions import Answer
from op_jupyter.core.values import dataclass

MACHINE_SECTIONS: Final = frozenset(
    {"workspace", "notebook", "kernel", "agents_md", "skills", "sandbox"}
)
"""Sections of the world state (`core.prompt.world_text`) that differ between machines or runs."""

_KEY_LENGTH: Final = 16
_SECTIONS: Final = re.compile(r"<(?P<name>\w+)>\n.*?\n</(?P=name)>(?:\n\n|\Z)", re.DOTALL)
_KINDS: Final = "answer|call|exchange|frame|llm|message|question|step|summary|task|tool|turn|user"
_MASKED: Final = (
    (re.compile(r"\bat 0x[0-9a-fA-F]{6,16}\b"), "at 0x…"),
    (re.compile(r"<ipython-input-\d+-[0-9a-f]+>"), "<cell>"),
    (re.compile(r"\bCell In ?\[\d+\]"), "<cell>"),
    # Our own ids, whole or cut off by a summary, and ports that the system picks.
    (re.compile(rf"\b({_KINDS})-(?:[0-9a-f]{{12}}\b|[0-9a-f]{{1,11}}…)"), r"\1-…"),
    (re.compile(r"\b(127\.0\.0\.1|localhost):(?:3[3-9]|[4-6]\d)\d{3}\b"), r"\1:…"),
    # What `tempfile` makes up: eight characters, in a temporary folder.
    (re.compile(r"(?<=⟨temp⟩)([\\/][^\s\"'\\/]*?)tmp[a-z0-9_]{8}(?![a-z0-9_])"), r"\1tmp…"),
)
_MASKED_PATHS: Final = (
    (re.compile(r"ipykernel_\d+[\\/]\d+\.py"), "<cell>"),
    (re.compile(r"[\\/](?:site|dist)-packages(?=[\\/])"), "⟨packages⟩"),
    (re.compile(r"[\\/]lib[\\/]python3\.\d+(?=[\\/])"), "⟨python⟩"),
)
"""Ends of paths, which are masked from their beginning."""
_BEFORE_A_PATH: Final = " \t\n\"'(=<"
_SIGNED: Final = frozenset({"signature", "data"})
_SESSION: Final = "⟨session⟩"
_MADE_ID: Final = re.compile(r"(?=.*\d).{6,}", re.DOTALL)
"""What a session's id looks like that was made up; a name like ``sales`` stays in texts."""


@dataclass(frozen=True, slots=True)
class Folders:
    """Folders of this machine, and the placeholders that stand for them in a recording.

    Several folders may share a placeholder; the first of them is what it means here.
    """

    folders: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        *,
        workspace: PurePath | Sequence[PurePath],
        home: PurePath | Sequence[PurePath],
        sessions: PurePath | Sequence[PurePath] = (),
        temp: PurePath | Sequence[PurePath] = (),
    ) -> Folders:
        """The folders that show up in prompts, each with the other names that it has.

        Where folders are the same, the first argument wins.
        """
        named = (
            ("⟨workspace⟩", workspace),
            ("⟨home⟩", home),
            ("⟨sessions⟩", sessions),
            ("⟨temp⟩", temp),
        )
        folders: dict[str, str] = {}
        for mark, paths in named:
            for path in [paths] if isinstance(paths, PurePath) else paths:
                if len(path.parts) > 1:
                    folders.setdefault(str(path), mark)
        return cls(folders)

    def hide(self, text: str) -> str:
        """*text* with the folders replaced, the longest first."""
        for path in sorted(self.folders, key=len, reverse=True):
            if path in text:  # most texts hold none
                name = rf"(?<![\w.~-]){re.escape(path)}(?![\w-]|\.\w)"
                text = re.sub(name, self.folders[path], text)
        return text

    def show(self, text: str) -> str:
        """Inverse of `hide`, on this machine."""
        meant = {mark: path for path, mark in reversed([*self.folders.items()])}
        for mark, path in meant.items():
            text = text.replace(mark, path)
        return text


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded reply: its content in canonical JSON, and what a `ResponseDone` needs."""

    content: Sequence[Mapping[str, Any]]
    stop_reason: str = "end_turn"
    model: str = ""
    usage: Mapping[str, int] = field(default_factory=dict)


def canonical_request(request: ModelRequest, folders: Folders) -> dict[str, Any]:
    """*request* as recordings know it; see the module's docstring."""
    clean = _cleaner(request.session_key, folders)
    ids = _Numbers()
    messages = [
        {"role": message.role, "content": content}
        for message in request.messages
        if (content := _canonical_blocks(message.content, clean, ids))
    ]
    tools = [
        {"name": t.name, "description": t.description, "input_schema": dict(t.input_schema)}
        for t in request.tools
    ]
    canonical: dict[str, Any] = {
        "model": request.model,
        "system": clean(request.system),
        "tools": map_texts(tools, clean),
        "messages": messages,
    }
    if request.response_schema is not None:
        canonical["response_schema"] = dict(request.response_schema)
    return canonical


def request_key(canonical: Mapping[str, Any]) -> str:
    """The name under which a reply to this request is recorded."""
    return sha256(canonical)[:_KEY_LENGTH]


def reply_to_recording(done: ResponseDone, request: ModelRequest, folders: Folders) -> Recording:
    """What is kept of *done*, the reply to *request*: its paths and ids are replaced."""
    ids, hide = _numbers_in(request), _hider(request.session_key, folders)
    content = [_canonical_block(block, hide, ids) for block in done.message.content]
    usage = {"input_tokens": done.usage.input_tokens, "output_tokens": done.usage.output_tokens}
    return Recording(content, done.stop_reason, done.model, usage)


def reply_from_recording(
    recording: Recording, folders: Folders, session_key: str = ""
) -> ResponseDone:
    """The reply again, with the paths and the session of this run and the numbered ids."""

    def show(text: str) -> str:
        return folders.show(text).replace(_SESSION, session_key or _SESSION)

    blocks = [_restored(block) for block in map_texts(list(recording.content), show)]
    return ResponseDone(
        Message("assistant", tuple(blocks)),
        recording.stop_reason,  # type: ignore[arg-type]  # a stop reason when it was recorded
        Usage(**recording.usage),
        model=recording.model,
    )


def reply_in_history(recording: Recording) -> dict[str, Any]:
    """The message that a later canonical request holds for this reply: all but the thinking."""
    spoken = [block for block in recording.content if block["type"] in ("text", "tool_use")]
    return {"role": "assistant", "content": map_texts(spoken, _mask)}


# --- what was edited by hand ----------------------------------------------------------------


def check_request(canonical: Mapping[str, Any]) -> None:
    """Refuse what is no canonical request.

    Raises:
        ValueError: it is none; says what is wrong.
    """
    _expect(isinstance(canonical["model"], str), "the model's name is no text")
    _expect(isinstance(canonical["system"], str), "the system prompt is no text")
    _expect(_is_objects(canonical["tools"]), "the tools are no list of objects")
    _expect(all(isinstance(t.get("name"), str) for t in canonical["tools"]), "a tool has no name")
    _expect(_is_objects(canonical["messages"]), "the messages are no list of objects")
    for message in canonical["messages"]:
        _expect(message.get("role") in ("user", "assistant"), "a message has no role")
        _check_blocks(message.get("content"))


def check_recording(recording: Recording) -> None:
    """Refuse what cannot be replayed.

    Raises:
        ValueError: it cannot; says what is wrong.
    """
    _expect(recording.stop_reason in get_args(StopReason), "the stop reason is none")
    _expect(isinstance(recording.model, str), "the model's name is no text")
    counts = {"input_tokens", "output_tokens"}
    _expect(not recording.usage.keys() - counts, "usage has more than input and output tokens")
    used = recording.usage.values()
    _expect(all(type(n) is int and 0 <= n < 2**53 for n in used), "usage is no count")
    _check_blocks(recording.content, spoken=True)


def check_decision(answer: Any) -> None:
    """Refuse what is no recorded answer on a card, or to a question.

    Raises:
        ValueError: it is none.
    """
    words = (*get_args(Answer), "answered", "declined")
    _expect(isinstance(answer, dict) and answer.get("answer") in words, "an answer is none")
    _expect(isinstance(answer.get("arguments", {}), dict), "the edited arguments are no object")
    _expect(isinstance(answer.get("message", ""), str), "the message of an answer is no text")


def _check_blocks(blocks: Any, *, spoken: bool = False) -> None:
    _expect(_is_objects(blocks), "the content of a message is no list of objects")
    for block in blocks:
        kind = block.get("type")
        _expect(isinstance(kind, str), "a block of content has no type")
        match kind:
            case "text":
                fits = isinstance(block.get("text"), str)
            case "tool_use":
                fits = isinstance(block.get("id"), str) and isinstance(block.get("name"), str)
                fits = fits and "arguments" in block
            case "tool_result":
                fits = not spoken and isinstance(block.get("state"), str)
                _check_blocks(block.get("content"))
            case "image":
                fits = not spoken
            case _:
                fits = spoken  # thinking and the like, which requests do not hold
        _expect(fits, f"a block of content is no whole {kind[:40]}")


def _is_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


# --- blocks -------------------------------------------------------------------------------


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """The JSON *value* with every text in it changed, names of members included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): map_texts(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [map_texts(item, change) for item in value]
    return value


class _Numbers:
    """Tool-call ids, numbered in order of appearance."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, tool_use_id: str) -> str:
        return self._known.setdefault(tool_use_id, f"call_{len(self._known) + 1}")


def _numbers_in(request: ModelRequest) -> _Numbers:
    numbers = _Numbers()
    for message in request.messages:
        for block in message.content:
            if isinstance(block, ToolUseBlock):
                numbers(block.id)
            elif isinstance(block, ToolResultBlock):
                numbers(block.tool_use_id)
    return numbers


def _cleaner(session_key: str, folders: Folders) -> Callable[[str], str]:
    hide = _hider(session_key, folders)
    return lambda text: _mask(hide(text))


def _hider(session_key: str, folders: Folders) -> Callable[[str], str]:
    """Puts placeholders in place of folders, and of the session's id where it was made up."""
    # A sub-agent's session is called `parent.agent`; each may tell of the other.
    ids = [name for name in (session_key, session_key.partition(".")[0]) if _MADE_ID.match(name)]
    if not ids:
        return folders.hide
    own = re.compile("|".join(rf"(?<![\w-]){re.escape(name)}(?![\w-])" for name in ids))
    return lambda text: own.sub(_SESSION, folders.hide(text))


def _mask(text: str) -> str:
    for pattern, mask in _MASKED:
        text = pattern.sub(mask, text)
    for pattern, mask in _MASKED_PATHS:
        text = _mask_paths(text, pattern, mask)
    return text


def _mask_paths(text: str, ending: re.Pattern[str], mask: str) -> str:
    """*text* with each path that has such an *ending* masked up to there."""
    out: list[str] = []
    done = 0
    for match in ending.finditer(text):
        # Looked for backwards: as a part of the pattern it would be tried from each character.
        start = max(text.rfind(mark, done, match.start()) for mark in _BEFORE_A_PATH) + 1
        out += (text[done : max(start, done)], mask)
        done = match.end()
    return "".join(out) + text[done:]


def _canonical_blocks(
    blocks: Sequence[Block], clean: Callable[[str], str], ids: _Numbers
) -> list[dict[str, Any]]:
    canonical = []
    for block in blocks:
        if isinstance(block, TextBlock):
            block = TextBlock(_without_machine_sections(block.text))
            if not block.text.strip():
                continue
        if not isinstance(block, OpaqueBlock):
            canonical.append(_canonical_block(block, clean, ids))
    return canonical


def _canonical_block(block: Block, clean: Callable[[str], str], ids: _Numbers) -> dict[str, Any]:
    match block:
        case TextBlock(text):
            return {"type": "text", "text": clean(text)}
        case ImageBlock(media_type, ""):
            return {"type": "image", "media_type": media_type}
        case ImageBlock(media_type, data):
            digest = hashlib.sha256(data.encode()).hexdigest()[:_KEY_LENGTH]
            return {"type": "image", "media_type": media_type, "sha256": digest}
        case ToolUseBlock():
            return {
                "type": "tool_use",
                "id": ids(block.id),
                "name": block.name,
                "arguments": map_texts(_parsed(block.arguments), clean),
            }
        case ToolResultBlock():
            return {
                "type": "tool_result",
                "id": ids(block.tool_use_id),
                "state": block.state,
                "content": _canonical_blocks(
                    [_without_pixels(part) for part in block.content], clean, ids
                ),
            }
        case OpaqueBlock(payload):
            # What a service signed has to come back as it was.
            kept = {name: payload[name] for name in _SIGNED & payload.keys()}
            return {**map_texts(payload, clean), **kept}


def _without_pixels(block: TextBlock | ImageBlock) -> TextBlock | ImageBlock:
    return ImageBlock(block.media_type, "") if isinstance(block, ImageBlock) else block


def _restored(block: Mapping[str, Any]) -> Block:
    if block["type"] != "tool_use":
        return block_from_json(block)
    arguments = block["arguments"]
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolUseBlock(block["id"], block["name"], raw)


def _parsed(raw: str) -> Any:
    """The object in *raw*; anything else stays the text it is."""
    try:
        value = json.loads(raw)
        canonical_json(value)
    except (ValueError, RecursionError):
        return raw
    return value if isinstance(value, dict) else raw


def _without_machine_sections(text: str) -> str:
    """A world-state text without the sections of the machine; any other text as it is."""
    sections: list[re.Match[str]] = []
    position = 0
    while position < len(text):
        section = _SECTIONS.match(text, position)
        if section is None:
            return text
        sections.append(section)
        position = section.end()
    kept = [s.group() for s in sections if s["name"] not in MACHINE_SECTIONS]
    return "".join(kept).removesuffix("\n\n") if kept else ""
