"""The prompt that a model call was really sent, rendered again from what is stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from op_jupyter.core.context_window import fit, measured, shrink
from op_jupyter.core.graph import Dag
from op_jupyter.core.horizon import as_seen
from op_jupyter.core.keys import canonical_json
from op_jupyter.core.messages import (
    ImageBlock,
    Message,
    ModelRequest,
    OpaqueBlock,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
)
from op_jupyter.core.prompt import (
    SYSTEM_PROMPT,
    FrameView,
    Shown,
    call_input_from_json,
    render_messages,
)
from op_jupyter.errors import UsageError


def request_of(
    dag: Dag, node_id: str, read_blob: Callable[[str], bytes]
) -> tuple[ModelRequest, bool]:
    """The request of that model call, and whether it is proven to be the very same.

    False means that it no longer hashes to what was sent: the store was changed by hand, or
    another version of this package wrote it.

    Raises:
        UnknownNode: there is no such node.
        UsageError: the node is no model call.
    """
    node = dag.node(node_id)
    if node.role != "llm" or node.reads is None:
        raise UsageError(f"node {node_id!r} is no model call ({node.role}); it has no prompt")
    reads, dag = node.reads, as_seen(dag, node)
    shown = Shown(
        reads["head"],
        reads["as_of"],
        tuple(FrameView(**frame) for frame in reads["frames"]),
        reads["callers"],
        reads["subcalls"],
        reads["own"],
        reads.get("kept", False),
        reads.get("known"),
    )
    request = ModelRequest(
        model=reads["model"],
        messages=render_messages(dag, shown, call_input_from_json(node.input)),
        system="\n\n".join(part for part in (SYSTEM_PROMPT, reads["system"]) if part),
        tools=_tools(reads, read_blob),
        max_tokens=reads["max_tokens"],
        response_schema=_schema(reads, read_blob),
        session_key=dag.session_id,
    )
    limit = reads.get("shrunk_to")
    if shown.kept:
        fitted = measured(request)
    elif limit is None:
        fitted = fit(request, reads["line"])
    else:
        fitted = shrink(request, limit)
    return fitted.request, sha256(fitted.data).hexdigest() == reads["sha256"]


def _tools(reads: Mapping[str, Any], read_blob: Callable[[str], bytes]) -> tuple[ToolSpec, ...]:
    if reads["tools"] is None:
        return ()
    return tuple(ToolSpec(**spec) for spec in json.loads(read_blob(reads["tools"])))


def _schema(reads: Mapping[str, Any], read_blob: Callable[[str], bytes]) -> dict[str, Any] | None:
    kept = reads.get("schema")
    return None if kept is None else dict(json.loads(read_blob(kept)))


def prompt_text(request: ModelRequest) -> str:
    """*request* as a person reads it."""
    parts = [f"model: {request.model}", f"--- system\n{request.system}"]
    parts += [f"--- tool {t.name}\n{t.description}" for t in request.tools]
    parts += [f"--- {m.role}\n{_message_text(m)}" for m in request.messages]
    if request.response_schema is not None:
        parts.append(f"--- format of the answer\n{canonical_json(request.response_schema)}")
    return "\n\n".join(parts)


def _message_text(message: Message) -> str:
    return "\n".join(_block_text(b) for b in message.content)


def _block_text(block: Any) -> str:
    match block:
        case TextBlock(text):
            return text
        case ImageBlock(media_type):
            return f"[image {media_type}]"
        case ToolUseBlock(id_, name, arguments):
            return f"[tool call {id_}: {name} {arguments}]"
        case ToolResultBlock(id_, content, state):
            return f"[tool result {id_}, {state}]\n" + "\n".join(_block_text(b) for b in content)
        case OpaqueBlock(payload):
            return f"[{payload.get('type', 'block')}]"
        case _:
            raise TypeError(f"unknown block {block!r}")
