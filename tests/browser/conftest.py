"""One browser, and for each front end one server, for all tests of this folder.

In each module they share one open notebook for each kernel, until a test fails.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from browser.harness import CHROMIUM, Desk, Pages, condition, served
from op_jupyter.cli.jupyter_server import App, JupyterServer
from op_jupyter.cli.notebook_page import running_browser
from op_jupyter.testing.fake_messages import FakeMessages


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(240))


expect.set_options(timeout=30_000)

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


# For this folder, a package for that reason, and not for the whole session: while Playwright runs,
# the main thread has a running event loop, and tests elsewhere start loops of their own.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: python3 tests/support/prepare.py chromium")
    with running_browser() as running:
        yield running


@pytest.fixture(scope="package")
def service() -> Iterator[FakeMessages]:
    with FakeMessages() as running:
        yield running


@pytest.fixture(scope="package", params=["lab", "notebook"])
def server(
    request: pytest.FixtureRequest,
    browser: Browser,
    service: FakeMessages,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[JupyterServer]:
    app: App = request.param
    with served(tmp_path_factory.mktemp(app), app, service) as running:
        yield running


@pytest.fixture(scope="module")
def pages(server: JupyterServer, browser: Browser) -> Iterator[Pages]:
    """Open notebooks that scenarios share: to open one takes longer than most of them."""
    shared = Pages(browser, server)
    yield shared
    shared.close()


@pytest.fixture
def borrowed(request: pytest.FixtureRequest, pages: Pages) -> Iterator[Pages]:
    """Those pages for one test, which fails if they raised errors."""
    yield pages
    assert pages.give_back(failed=request.node.stash.get(FAILED, False)) == []


@pytest.fixture(scope="package")
def pictures(request: pytest.FixtureRequest) -> Path:
    """Where pictures are kept: `.pytest_cache/d/pictures`."""
    return Path(str(request.config.cache.mkdir("pictures")))  # type: ignore[union-attr]


@pytest.fixture
def desk(
    request: pytest.FixtureRequest,
    pictures: Path,
    server: JupyterServer,
    browser: Browser,
    service: FakeMessages,
    borrowed: Pages,
) -> Iterator[Desk]:
    """A place for one scenario; pictures of its end are kept."""
    service.reset()
    desk = Desk(server, browser, service, pictures, borrowed)
    yield desk
    name = re.sub(r"\W+", "-", request.node.name).strip("-")
    for page in borrowed.taken:
        page.screenshot(pictures / f"{name}.png")
        if request.node.stash.get(FAILED, False):
            sys.stdout.write(condition(page))  # pytest shows it below the failure
