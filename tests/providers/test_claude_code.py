"""Claude Code's own program against the fake service: no network, nothing of ours faked."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import aclosing, asynccontextmanager

import pytest

from op_jupyter.core.messages import Continuation, ModelRequest, TextDelta, user_text
from op_jupyter.errors import (
    AuthenticationFailed,
    ConfigurationError,
    ProviderConnectionError,
    ProviderTimeout,
)
from op_jupyter.providers.claude_code import ClaudeCodeProvider
from op_jupyter.providers.claude_program import find_program
from op_jupyter.providers.local_server import shared_server
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, Reply, ServiceRules, text, tool
from op_jupyter.testing.provider_contract import StreamingContract, ToolCallingContract, collect

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

    async def test_requests_at_the_same_time_do_not_mix(self):
        """With two processes instead of five."""
        async with self.answering("It is 3.") as provider:
            answers = await asyncio.gather(*(collect(provider) for _ in range(2)))
        assert [a[-1].message.text for a in answers] == ["It is 3."] * 2

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
        broken = Reply([text("It is three, I think.")], fault="abort", at=5, delay=0.1)
        async with self.serving(lambda body: broken) as (_, provider):
            yield provider

    @asynccontextmanager
    async def calling(self, name, arguments):
        reply = Reply([tool(f"mcp__op_jupyter__{name}", **arguments)])
        async with self.serving(lambda body: reply) as (_, provider):
            yield provider


async def ask(provider, said, **where):
    """The answer to *said* in the conversation that *where* names."""
    request = ModelRequest("claude-opus-5-5", (user_text(said),), **where)
    return (await collect(provider, request))[-1].message.text


def heard(fake):
    """The last prompt that the service was sent."""
    prompts = [m for m in fake.requests[-1].body["messages"] if m["role"] == "user"]
    content = prompts[-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


async def test_a_prompt_reaches_the_model_as_it_is_and_is_no_command(home, tmp_path):
    (tmp_path / "secret.txt").write_text("not for the model")
    prompts = (
        "/clear",
        "#remember",
        f"@{tmp_path}/secret.txt",
        "!ls",
        "é \U0001f600 \x00 \n",
        "x" * 300_000,
    )
    with FakeMessages(rules=RULES) as fake:
        async with provider_for(fake.url, home) as provider:
            for prompt in prompts:
                where = Continuation("one", str(tmp_path))
                await ask(provider, prompt, system="Be brief.", continuation=where)
                assert heard(fake) == prompt
            assert "not for the model" not in str(fake.requests[-1].body)
            await ask(provider, "a \ud800 b", system="s" * 200_000)
            assert heard(fake) == "a \ufffd b"
            assert "s" * 200_000 in str(fake.requests[-1].body["system"])


@pytest.mark.localmodel
async def test_the_local_model_answers_through_the_program(home):
    server = await asyncio.to_thread(shared_server, context_tokens=8192)
    environment = {"ANTHROPIC_API_KEY": server.api_key, "ANTHROPIC_BASE_URL": server.base_url}
    provider = ClaudeCodeProvider("local", environment={**environment, "HOME": str(home)})
    request = ModelRequest("local", (user_text("Say hello."),), system="Be brief.")
    async with aclosing(provider.stream(request)) as deltas:
        first = await anext(deltas)
    await provider.aclose()
    assert isinstance(first, TextDelta)
    assert first.text


def test_without_its_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'op-jupyter\[claude-code\]'"):
        ClaudeCodeProvider()


async def test_without_the_program_it_says_what_to_install(home, tmp_path):
    provider = ClaudeCodeProvider(cli=tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="install Claude Code"):
        await ask(provider, "hello")
    await provider.aclose()


async def test_without_a_login_one_error_says_how_to_get_one(home, monkeypatch):
    """As it is where the package was installed, and nothing else was ever done."""
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    with FakeMessages() as fake:
        environment = {"ANTHROPIC_API_KEY": "", "ANTHROPIC_BASE_URL": fake.url, "HOME": str(home)}
        provider = ClaudeCodeProvider(environment=environment)
        with pytest.raises(AuthenticationFailed) as caught:
            await ask(provider, "hello")
        await provider.aclose()
    assert f"run `{find_program({})}` in a terminal and type /login" in str(caught.value)
    assert "or choose another provider" in str(caught.value)
    assert not caught.value.retryable
    assert fake.requests == []


VERSION = '[ "$1" = --version ] && echo '


@pytest.mark.parametrize(
    ("does", "kind", "said"),
    [
        ("echo 'cannot start: disk full' >&2; exit 3", ProviderConnectionError, "disk full"),
        (
            "echo '2.1.247 (Claude Code)'",
            ConfigurationError,
            r"is version 2\.1\.247, .* `claude update`",
        ),
        ("echo hello", ConfigurationError, "does not say which version it is"),
        ("exec sleep 600", ProviderTimeout, "did not say its version within 1 s"),
        (f"{VERSION} 9.0.0 && exit; exec sleep 600", ProviderTimeout, "not ready within 1 s"),
    ],
    ids=["broken", "old", "another one", "silent", "never ready"],
)
async def test_a_program_that_cannot_be_asked_is_an_error_that_says_so(
    home, tmp_path, does, kind, said
):
    fake_program = tmp_path / "claude"
    fake_program.write_text(f"#!/bin/sh\n{does}\n")
    fake_program.chmod(0o755)
    hangs = kind is ProviderTimeout
    provider = ClaudeCodeProvider(cli=fake_program, start_timeout=1 if hangs else 60)
    with pytest.raises(kind, match=said):
        await ask(provider, "hello")
    await provider.aclose()


def test_importing_and_building_it_loads_no_sdk():
    code = (
        "import sys; from op_jupyter.bootstrap import create_runtime as c;"
        " c('claude-code').close(); assert 'claude_agent_sdk' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
