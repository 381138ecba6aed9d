"""Secrets never get through."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from op_jupyter.core.redact import MARK, Redactor, is_secret_name, secrets_of

SECRET = "correct-horse-battery"


@pytest.mark.parametrize(
    "name",
    [
        *("ANTHROPIC_API_KEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "DB_PASS"),
        *("MYSQL_PASSWD", "GOOGLE_APPLICATION_CREDENTIALS", "BASIC_AUTH", "api_key", "APIKEY"),
        *("HTTP_AUTHORIZATION", "OAUTHTOKEN", "SSH_PASSPHRASE"),
    ],
)
def test_a_name_that_says_secret_is_recognised(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "PWD", "OLDPWD", "GIT_AUTHOR_NAME", "KEYBOARD_LAYOUT", "PASSAGE", "LANG"],
)
def test_an_ordinary_name_is_left_alone(name: str) -> None:
    assert not is_secret_name(name)


def test_only_secret_values_of_the_environment_are_taken() -> None:
    assert secrets_of({"MY_TOKEN": SECRET, "HOME": "/home/somebody"}) == (SECRET,)


def test_a_secret_is_replaced_everywhere_in_a_text() -> None:
    text = Redactor([SECRET]).text(f"a {SECRET} b{SECRET}c")
    assert text == f"a {MARK} b{MARK}c"


@pytest.mark.parametrize("secret", ["plainsecret", "with-a-dash", "with_a_line", "both-of_them"])
def test_a_secret_is_found_whatever_it_is_made_of(secret: str) -> None:
    redactor = Redactor(["plainsecret", "with-a-dash", "with_a_line", "both-of_them"])
    assert redactor.text(f"it is {secret} today") == f"it is {MARK} today"
    assert redactor.json([f"it is {secret}"]) == [f"it is {MARK}"]


def test_short_values_are_left_alone() -> None:
    assert Redactor(["true", "1234567"]).text("true 1234567") == "true 1234567"


def test_without_secrets_a_text_stays_the_very_same() -> None:
    text = "nothing to hide"
    assert Redactor([SECRET]).text(text) is text
    assert Redactor().text(text) is text


@pytest.mark.parametrize(
    ("secrets", "text"),
    [
        (["abcdefgh", "abcdefghijkl"], "abcdefghijkl"),
        (["abcdefghijkl", "abcdefgh"], "abcdefghijkl"),
        (["abcdefgh12", "gh12345678"], "abcdefgh12345678"),
        (["abcdefghij", "cdefghijklmnop", "ijklmnopqr"], "abcdefghijklmnopqr"),
        (["aaaaaaaa"], "aaaaaaaaaaa"),
    ],
)
def test_overlapping_secrets_leave_no_rest(secrets: list[str], text: str) -> None:
    assert Redactor(secrets).text(f"<{text}>") == f"<{MARK}>"


def test_every_text_of_a_json_value_is_treated_keys_included() -> None:
    value = {
        "a": [f"x{SECRET}", {"deep": (SECRET, 1, None, True, 2.5)}],
        SECRET: "as a key",
    }
    assert Redactor([SECRET]).json(value) == {
        "a": [f"x{MARK}", {"deep": (MARK, 1, None, True, 2.5)}],
        MARK: "as a key",
    }


def test_two_secret_keys_do_not_swallow_each_other() -> None:
    secrets = ["first-secret", "second-secret"]
    value = Redactor(secrets).json(dict.fromkeys(secrets, 1))
    assert value == {MARK: 1, f"{MARK} (2)": 1}


def test_the_value_itself_is_not_changed() -> None:
    value = {"a": [SECRET]}
    Redactor([SECRET]).json(value)
    assert value == {"a": [SECRET]}


@pytest.mark.parametrize(
    "secret", ['quo"ted-secret', "line\nbreak-secret", "ümläut-geheimnis", "a/b?c=d&e f"]
)
def test_a_secret_is_found_inside_json_text(secret: str) -> None:
    redactor = Redactor([secret])
    for raw in (json.dumps({"k": secret}), json.dumps({"k": secret}, ensure_ascii=False)):
        assert json.loads(redactor.text(raw)) == {"k": MARK}


def test_a_secret_in_an_address_is_found() -> None:
    assert (
        Redactor(["p@ss/word!"]).text("https://u:p%40ss%2Fword%21@host") == f"https://u:{MARK}@host"
    )


@pytest.mark.parametrize(
    "key",
    [
        "sk-ant-api03-" + "Ab1_-" * 8,
        "sk-proj-" + "aB3" * 10,
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a1B2_" * 8,
        "glpat-" + "a1B2" * 5,
        "hf_" + "aBcD" * 8,
        "AKIA" + "ABCD1234" * 2,
        "AIza" + "Sy-_a" * 7,
        "xoxb-" + "1234567890-ab",
        "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_anything_shaped_like_a_key_is_replaced(key: str) -> None:
    assert Redactor().text(f"before {key} after") == f"before {MARK} after"


def test_a_private_key_that_was_cut_off_is_replaced_to_the_end() -> None:
    assert Redactor().text("x -----BEGIN PRIVATE KEY-----\nMIIE") == f"x {MARK}"


@pytest.mark.parametrize("text", ["-eyJ" * 200_000, "-----BEGIN PRIVATE KEY-----\n" * 30_000])
@pytest.mark.timeout(20)
def test_a_text_made_to_be_slow_is_not(text: str) -> None:
    Redactor([SECRET]).text(text)


@pytest.mark.parametrize(
    "text", ["task-antics", "sk-short", "a risk-averse-investor-strategy-here", "AKIA"]
)
def test_ordinary_words_are_no_keys(text: str) -> None:
    assert Redactor().text(text) == text


# Nothing of the mark or of what stands around a secret is in this alphabet.
secrets = st.lists(st.text('ABCD0/"\\é%', min_size=8), min_size=1, max_size=5)
padding = st.text("xyz ,", max_size=4)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(secrets, padding)
def test_no_planted_secret_survives_anywhere(planted: list[str], between: str) -> None:
    text = between.join(planted)
    value: Any = {"text": text, "list": [[s] for s in planted], "raw": json.dumps([text])}
    shown = Redactor(planted).json(value)
    for secret in planted:
        assert secret not in shown["text"]
        assert secret not in json.loads(shown["raw"])[0]
    assert shown["list"] == [[MARK]] * len(planted)


@given(json_values)
def test_a_value_without_secrets_comes_back_equal(value: Any) -> None:
    assert Redactor([SECRET * 3]).json(value) == value
