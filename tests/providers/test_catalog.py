"""Which provider is chosen, and what is said when there is none."""

from __future__ import annotations

import pytest

from op_jupyter.errors import ConfigurationError
from op_jupyter.providers.catalog import resolve_provider

KEY = {"ANTHROPIC_API_KEY": "sk-test-1"}


def choose(name=None, model=None, environ=None, *, claude=False, local=False):
    return resolve_provider(
        name, model, environ or {}, claude_available=claude, local_available=local
    )


def test_a_name_comes_before_the_environment():
    assert choose("local", environ=KEY, local=True).name == "local"


def test_a_key_comes_before_claude_code_and_that_before_the_local_model():
    unasked = choose(claude=True, local=True)
    assert (unasked.name, unasked.model, unasked.profile) == (
        "claude-code",
        "claude-opus-5-5",
        None,
    )
    assert unasked.origin == "no key is set, and Claude Code is installed"
    for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        assert choose(environ={variable: "k"}, claude=True).origin == variable
    at = {"ANTHROPIC_BASE_URL": "http://localhost:1"}
    assert choose(environ=at, claude=True, local=True).name == "anthropic"
    assert choose("local", claude=True, local=True).name == "local"


def test_a_key_comes_before_the_local_model():
    choice = choose(environ=KEY, local=True)
    assert (choice.name, choice.model, choice.origin) == (
        "anthropic",
        "claude-opus-5-5",
        "ANTHROPIC_API_KEY",
    )
    assert choice.profile.api_key == "sk-test-1"
    assert choice.profile.base_url == "https://api.anthropic.com"


def test_the_api_key_wins_over_the_token_and_an_empty_one_is_none():
    both = {"ANTHROPIC_AUTH_TOKEN": "token", **KEY}
    assert choose(environ=both).profile.auth_token is None
    token = choose(environ={"ANTHROPIC_API_KEY": "", "ANTHROPIC_AUTH_TOKEN": "token"})
    assert (token.profile.api_key, token.profile.auth_token) == (None, "token")
    assert token.profile.key_source == token.origin == "ANTHROPIC_AUTH_TOKEN"


def test_an_address_alone_is_enough_and_gets_the_older_header():
    choice = choose(environ={"ANTHROPIC_BASE_URL": "http://localhost:8080/v1/"})
    assert choice.origin == "ANTHROPIC_BASE_URL"
    assert choice.profile.base_url == "http://localhost:8080"
    assert choice.profile.auth == "both"
    assert not choice.profile.needs_key
    assert not choice.profile.supports_schema


def test_the_local_model_is_the_last_resort():
    choice = choose(local=True)
    assert (choice.name, choice.profile) == ("local", None)


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("ollama", "http://localhost:11434"),
        ("http://gpu:8000", "http://gpu:8000"),
    ],
)
def test_a_compatible_server_is_a_profile(name, url):
    choice = choose(name, "qwen")
    assert choice.profile.base_url == url
    assert choice.profile.default_model == choice.model == "qwen"
    assert not choice.profile.needs_key


def test_a_named_model_is_the_default_of_the_profile():
    assert choose(model="claude-haiku-5-5", environ=KEY).profile.capabilities.default_model == (
        "claude-haiku-5-5"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "set ANTHROPIC_API_KEY, or install the small local model"),
        ({"name": "anthropic"}, "no key for anthropic: set ANTHROPIC_API_KEY"),
        ({"name": "local"}, r"pip install 'op-jupyter\[local\]'"),
        ({"name": "ollama"}, "say which one"),
        ({"name": "anthropc"}, "did you mean 'anthropic'"),
        ({"name": "clod-code"}, "no provider 'clod-code'"),
        ({"name": "http://"}, "the base URL of http:// is"),
        ({"name": "http://[", "model": "m"}, "the base URL of \\[ is"),
        ({"environ": {"ANTHROPIC_BASE_URL": "localhost:80"}}, "http://localhost:11434"),
        ({"environ": {"ANTHROPIC_BASE_URL": "http://u:p@host"}}, "holds a password"),
        ({"environ": {"ANTHROPIC_API_KEY": "sk two words"}}, "from ANTHROPIC_API_KEY holds"),
    ],
)
def test_what_cannot_work_is_said_with_what_to_do(arguments, said):
    with pytest.raises(ConfigurationError, match=said) as caught:
        choose(**arguments)
    assert "two words" not in str(caught.value)


def test_no_representation_shows_a_key():
    assert "sk-test-1" not in repr(choose(environ=KEY))


def test_white_space_around_a_key_is_dropped():
    assert choose(environ={"ANTHROPIC_API_KEY": " sk-1\n"}).profile.api_key == "sk-1"
