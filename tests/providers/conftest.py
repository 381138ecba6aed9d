"""The fake Messages service, once a test."""

from __future__ import annotations

import pytest

from op_jupyter.testing.fake_messages import FakeMessages


@pytest.fixture
def fake():
    with FakeMessages() as service:
        yield service
