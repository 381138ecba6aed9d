"""A session in memory, a scripted model, and tools that do nothing but tell."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from op_jupyter.core.permissions import PermissionAnswer, PermissionRequest
from op_jupyter.engine import registry
from op_jupyter.engine.session import AgentSession
from op_jupyter.store.memory import MemoryStore


@dataclass
class ScriptedAsker:
    """Answers cards from a list; keeps every request.  With no answers left it waits."""

    answers: list[PermissionAnswer] = field(default_factory=list)
    requests: list[PermissionRequest] = field(default_factory=list)
    interactive: bool = True
    heard: list[PermissionAnswer] = field(default_factory=list)

    async def decide(self, request: PermissionRequest) -> PermissionAnswer:
        self.requests.append(request)
        if not self.answers:
            await asyncio.Event().wait()
        return self.answers.pop(0)

    def answered(self, request: PermissionRequest, answer: PermissionAnswer) -> None:
        self.heard.append(answer)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def session(store: MemoryStore) -> Iterator[AgentSession]:
    opened = registry.acquire(store, store.create_session("s1"))
    yield opened
    registry.release(opened)
