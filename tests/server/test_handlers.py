"""Stored sessions over HTTP: what a page may see and do, and what it is told otherwise."""

from __future__ import annotations

import json

import pytest
from server.conftest import ANSWER, Server, make_session

from op_jupyter import SessionStore

HOSTILE_IDS = ["..%2f..%2fetc", ".git", "a%20b", "%00", "s%0d%0aX-Evil:%201", "x" * 200]


@pytest.fixture(scope="module")
def stored(server: Server) -> str:
    session_id = "s-stored"
    make_session(SessionStore(server.home), session_id)
    return session_id


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "sessions"),
        ("GET", "sessions/s-stored"),
        ("GET", "sessions/s-stored/nodes/n1"),
        ("GET", "sessions/s-stored/export"),
        ("DELETE", "sessions/s-stored"),
        ("POST", "sessions/s-stored/restore"),
    ],
)
@pytest.mark.parametrize("token", ["", "wrong"])
def test_nobody_without_the_servers_token_gets_in(
    server: Server, store: SessionStore, stored: str, method: str, path: str, token: str
) -> None:
    reply = server.ask(path, method, token=token)

    assert reply.status == 403
    assert b"42" not in reply.body
    assert store.exists(stored)


def test_another_page_cannot_use_the_persons_cookie(server: Server, stored: str) -> None:
    reply = server.ask(
        f"sessions/{stored}", "DELETE", token="", headers={"Origin": "https://example.org"}
    )

    assert reply.status in (403, 404)


def test_sessions_are_listed_the_newest_first_and_searched(
    server: Server, store: SessionStore, stored: str
) -> None:
    make_session(store, "s-newer", "Count the penguins")

    listed = server.ask("sessions").json
    found = server.ask("sessions?q=NEWER").json

    ids = [session["id"] for session in listed["sessions"]]
    assert ids[0] == "s-newer" and stored in ids
    assert listed["sessions"][0]["turns"] == 1
    assert [session["id"] for session in found["sessions"]] == ["s-newer"]
    said = server.ask("sessions?q=%22pengu%22+penguins*").json
    assert server.ask("sessions?q=penguins").json["sessions"][0]["id"] == "s-newer"
    assert isinstance(said["total"], int)  # whatever is typed, the search understands it
    assert server.ask("sessions?limit=1").json["total"] == len(ids)


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=-1", "limit=x", "limit=99999999", "limit=%D9%A1", f"limit={'9' * 5000}"],
)
def test_a_list_of_no_sensible_length_is_refused(server: Server, query: str) -> None:
    reply = server.ask(f"sessions?{query}")

    assert reply.status == 400
    assert "limit" in reply.json["message"]


def test_a_session_is_served_as_turns_and_a_graph(server: Server, stored: str) -> None:
    session = server.ask(f"sessions/{stored}").json

    assert [turn["status"] for turn in session["turns"]] == ["done"]
    user, model, call = session["graph"]["nodes"]
    assert (user["kind"], model["kind"], call["kind"]) == ("user", "model", "tool")
    assert (model["predecessor"], call["caller"]) == (user["id"], model["id"])
    assert "\\u001b" not in json.dumps(session)
    detail = server.ask(f"sessions/{stored}/nodes/{model['node_id']}").json
    assert detail["output"] == ANSWER
    told = server.ask(f"sessions/{stored}/nodes/{call['node_id']}").json
    assert "allowed once (click)" in told["permission"]
    assert "6 * 7" in told["input"]


def test_an_answer_is_found_with_a_part_of_it(
    server: Server, store: SessionStore, stored: str
) -> None:
    found = server.ask("sessions?q=script").json["sessions"]

    assert stored in [session["id"] for session in found]
    assert "42" in found[0]["snippet"]
    assert "\x1b" not in found[0]["snippet"]


@pytest.mark.parametrize("form", ["md", "html", "json", "ipynb"])
def test_a_session_is_exported_as_a_file_to_save(server: Server, stored: str, form: str) -> None:
    reply = server.ask(f"sessions/{stored}/export?format={form}")

    assert reply.status == 200
    assert reply.headers["Content-Disposition"] == f'attachment; filename="{stored}.{form}"'
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert b"What is 6 x 7?" in reply.body
    assert b"42 </script>" not in reply.body or form in ("json", "ipynb")


def test_an_unknown_format_is_refused_with_those_there_are(server: Server, stored: str) -> None:
    reply = server.ask(f"sessions/{stored}/export?format=exe")

    assert reply.status == 400
    assert "md, html" in reply.json["message"]


@pytest.mark.parametrize("session_id", HOSTILE_IDS)
@pytest.mark.parametrize(
    ("method", "rest"), [("GET", ""), ("GET", "/export"), ("DELETE", ""), ("POST", "/restore")]
)
def test_ids_that_are_no_folder_names_are_refused(
    server: Server, session_id: str, method: str, rest: str
) -> None:
    reply = server.ask(f"sessions/{session_id}{rest}", method)

    assert reply.status in (400, 404)
    assert "X-Evil" not in reply.headers


def test_what_is_not_there_is_said(server: Server, stored: str) -> None:
    session = server.ask("sessions/s-stord")
    node = server.ask(f"sessions/{stored}/nodes/nothing")

    assert session.status == node.status == 404
    assert "did you mean 's-stored'?" in session.json["message"]
    assert "nothing" in node.json["message"]


def test_a_deleted_session_can_be_restored(server: Server, store: SessionStore) -> None:
    make_session(store, "s-deleted")

    assert server.ask("sessions/s-deleted", "DELETE").status == 204
    assert server.ask("sessions/s-deleted").status == 404
    assert server.ask("sessions/s-deleted", "DELETE").status == 404
    assert server.ask("sessions/s-deleted/restore", "POST").status == 204
    assert len(server.ask("sessions/s-deleted").json["turns"]) == 1
    assert server.ask("sessions/s-deleted/restore", "POST").status == 404


def test_a_session_that_is_written_to_is_read_but_not_deleted(
    server: Server, store: SessionStore
) -> None:
    make_session(store, "s-busy")
    writer = store.open("s-busy")
    try:
        reply = server.ask("sessions/s-busy", "DELETE")
        assert reply.status == 409
        assert "open for writing" in reply.json["message"]
        assert server.ask("sessions/s-busy").status == 200
    finally:
        writer.close()


def test_a_damaged_session_is_refused_with_the_place_of_the_damage(
    server: Server, store: SessionStore
) -> None:
    make_session(store, "s-damaged")
    folder = store.path("s-damaged")
    assert folder is not None
    journal = next((folder / "history").rglob("*.jsonl"))
    journal.write_bytes(b"[" * 100_000 + b"\n" + journal.read_bytes())

    reply = server.ask("sessions/s-damaged")

    assert reply.status == 422
    assert "s-damaged" in reply.json["message"]
    assert "s-damaged" in [s["id"] for s in server.ask("sessions").json["sessions"]]


def test_the_extension_is_switched_on_by_its_installed_file(server: Server) -> None:
    assert "op_jupyter.server: stored sessions are served" in server.log.read_text()
