"""What of a request decides its key, and what of the machine does not."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from op_jupyter.core.messages import (
    ImageBlock,
    Message,
    ModelRequest,
    OpaqueBlock,
    ResponseDone,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    Usage,
    user_text,
)
from op_jupyter.core.prompt import world_text
from op_jupyter.core.recording import (
    Folders,
    canonical_request,
    reply_from_recording,
    reply_in_history,
    reply_to_recording,
    request_key,
)
from op_jupyter.core.recording_diff import difference, nearest, title

HERE = Folders.of(
    workspace=PurePosixPath("/home/ada/proj"),
    home=PurePosixPath("/home/ada"),
    sessions=PurePosixPath("/var/s"),
    temp=PurePosixPath("/tmp"),
)
THERE = Folders.of(
    workspace=PurePosixPath("/srv/ci/work"),
    home=PurePosixPath("/srv/ci"),
    sessions=PurePosixPath("/srv/ci/sessions"),
    temp=PurePosixPath("/var/tmp/x"),
)


def key(*messages, folders=HERE, **values):
    return request_key(canonical_request(ModelRequest("m", messages, **values), folders))


def conversation(tool_id="t1", path="/home/ada/proj/a.csv", thinking="hm"):
    arguments = json.dumps({"path": path})
    return (
        user_text("Look"),
        Message(
            "assistant",
            (
                OpaqueBlock({"type": "thinking", "thinking": thinking}),
                ToolUseBlock(tool_id, "read", arguments),
            ),
        ),
        Message("user", (ToolResultBlock(tool_id, (TextBlock(f"{path}: 3 rows"),)),)),
    )


def test_ids_paths_thinking_and_session_do_not_change_the_key():
    here = key(*conversation(), session_key="s1")
    there = key(
        *conversation("toolu_9", "/srv/ci/work/a.csv", "quite other thoughts"),
        folders=THERE,
        session_key="s2",
    )
    assert here == there


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("object at 0x7f1122334455", "object at 0x55aa55aa55aa"),
        ("File /tmp/ipykernel_123/456.py:1", "File /tmp/ipykernel_9/8.py:1"),
        ("see /home/ada/.cache/x", "see /srv/ci/.cache/x"),
        ("see /var/s/nb-1/x", "see /srv/ci/sessions/nb-1/x"),
        ("in /tmp/tmpab_d12f3/a.csv", "in /var/tmp/x/tmp00000000/a.csv"),
        ("in /tmp/made-tmpab_d12f3", "in /var/tmp/x/made-tmp00000000"),
        ("Node(id='call-29bf5cf606ba')", "Node(id='call-fab990012a8c')"),
        ("Node(id='call-02d6…", "Node(id='call-ffff…"),
        ("tcp://127.0.0.1:39317", "tcp://127.0.0.1:40001"),
        ("Cell In[3], line 1", "Cell In[17], line 1"),
        ("File <ipython-input-3-0a1b2c>:1", "File <ipython-input-9-ffffff>:1"),
        (
            'File "/usr/lib/python3/dist-packages/pandas/core/frame.py", line 7',
            'File "/opt/env/lib/python3.13/site-packages/pandas/core/frame.py", line 7',
        ),
        ("/usr/lib/python3.11/json/decoder.py", "/opt/env/lib/python3.13/json/decoder.py"),
    ],
)
def test_traces_of_the_machine_in_a_text_do_not_change_the_key(one, other):
    assert key(user_text(one)) == key(user_text(other), folders=THERE)


@pytest.mark.parametrize(
    "unit", ["x", "/lib", "/tmp/", "<a>\n", "ipykernel_1", "at 0x", "tmp", "["]
)
def test_the_key_of_an_enormous_text_is_there_at_once(unit):
    started = time.process_time()
    key(user_text(unit * (300_000 // len(unit))))
    assert time.process_time() - started < 5


def test_the_session_id_in_a_text_does_not_change_the_key():
    assert key(user_text("in session-1"), session_key="session-1") == key(
        user_text("in session-2"), session_key="session-2"
    )


def test_the_id_of_a_sub_agents_session_does_not_change_the_key_and_a_chosen_name_is_no_id():
    parent = key(user_text("all of it is in nb-a1b2c3d4.worker-1"), session_key="nb-a1b2c3d4")
    child = key(user_text("all of it is in nb-77777777.worker-1"), session_key="nb-77777777")
    assert parent == child
    assert key(user_text("plot sales"), session_key="sales") == key(
        user_text("plot sales"), session_key="trip"
    )


def test_a_reply_that_tells_the_session_replays_in_another_one():
    request = replace(BASE, session_key="nb-a1b2c3d4.worker-1")
    recording = reply_to_recording(done(TextBlock("see nb-a1b2c3d4.worker-1")), request, HERE)
    assert "a1b2" not in json.dumps(recording.content)
    again = reply_from_recording(recording, HERE, "nb-77777777")
    assert again.message.text == "see nb-77777777"


def test_sections_about_the_machine_do_not_change_the_key_and_others_do():
    def said(**sections):
        return key(user_text(world_text(sections)), user_text("go"))

    assert said(workspace="/a\nx.csv", variables="df: table") == said(
        workspace="/b", skills="many", variables="df: table"
    )
    assert said(workspace="/a") == key(user_text("go"))
    assert said(variables="df: table") != said(variables="df: array")


def test_a_users_text_that_only_looks_like_a_section_counts():
    assert key(user_text("<workspace>\n1\n</workspace> yes")) != key(
        user_text("<workspace>\n2\n</workspace> yes")
    )


BASE = ModelRequest(
    "m",
    (user_text("What is 1 + 2?"),),
    system="Be brief.",
    tools=(ToolSpec("add", "Add.", {"type": "object"}),),
)


@pytest.mark.parametrize(
    "change",
    [
        {"model": "other"},
        {"system": "Be long."},
        {"messages": (user_text("What is 1 + 3?"),)},
        {"messages": (Message("assistant", (TextBlock("What is 1 + 2?"),)),)},
        {"tools": ()},
        {"tools": (ToolSpec("add", "Add!", {"type": "object"}),)},
        {"response_schema": {"type": "object"}},
    ],
)
def test_everything_that_decides_the_answer_changes_the_key(change):
    changed = canonical_request(replace(BASE, **change), HERE)
    assert request_key(changed) != request_key(canonical_request(BASE, HERE))


def test_the_output_limit_does_not_change_the_key():
    assert canonical_request(replace(BASE, max_tokens=1), HERE) == canonical_request(BASE, HERE)


def test_states_kinds_of_image_and_arguments_change_the_key():
    def result(state="success", image="image/png", arguments="{}"):
        return key(
            user_text("a"),
            Message("assistant", (ToolUseBlock("t", "plot", arguments),)),
            Message("user", (ToolResultBlock("t", (ImageBlock(image, "QQ=="),), state),)),
        )

    others = (result(state="denied"), result(image="image/jpeg"), result(arguments="{"))
    assert len({result(), *others}) == 4
    assert result(arguments='{"a": 1, "b": 2}') == result(arguments='{"b":2,"a":1}')


def test_an_image_that_is_asked_about_counts_and_one_that_a_tool_drew_does_not():
    """Every version of a plotting library draws other bytes."""

    def asked(data):
        return key(Message("user", (TextBlock("What is it?"), ImageBlock("image/png", data))))

    def drawn(data):
        return key(Message("user", (ToolResultBlock("t", (ImageBlock("image/png", data),)),)))

    assert asked("QQ==") != asked("Qg==")
    assert drawn("QQ==") == drawn("Qg==")


def test_an_image_is_recorded_by_its_digest():
    image = ImageBlock("image/png", "QUJD" * 1000)
    canonical = canonical_request(ModelRequest("m", (Message("user", (image,)),)), HERE)
    assert len(json.dumps(canonical)) < 200


def test_a_folder_is_only_replaced_as_a_whole():
    assert HERE.hide("/home/ada/proj /home/ada/project /home/adam /mnt/home/ada ./home/ada") == (
        "⟨workspace⟩ ⟨home⟩/project /home/adam /mnt/home/ada ./home/ada"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [("call-29bf5cf606ba0", "call-fab990012a8c0"), ("127.0.0.1:8080", "127.0.0.1:8081")],
)
def test_what_somebody_wrote_counts_although_it_looks_like_something_made_up(one, other):
    assert key(user_text(one)) != key(user_text(other))


def test_a_folder_at_the_end_of_a_sentence_is_replaced():
    said = "It is in /home/ada/proj. Or '/home/ada': file:///home/ada/a.csv, /home/ada/proj.old"
    assert HERE.hide(said) == (
        "It is in ⟨workspace⟩. Or '⟨home⟩': file://⟨home⟩/a.csv, ⟨home⟩/proj.old"
    )


def test_a_folder_with_several_names_is_one_placeholder_and_means_the_first():
    names = [PurePosixPath("/private/tmp"), PurePosixPath("/tmp")]
    folders = Folders.of(workspace=PurePosixPath("/w/x"), home=PurePosixPath("/h/y"), temp=names)
    assert folders.hide("/tmp/a /private/tmp/a") == "⟨temp⟩/a ⟨temp⟩/a"
    assert folders.show("⟨temp⟩/a") == "/private/tmp/a"


def test_names_of_members_hide_folders_too():
    arguments = json.dumps({"files": {"/home/ada/proj/a.csv": 1}})
    recording = reply_to_recording(done(ToolUseBlock("t", "read", arguments)), BASE, HERE)
    assert "/home/ada" not in json.dumps(recording.content)
    again = reply_from_recording(recording, THERE).message.tool_uses[0]
    assert json.loads(again.arguments) == {"files": {"/srv/ci/work/a.csv": 1}}


def test_the_root_folder_is_never_hidden():
    folders = Folders.of(workspace=PurePosixPath("/"), home=PurePosixPath("/root"))
    assert folders.hide("/etc /root/x") == "/etc ⟨home⟩/x"


def done(*blocks, stop_reason="tool_use"):
    return ResponseDone(
        Message("assistant", blocks), stop_reason, Usage(7, 3), "model-1", {"id": "x"}
    )


def test_a_reply_comes_back_with_the_paths_of_the_machine_it_is_replayed_on():
    reply = done(
        OpaqueBlock({"type": "thinking", "thinking": "hm", "signature": "s"}),
        TextBlock("in /home/ada/proj"),
        ToolUseBlock("toolu_abc", "read", '{"path":"/home/ada/proj/a.csv"}'),
        ToolUseBlock("toolu_def", "read", "{broken"),
    )
    request = ModelRequest("m", conversation())
    recording = reply_to_recording(reply, request, HERE)
    again = reply_from_recording(recording, THERE)
    assert again.message.content == (
        OpaqueBlock({"type": "thinking", "thinking": "hm", "signature": "s"}),
        TextBlock("in /srv/ci/work"),
        ToolUseBlock("call_2", "read", '{"path": "/srv/ci/work/a.csv"}'),
        ToolUseBlock("call_3", "read", "{broken"),
    )
    assert (again.stop_reason, again.usage, again.model) == ("tool_use", Usage(7, 3), "model-1")


def test_a_number_in_code_that_looks_like_an_address_survives_in_a_reply():
    code = json.dumps({"code": "x = 0xFFEEDDCC  # lives at 0xFFEEDDCC"})
    recording = reply_to_recording(done(ToolUseBlock("t", "python", code)), BASE, HERE)
    assert reply_from_recording(recording, HERE).message.tool_uses[0].arguments == code


def test_the_next_request_holds_the_reply_as_the_recording_tells_it():
    reply = done(
        OpaqueBlock({"type": "thinking", "thinking": "hm"}),
        TextBlock("at 0x7f1122334455 in /home/ada/proj"),
        ToolUseBlock("toolu_abc", "add", '{"b": 2, "a": 1}'),
    )
    recording = reply_to_recording(reply, BASE, HERE)
    following = replace(BASE, messages=(*BASE.messages, reply.message))
    assert canonical_request(following, HERE)["messages"][1] == reply_in_history(recording)


# --- differences --------------------------------------------------------------------------


def canonical(text, **values):
    return canonical_request(ModelRequest("m", (user_text(text),), **values), HERE)


def test_a_difference_shows_the_changed_words_with_a_few_around_them():
    words = " ".join(f"w{i}" for i in range(50))
    old, new = canonical(f"{words} France {words}"), canonical(f"{words} Spain {words}")
    assert difference(old, new) == (
        "--- recorded\n+++ now\n"
        "- … w44 w45 w46 w47 w48 w49 France w0 w1 w2 w3 w4 w5 …\n"
        "+ … w44 w45 w46 w47 w48 w49 Spain w0 w1 w2 w3 w4 w5 …"
    )


def test_a_change_inside_of_one_enormous_word_is_shown():
    """JSON and Chinese have no spaces between words."""
    before, after = "山" * 300, "水" * 300
    shown = difference(canonical(f"{before}一{after}"), canonical(f"{before}二{after}"))
    assert "山一水" in shown and "山二水" in shown
    assert len(shown) < 500

    def tools(unit):
        enum = [f"column_{i}" for i in range(40)] + [unit]
        return (ToolSpec("stat", "One.", {"type": "object", "enum": enum, "title": "t" * 300}),)

    shown = difference(canonical("a", tools=tools("grams")), canonical("a", tools=tools("pounds")))
    assert "grams" in shown and "pounds" in shown


def test_a_difference_names_where_it_is():
    old = canonical("a", system="Be brief.", tools=(ToolSpec("add", "Add.", {}),))
    new = canonical("a", system="Be long.")
    shown = difference(old, new)
    assert "- system: Be brief." in shown
    assert "+ system: Be long." in shown
    assert "- tool add:" in shown
    assert "user:" not in shown


def test_a_large_difference_is_cut():
    old = canonical("\n".join(f"old {i}" for i in range(500)))
    new = canonical("\n".join(f"new {i} " + "x" * 500 for i in range(500)))
    shown = difference(old, new)
    assert "more changed lines" in shown
    assert len(shown) < 5000


def test_a_change_in_enormous_texts_is_found_at_once():
    def told(word):
        lines = [f"line {i % 7}" for i in range(20_000)]
        lines[10_000] = f"the {word} here"
        return canonical("\n".join([word, *lines]), system=word)

    shown = difference(told("old"), told("new"))
    assert "- user: the old here\n" in shown and shown.endswith("+ user: the new here")


def test_the_nearest_request_shares_most_words():
    requests = [canonical("count the rows"), canonical("draw a plot of sales"), canonical("hello")]
    assert nearest(canonical("draw a plot of costs"), requests) is requests[1]
    assert nearest(canonical("anything"), []) is None


def test_a_title_is_short():
    assert title(canonical("Say\nhello " + "again " * 50)) == (
        "Say hello again again again again again again again again a…"
    )


def test_a_difference_shows_changed_calls_results_and_images():
    def asked(code, said, state, image):
        return canonical_request(
            ModelRequest(
                "m",
                (
                    user_text("go"),
                    Message(
                        "assistant", (ToolUseBlock("t", "python", json.dumps({"code": code})),)
                    ),
                    Message(
                        "user",
                        (
                            ToolResultBlock("t", (TextBlock(said),), state),
                            ImageBlock("image/png", image),
                        ),
                    ),
                ),
            ),
            HERE,
        )

    shown = difference(
        asked("1 + 1", "2", "success", "QQ=="), asked("1 + 2", "boom", "error", "Qg==")
    )
    for line in (
        '- assistant: calls python {"code":"1 + 1"}',
        '+ assistant: calls python {"code":"1 + 2"}',
        "- user: result success: 2",
        "+ user: result error: boom",
        "- user: image ",
    ):
        assert line in shown


def test_a_system_prompt_with_another_length_is_compared_line_by_line():
    shown = difference(canonical("a", system="one\ntwo"), canonical("a", system="one\nnew\ntwo"))
    assert shown == "--- recorded\n+++ now\n+ system: new"
