"""A saved turn is drawn by the lab extension: no kernel, keyboard only, hostile text inert."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, expect

from browser.harness import without_kernel
from op_jupyter.cli.jupyter_server import JupyterServer

MIME = "application/vnd.openprogram.turn+json"
HOSTILE = '\u202e</script><script>window.pwned=1</script><img src=x onerror="window.pwned=1">'
NOTEBOOK_7_ALWAYS_RAISES = "reading 'schema'"


def node(number: int, **values: Any) -> dict[str, Any]:
    role = {"user": "user", "model": "llm"}.get(values.get("kind", "tool"), "code")
    return {
        "id": number,
        "role": role,
        "kind": "tool",
        "name": f"step_{number}",
        "label": "",
        "status": "completed",
        "row": number,
        "lane": 0,
        "predecessor": None,
        "caller": None,
        **values,
    }


TURN = {
    "version": 1,
    "answer_markdown": "#### Two months stand out\n\n"
    "| Month | Revenue |\n|--|--|\n| 2024-03 | 182,440 |\n\n"
    f"March counts **one** order twice. {HOSTILE} ![pixel](https://example.org/leak.png)",
    "status": "completed",
    "summary": "OpenProgram: completed · 2 steps · 2 tool calls, 1 failed · 1 allowed once",
    "graph": {
        "nodes": [
            node(0, kind="user", name="user", label="Which months are outliers?"),
            node(1, kind="model", name="model", label="step 1: 2 tool calls", predecessor=0),
            node(2, name="python", label=HOSTILE, lane=1, caller=1),
            node(3, kind="function", name="review_month", label="2024-01", lane=2, caller=2),
            node(4, kind="function", name="review_month", label="2024-02", row=3, lane=2, caller=2),
            node(5, name="read_file", status="error", row=4, lane=1, caller=1, predecessor=2),
            node(6, kind="model", name="model", label="the answer", row=5, predecessor=1),
        ]
    },
    "calls": [
        {
            "name": "python",
            "arguments": "df.mean()",
            "result": HOSTILE,
            "status": "done, allowed once",
        },
        {
            "name": "read_file",
            "arguments": '{"path": "notes.md"}',
            "result": "not found",
            "status": "failed",
        },
    ],
    "plan": [
        {"text": "Sum by month", "status": "completed"},
        {"text": HOSTILE, "status": "in_progress"},
        {"text": "Explain", "status": "pending"},
    ],
}
NEWER = {"version": 99, "answer_markdown": "The answer of the **future**.", "calls": 7}
BROKEN = {"version": 1, "graph": {"nodes": [None, {"id": "x"}]}, "calls": "none", "summary": 3}


def write_notebook(path: Path, *bundles: Any) -> None:
    cells = [
        {
            "cell_type": "code",
            "id": f"c{index}",
            "metadata": {},
            "execution_count": 1,
            "source": "%%agent\nWhich months are outliers?",
            "outputs": [
                {
                    "output_type": "display_data",
                    "metadata": {},
                    "data": {MIME: bundle, "text/plain": "plain", "text/html": "<p>html</p>"},
                }
            ],
        }
        for index, bundle in enumerate(bundles)
    ]
    path.write_text(
        json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})
    )


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    """Every request that the page made."""
    return []


@pytest.fixture(scope="module")
def page(server: JupyterServer, browser: Browser, requests: list[Request]) -> Iterator[Page]:
    write_notebook(server.folder / "bundles.ipynb", TURN, NEWER, BROKEN)
    errors: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request))
    without_kernel(page, server, "bundles.ipynb")
    # Drawn one after the other, each from its answer down to its summary.
    expect(page.locator(".op-saved-turn")).to_have_count(3)
    expect(page.locator(".op-summary")).to_have_count(2)
    expect(page.locator(".op-saved-turn").nth(1)).to_contain_text("The answer of the future.")
    yield page
    page.close(run_before_unload=False)
    assert [error for error in errors if NOTEBOOK_7_ALWAYS_RAISES not in error] == []


@pytest.fixture
def turn(page: Page) -> Locator:
    return page.locator(".op-saved-turn").nth(0)


def test_answer_calls_graph_and_summary_are_drawn(turn: Locator) -> None:
    assert turn.locator(".op-answer td").all_inner_texts() == ["2024-03", "182,440"]
    assert turn.locator(".opv-calls summary b").all_inner_texts() == ["python", "read_file"]
    assert turn.locator(".opv-arg").all_inner_texts() == ["df.mean()", 'path="notes.md"']
    assert turn.locator(".op-plan summary").inner_text() == "Plan, 1 of 3"
    assert turn.locator(".op-plan li").first.inner_text().endswith("Sum by month")
    assert "done, allowed once" in turn.locator(".opv-calls .opv-state").first.inner_text()
    assert turn.locator("[role=option]").count() == 6
    assert turn.locator(".op-summary").inner_text().startswith("OpenProgram: completed")


def test_calls_open_to_arguments_and_result(turn: Locator) -> None:
    call = turn.locator(".opv-calls details").nth(1)
    call.locator("summary").click()

    assert call.locator(".opv-box").all_inner_texts() == ['{"path": "notes.md"}', "not found"]


def test_calls_of_one_loop_share_a_row_and_are_told_one_by_one(turn: Locator) -> None:
    row = turn.get_by_role("option").nth(3)
    assert row.get_attribute("aria-label") == (
        "review_month ×2 loop, all done done, function, called by python"
    )
    row.click()
    turn.get_by_role("button", name="Next call").click()

    expect(turn.locator(".opv-details")).to_contain_text("call 2 of 2")
    expect(turn.locator(".opv-details")).to_contain_text("2024-02")
    facts = turn.locator(".opv-details dt").all_inner_texts()
    assert facts == ["Role", "Status", "Caller", "Loop"]


def test_the_keyboard_alone_walks_the_graph(page: Page, turn: Locator) -> None:
    turn.get_by_role("listbox").focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")

    selected = turn.locator("[role=option][aria-selected=true]")
    expect(selected).to_have_attribute("aria-label", "read_file failed, tool, called by model")
    listbox = turn.get_by_role("listbox")
    assert listbox.get_attribute("aria-activedescendant") == selected.get_attribute("id")
    expect(turn.locator(".opv-details")).to_contain_text("failed")
    page.keyboard.press("Home")
    expect(selected).to_have_attribute("aria-posinset", "1")


def test_hostile_text_stays_text(page: Page, turn: Locator) -> None:
    assert page.evaluate("window.pwned") is None
    assert turn.locator("script, iframe, object, foreignObject, [onerror]").count() == 0
    shown = turn.locator(".opv-calls .opv-box").nth(1).text_content()
    assert shown == HOSTILE.replace("\u202e", "[U+202E]")


def test_nothing_is_fetched_for_an_image_in_an_answer(
    turn: Locator, requests: list[Request]
) -> None:
    assert "[image not loaded: pixel]" in turn.locator(".op-answer").inner_text()
    assert [request.url for request in requests if "127.0.0.1" not in request.url] == []


def test_a_newer_format_shows_the_answer_and_says_so(page: Page) -> None:
    newer = page.locator(".op-saved-turn").nth(1)

    assert "newer version (format 99" in newer.locator(".op-note").inner_text()
    assert "The answer of the future." in newer.locator(".op-answer").inner_text()
    assert newer.locator("[role=listbox]").count() == 0


def test_a_damaged_turn_draws_what_is_left(page: Page) -> None:
    assert page.locator(".op-saved-turn").nth(2).inner_text().strip() == "OpenProgram: unknown"
