"""What every test shares."""

from __future__ import annotations

import hypothesis
import pytest

# No deadline: on a busy machine a slow example says nothing about the code.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.load_profile("default")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browsers come last: while Playwright runs, the main thread has a running event loop."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)
