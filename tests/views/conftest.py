"""Browsers and a JavaScript engine for the tests of the views."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from views.harness import CHROMIUM_ARGS, ViewPage
from views.twins import Twins, chromium_twins, node_twins

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium; gone with its tests, as its event loop is in the way of others."""
    if not Path(CHROMIUM).exists():
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def shared_page(browser: Any) -> Iterator[Any]:
    """A page to be used again: opening one costs more than most tests do."""
    page = browser.new_page(viewport={"width": 880, "height": 900})
    yield page
    page.close()


@pytest.fixture
def open_view(browser: Any, shared_page: Any) -> Iterator[Callable[..., ViewPage]]:
    """Opens pages with one view in each; at the end none may have complained.

    The first one is the shared page, emptied, unless *alone*: a test that changes more than that.
    """
    opened: list[ViewPage] = []

    def open_one(theme: str = "light", *, alone: bool = False) -> ViewPage:
        is_first = not opened and not alone
        page = shared_page if is_first else browser.new_page(viewport=shared_page.viewport_size)
        opened.append(ViewPage(page, theme))
        return opened[-1]

    yield open_one
    problems = [problem for view in opened for problem in view.problems]
    for view in opened:
        view.leave()
        if view.page is not shared_page:
            view.page.close()
    assert problems == []


@pytest.fixture(scope="module")
def twins(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Twins]:
    """The JavaScript twins of our Python, in Node where it is installed, else in Chromium."""
    node = shutil.which("node")
    if node is None:
        yield chromium_twins(request.getfixturevalue("browser"))
        return
    with node_twins(node, tmp_path_factory.mktemp("twins")) as running:
        yield running
