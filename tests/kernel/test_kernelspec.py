"""The kernel "Python 3 (OpenProgram)": ipykernel with the extension there before the first cell."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingKernelClient]:
    """A client of the kernel that an installation of this project offers."""
    folder = tmp_path_factory.mktemp("kernelspec")
    env = {**os.environ, "OPENPROGRAM_HOME": str(folder / "sessions"), "HOME": str(folder)}
    manager = KernelManager(kernel_name="openprogram")
    manager.start_kernel(env=env, cwd=str(folder))
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    manager.cleanup_resources()


def value_of(client: BlockingKernelClient, expression: str) -> str:
    """The repr of *expression* in the kernel."""
    reply = client.execute_interactive(
        "", user_expressions={"value": expression}, timeout=30, output_hook=lambda message: None
    )
    value = reply["content"]["user_expressions"]["value"]
    assert value["status"] == "ok", value
    return str(value["data"]["text/plain"])


def test_an_installation_offers_it_by_its_name() -> None:
    spec = KernelSpecManager().get_kernel_spec("openprogram")

    assert spec.display_name == "Python 3 (OpenProgram)"
    assert Path(spec.resource_dir).parts[-3:] == ("jupyter", "kernels", "openprogram")


def test_the_magics_are_there_before_the_first_cell(client: BlockingKernelClient) -> None:
    assert value_of(client, "get_ipython().find_cell_magic('agent') is not None") == "True"
    assert value_of(client, "get_ipython().find_line_magic('agent') is not None") == "True"


def test_loading_the_extension_once_more_is_harmless(client: BlockingKernelClient) -> None:
    reply = client.execute_interactive(
        "%load_ext openprogram", timeout=30, output_hook=lambda message: None
    )

    assert reply["content"]["status"] == "ok"
    assert value_of(client, "get_ipython().find_cell_magic('agent') is not None") == "True"
