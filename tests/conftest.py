"""What every test shares."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

# No deadline: on a busy machine a slow example says nothing about the code.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.load_profile("default")

HERE = Path(__file__).parent
BUSY = {
    "browser": "browser",
    "notebooks": "busy",
    "views": "busy",
    "local": "busy",
}
"""The group of tests by a word in the name of their folder or file, the longest one first."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: kernels, pages and disks are waited for a quarter of the
    time."""
    return min(4, (os.cpu_count() or 1) + 1)


def pytest_itemcollected(item: pytest.Item) -> None:
    """What may run beside what, in a run with several workers (``--dist loadgroup``)."""
    item.add_marker(pytest.mark.xdist_group(_group(item)))


def _group(item: pytest.Item) -> str:
    """A file's tests share its fixtures, so they stay together; or those of it with one kernel.

    Of what keeps two cores busy by itself, with a browser or the embedded model, no more than
    two run at a time.
    """
    path = item.path.relative_to(HERE)
    for name in (path.parts[0], path.stem):
        for word, group in BUSY.items():
            if word in name:
                return group
    call = getattr(item, "callspec", None)
    if call is not None and "ipykernel" in call.params:
        return f"{path} {call.params['ipykernel']}"
    return str(path)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Browsers come last: while Playwright runs, the main thread has a running event loop.

    With several workers the longest pieces of work come first, one for each of them.
    """
    several = hasattr(config, "workerinput")
    first = list(dict.fromkeys(BUSY.values())) if several else []

    def order(item: pytest.Item) -> tuple[int, bool]:
        group = _group(item)
        place = first.index(group) if group in first else len(first)
        return place, item.get_closest_marker("browser") is not None

    items.sort(key=order)
