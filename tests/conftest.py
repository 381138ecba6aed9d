"""What every test shares."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

# No deadline: on a busy machine a slow example says nothing about the code.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.load_profile("default")

HERE = Path(__file__).parent
BUSY = ("browser", "notebooks", "views", "local")


def pytest_itemcollected(item: pytest.Item) -> None:
    """What may run beside what, in a run with several workers (``--dist loadgroup``)."""
    item.add_marker(pytest.mark.xdist_group(_group(item)))


def _group(item: pytest.Item) -> str:
    """A file's tests share its fixtures, so they stay together; or those of it with one kernel.

    What needs a browser or the embedded model keeps two cores busy by itself.
    """
    path = item.path.relative_to(HERE)
    if any(word in name for word in BUSY for name in (path.parts[0], path.stem)):
        return "busy"
    call = getattr(item, "callspec", None)
    if call is not None and "ipykernel" in call.params:
        return f"{path} {call.params['ipykernel']}"
    return str(path)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Browsers come last: while Playwright runs, the main thread has a running event loop.

    With several workers they come first, in the longest piece of work there is for one of them.
    """
    several = hasattr(config, "workerinput")
    items.sort(
        key=lambda item: (
            several and _group(item) != "busy",
            item.get_closest_marker("browser") is not None,
        )
    )
