"""Endpoints of the settings file: what they say, what is refused, and that no key is kept."""

from __future__ import annotations

import pytest

from op_jupyter import bootstrap
from op_jupyter.config.settings import load_settings
from op_jupyter.engine.runtime import Runtime
from op_jupyter.errors import ConfigurationError
from op_jupyter.testing.fake_messages import API_KEY, FakeMessages, ServiceRules

WORK = """
[endpoints.work]
base_url = "https://gateway.example.com/v1"
key_env = "WORK_KEY"
auth = "x-api-key"
api_version = "2023-06-01"
models = ["big-model", "small-model"]
context_tokens = 120000
max_output_tokens = 4000
thinking = true
cache = true
headers = { anthropic-beta = "feature-1" }
extra_body = { temperature = 0 }
read_timeout = 30
"""


@pytest.fixture
def environ(tmp_path, monkeypatch):
    """Settings from one file in a fresh folder; the environment says nothing else."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("OPENPROGRAM_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("WORK_KEY", "secret-of-work")

    def write(text):
        (tmp_path / "config.toml").write_text(text)
        return {"OPENPROGRAM_CONFIG": str(tmp_path / "config.toml")}

    return write


def capabilities(**choice):
    with bootstrap.create_runtime(**choice) as runtime:
        return runtime.provider.capabilities


def test_a_table_says_everything_about_its_server(environ):
    settings = load_settings(environ(WORK))
    profile = settings.endpoints["work"].profile(None, {"WORK_KEY": "secret-of-work"})
    assert (profile.base_url, profile.default_model) == ("https://gateway.example.com", "big-model")
    assert (profile.auth, profile.api_key, profile.key_source) == (
        "x-api-key",
        "secret-of-work",
        "WORK_KEY",
    )
    assert (profile.context_tokens, profile.max_output_tokens) == (120_000, 4_000)
    assert (profile.supports_thinking, profile.supports_cache, profile.supports_schema) == (
        True,
        True,
        False,
    )
    assert dict(profile.headers) == {"anthropic-beta": "feature-1"}
    assert dict(profile.extra_body) == {"temperature": 0}
    assert (profile.api_version, profile.read_timeout) == ("2023-06-01", 30)


def test_the_runtime_of_a_named_endpoint_has_its_name_its_model_and_its_window(environ):
    environ(WORK)
    told = capabilities(provider="work", model="small-model")
    assert (told.name, told.default_model, told.context_tokens) == ("work", "small-model", 120_000)


def test_an_endpoint_may_move_a_known_server(environ):
    environ('[endpoints.ollama]\nbase_url = "http://gpu:11434"\nmodels = ["qwen"]\n')
    assert capabilities(provider="ollama").default_model == "qwen"


def test_the_call_comes_before_the_file_and_the_file_before_a_key(environ, monkeypatch):
    environ('provider = "work"\n' + WORK + '[endpoints.other]\nbase_url = "http://o"\n')
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    assert capabilities().name == "work"
    assert capabilities(provider="other", model="m").name == "other"
    monkeypatch.setenv("OPENPROGRAM_PROVIDER", "anthropic")
    assert capabilities().name == "anthropic"


def test_a_request_reaches_the_endpoint_with_its_key_header_and_fields(environ):
    rules = ServiceRules(auth=("x-api-key",), models=("m",), sampling=True)
    with FakeMessages(rules=rules) as fake:
        environ(
            f'[endpoints.fake]\nbase_url = "{fake.url}"\nkey_env = "FAKE_KEY"\nmodels = ["m"]\n'
            'auth = "x-api-key"\nheaders = {anthropic-beta = "b1"}\n'
            "extra_body = {temperature = 0}\n"
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FAKE_KEY", API_KEY)
            with bootstrap.create_runtime("fake") as runtime:
                assert isinstance(runtime, Runtime)
                assert runtime.exec("hello") == "You said: hello"
        (request,) = fake.requests
        assert request.headers["anthropic-beta"] == "b1"
        assert (request.body["model"], request.body["temperature"]) == ("m", 0)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("", "needs a base_url"),
        ('base_url = "gateway"', "give one like https://host"),
        ('base_url = "http://h:99999"', "give one like https://host"),
        ('base_url = "http://h:port"', "give one like https://host"),
        ('base_url = "http://[::1"', "give one like https://host"),
        ('base_url = "http://h:0"', "give one like https://host"),
        ('base_url = "http://h"\nheaders = {"a b" = "x"}', "cannot be sent as a header"),
        ('base_url = "https://u:p@host"', "holds a password"),
        ('base_url = "http://h"\napi_key = "sk-very-secret"', "name that with key_env"),
        ('base_url = "http://h"\nheaders = {Authorization = "sk-very-secret"}', "key_env"),
        ('base_url = "http://h"\nheaders = {x = 1}', "a table of texts"),
        ('base_url = "http://h"\nheaders = {x = "a\\nb"}', "cannot be sent as a header"),
        ('base_url = "http://h"\nauth = "basic"', "use bearer, x-api-key, both"),
        ('base_url = "http://h"\nmodels = "m"', "a list of model names"),
        ('base_url = "http://h"\nmodels = []', "a list of model names"),
        ('base_url = "http://h"\ncontext_tokens = true', "a whole number"),
        ('base_url = "http://h"\nmax_output_tokens = 0', "a whole number"),
        (
            'base_url = "http://h"\ncontext_tokens = 9\nmax_output_tokens = 10',
            "more than its window",
        ),
        ('base_url = "http://h"\nread_timeout = nan', "seconds above 0"),
        ('base_url = "http://h"\nthinking = "yes"', "true or false"),
        ('base_url = "http://h"\nextra_body = 3', "a table"),
        ('base_url = "http://h"\nkey_env = 3', "has to be text"),
        ('base_url = "http://h"\nkey_env = "MY_WORD"', "a name like WORK_API_KEY"),
        ('base_url = "http://h"\ncontext = 3', "known are base_url, key_env"),
    ],
)
def test_what_means_nothing_is_said_by_file_and_word_and_shows_no_secret(environ, table, said):
    where = environ(f"[endpoints.work]\n{table}\n")
    with pytest.raises(ConfigurationError, match=said) as caught:
        load_settings(where)
    assert "config.toml" in str(caught.value)
    assert "endpoints.work" in str(caught.value) or "of work" in str(caught.value)
    assert "very-secret" not in str(caught.value)


def test_a_file_with_a_byte_order_mark_is_read_like_any_other(environ):
    assert load_settings(environ("\ufeff" + WORK)).endpoints.keys() == {"work"}


def test_a_table_in_the_wrong_place_or_under_a_taken_name_is_refused(environ):
    with pytest.raises(ConfigurationError, match=r"\[endpoints.NAME\]"):
        load_settings(environ('endpoints = "http://h"'))
    with pytest.raises(ConfigurationError, match="has to be a table"):
        load_settings(environ('[endpoints]\nwork = "http://h"'))
    with pytest.raises(ConfigurationError, match="choose another name"):
        load_settings(environ('[endpoints.anthropic]\nbase_url = "http://h"'))


@pytest.mark.parametrize(
    ("provider", "model", "said"),
    [
        ("work", "big-modle", "did you mean 'big-model'"),
        ("wrok", None, "did you mean 'work'"),
        ("keyless", None, "set the environment variable NO_SUCH_KEY"),
        ("open", None, "say which one"),
    ],
)
def test_a_choice_that_cannot_work_says_what_to_do(environ, provider, model, said):
    environ(
        WORK
        + '[endpoints.keyless]\nbase_url = "http://h"\nkey_env = "NO_SUCH_KEY"\nmodels = ["m"]\n'
        + '[endpoints.open]\nbase_url = "http://h"\n'
    )
    with pytest.raises(ConfigurationError, match=said):
        bootstrap.create_runtime(provider=provider, model=model)


def test_no_representation_shows_a_key(environ):
    settings = load_settings(environ(WORK))
    profile = settings.endpoints["work"].profile(None, {"WORK_KEY": "secret-of-work"})
    assert "secret-of-work" not in repr(settings) + repr(profile)


def test_claude_code_is_chosen_by_its_name_alone(environ, monkeypatch):
    environ('provider = "claude-code"\nmodel = "claude-haiku-5-5"\n')
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    told = capabilities()
    assert (told.name, told.default_model, told.has_session) == (
        "claude-code",
        "claude-haiku-5-5",
        True,
    )


def test_claude_code_cannot_be_recorded(environ, tmp_path):
    environ(f'replay = "record"\ncassette = "{tmp_path}/a.cassette"\n')
    with pytest.raises(ConfigurationError, match="cannot be recorded"):
        bootstrap.create_runtime("claude-code")
