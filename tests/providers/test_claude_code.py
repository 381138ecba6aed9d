"""Claude Code's own program against the fake service: no network, nothing of ours faked."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from op_jupyter.providers.claude_code import ClaudeCodeProvider
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply, ServiceRules, text, tool
from op_jupyter.testing.provider_contract import StreamingContract, ToolCallingContract

pytestmark = pytest.mark.slow
RULES = ServiceRules(models=(), auth=("x-api-key",))


@asynccontextmanager
async def provider_for(url, home):
    provider = ClaudeCodeProvider(
        environment={
            "ANTHROPIC_API_KEY": API_KEY,
            "ANTHROPIC_BASE_URL": url,
            "CLAUDE_CONFIG_DIR": str(home),
            "HOME": str(home),
        }
    )
    try:
        yield provider
    finally:
        await provider.aclose()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home of its own for the program."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    return tmp_path / "claude"


class TestContract(ToolCallingContract, StreamingContract):
    @pytest.fixture(autouse=True)
    def _home(self, home):
        self.home = home

    @asynccontextmanager
    async def serving(self, default):
        with FakeMessages(default=default, rules=RULES) as fake:
            async with provider_for(fake.url, self.home) as provider:
                yield fake, provider

    @asynccontextmanager
    async def answering(self, text_):
        async with self.serving(lambda body: Reply([text(text_)])) as (_, provider):
            yield provider

    @asynccontextmanager
    async def waiting(self):
        async with self.serving(lambda body: Reply()) as (fake, provider):
            fake.script(Reply(fault="hang"))
            yield provider, lambda: asyncio.to_thread(fake.wait_held)

    @asynccontextmanager
    async def unreachable(self):
        with FakeMessages() as fake:
            pass
        async with provider_for(fake.url, self.home) as provider:
            yield provider

    @asynccontextmanager
    async def breaking_midway(self):
        broken = Reply([text("It is three, I think.")], fault="abort", at=5, delay=0.01)
        async with self.serving(lambda body: broken) as (_, provider):
            yield provider

    @asynccontextmanager
    async def calling(self, name, arguments):
        reply = Reply([tool(f"mcp__op_jupyter__{name}", **arguments)])
        async with self.serving(lambda body: reply) as (_, provider):
            yield provider
