"""No secret is ever stored: a run with secrets planted everywhere, and a look at every byte."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from shells import Shell

from op_jupyter import bootstrap
from op_jupyter.engine.runtime import Runtime
from op_jupyter.notebook.extension import load, unload
from op_jupyter.providers.recorded import RecordedProvider
from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.providers import ScriptedProvider, call, reply

BY_NAME = "correct-horse/battery+staple"
LATE = "set-while-the-notebook-runs-42"
BY_SHAPE = "sk-ant-api03-planted0123456789abcdef"
QUOTED = 'pass"word\\with/ü-everything'
LATER = "set-after-the-first-recorded-turn"
PLANTED = (BY_NAME, LATE, LATER, BY_SHAPE, QUOTED)


def forms(secret: str) -> set[bytes]:
    """*secret* as it is, as JSON and addresses write it, and as it reads without its ends."""
    ways = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    ways |= {quote(secret, safe=""), secret[2:-2]}
    return {way.encode() for way in ways}


def everything(root: Path) -> Iterator[tuple[str, bytes]]:
    """Every name and every byte below *root*, git's objects unpacked."""
    for path in sorted(root.rglob("*")):
        yield f"the name {path}", str(path.relative_to(root)).encode()
        if path.is_file():
            yield str(path), path.read_bytes()
        if path.name == ".git" and shutil.which("git"):
            told = subprocess.run(
                ["git", "-C", str(path), "cat-file", "--batch-all-objects", "--batch"],
                capture_output=True,
                check=True,
            )
            yield f"the objects in {path}", told.stdout


def assert_clean(root: Path) -> None:
    found = [
        (where, form)
        for where, data in everything(root)
        for secret in PLANTED
        for form in forms(secret)
        if form in data
    ]
    assert found == []


@pytest.fixture
def planted(
    clean_environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Path]:
    """A home in which the environment holds secrets, and the workspace a file with one."""
    monkeypatch.setenv("MY_SERVICE_TOKEN", BY_NAME)
    monkeypatch.setenv("DB_PASSWORD", QUOTED)
    monkeypatch.setenv("OPENPROGRAM_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text(f"the password is {BY_NAME}\nline two\n")
    monkeypatch.chdir(tmp_path / "work")
    yield tmp_path / "home"
    os.environ.pop("LATE_API_KEY", None)
    os.environ.pop("LATER_API_KEY", None)


PROGRAM = '''
import os
from op_jupyter import agentic_function, llm, traced

os.environ["LATE_API_KEY"] = LATE

@traced
def step(x):
    """A step."""
    return {"seen": x, LATE: [BY_NAME]}

@agentic_function
def consult(question):
    """Answer it."""
    step(question)
    try:
        step.missing
    except AttributeError:
        pass
    return llm(f"{question} with {LATE} and {BY_SHAPE}")

@agentic_function
def fails(secret):
    """Fail."""
    raise ValueError(f"cannot log in with {secret!r}: {LATE}")
'''


def test_no_planted_secret_is_stored_anywhere(planted: Path, shell: Shell) -> None:
    provider = ScriptedProvider()
    cassette = planted / "recorded.cassette"

    def runtime(chosen: object, replay: bootstrap.Replay | None) -> Runtime:
        assert replay is not None
        recorded = RecordedProvider(
            lambda: provider,
            replay.cassette,
            replay.mode,
            folders=replay.folders,
            redactor=replay.redactor,
        )
        return Runtime(provider=recorded, max_retries=0)

    loaded = load(shell.ip, store=SessionStore(planted / "sessions"), make_runtime=runtime)
    loaded.install()
    shell.value(f"%config AgentMagics.cassette = {str(cassette)!r}")
    shell.value("%config AgentMagics.replay = 'record'")
    shell.ip.user_ns.update(LATE=LATE, BY_NAME=BY_NAME, BY_SHAPE=BY_SHAPE, QUOTED=QUOTED)
    shell.run(PROGRAM)

    # Prompts, variables in them, code, its output, its errors, arguments, answers.
    shout = "print(BY_NAME, LATE, QUOTED, BY_SHAPE); raise ValueError(QUOTED + LATE)"
    provider.add(
        reply(
            f"You said {BY_NAME}. ",
            call("python", {"code": shout}, id=f"call-{LATE}"),
            call("python", {"code": f"key = {LATE!r}; display({{key: [key, BY_SHAPE]}}); key"}),
            call("inspect", {"names": ["LATE", "os"]}),
            call("read_file", {"path": "notes.txt"}),
            call("write_file", {"path": "notes.txt", "content": f"now it is {LATE}"}),
            call("edit_file", {"path": "notes.txt", "old": LATE, "new": QUOTED}),
            call("search_files", {"pattern": QUOTED}),
            call("python", {"code": "print('x' * 70 + LATE + 'y' * 70)"}),
            call("update_plan", {"steps": [{"text": LATE, "status": "pending"}]}),
            call(f"no-such-{LATE}", {LATE: LATE}),
        ),
        reply(f"Your keys are {LATE}, {BY_SHAPE} and {QUOTED}."),
    )
    shell.run(f"%%agent --mode auto\nUse {BY_NAME} and {{{{QUOTED}}}} and {BY_SHAPE}")

    # A key that is set when the cassette is open already.
    shell.run(f"os.environ['LATER_API_KEY'] = {LATER!r}")
    provider.add(
        reply(f"It is {LATER}", call("python", {"code": f"print({LATER!r})"})), reply(f"So {LATER}")
    )
    shell.run(f"%%agent\nNow use {LATER}")

    # Functions, nested calls, errors, names.
    provider.add(reply(f"ask {LATE}"), reply(f"sure, {QUOTED}"))
    shell.run(f"consult({BY_NAME!r})")
    shell.run("fails(QUOTED)")

    # Rules, titles, branches, summaries, other sessions.
    shell.run(f"%agent allow python(print({LATE!r}))")
    shell.run(f"%agent deny read_file({BY_NAME})")
    loaded.session.recorder.set_meta(title=f"All about {LATE}", note={LATE: QUOTED})
    provider.add(*[reply(f"The user's keys are {LATE}, {LATER} and {BY_NAME}.")] * 9)
    shell.run("%agent compact")
    shell.run(f"%%agent --fresh\nAgain {LATE}, {base64.b64encode(b'x').decode()}")
    shell.run("%agent new")
    shell.run(f"%%agent\n{LATE}")
    unload(shell.ip)

    store = SessionStore(planted / "sessions")
    assert len(store.sessions()) >= 2
    text = "".join(str(node) for info in store.sessions() for node in store.load(info.id))
    assert text.count("[redacted]") > 20
    assert "[redacted]" in cassette.read_text("utf-8")
    assert_clean(planted)
