"""Kernels for tests: one environment for each ipykernel that behaves differently."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernel.harness import IPYKERNELS, Kernel, Kernels, interpreter

from op_jupyter.testing.fake_messages import API_KEY, FakeMessages


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.kernel)


@pytest.fixture(params=IPYKERNELS)
def ipykernel(request: pytest.FixtureRequest) -> str:
    """The version of the kernel under test."""
    version = str(request.param)
    if not interpreter(version).exists():
        pytest.skip(
            f"no environment for ipykernel {version}: python3 tests/support/prepare.py kernels"
        )
    return version


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernels]:
    """Kernels that tests share: a new one for each would take most of their time."""
    shared = Kernels(tmp_path_factory.mktemp("kernels"))
    yield shared
    shared.shutdown()


@pytest.fixture
def kernel(ipykernel: str, tmp_path: Path, kernels: Kernels) -> Kernel:
    """A running kernel whose home and sessions are in a folder of the test."""
    env = {"OPENPROGRAM_HOME": str(tmp_path / "sessions"), "HOME": str(tmp_path)}
    return kernels.take(ipykernel, env, tmp_path)


@pytest.fixture
def fake() -> Iterator[FakeMessages]:
    """A Messages service on loopback."""
    with FakeMessages() as service:
        yield service


@pytest.fixture
def notebook(ipykernel: str, tmp_path: Path, fake: FakeMessages, kernels: Kernels) -> Kernel:
    """A running kernel with the extension loaded, whose model is `fake`."""
    env = {
        "HOME": str(tmp_path),
        "ANTHROPIC_BASE_URL": fake.url,
        "ANTHROPIC_API_KEY": API_KEY,
        "OPENPROGRAM_HOME": str(tmp_path / "sessions"),
        "OPENPROGRAM_CONFIG": os.devnull,
        "JPY_SESSION_NAME": str(tmp_path / "lesson.ipynb"),
    }
    running = kernels.take(ipykernel, env, tmp_path)
    running.run("%load_ext op_jupyter", allow_stdin=True)
    return running
