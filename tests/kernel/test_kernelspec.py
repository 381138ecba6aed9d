"""The kernel "Python 3 (OpenProgram)": ipykernel with the extension there before the first cell.

What any Jupyter kernel has to do is checked by Jupyter's own suite, in the same kernel.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import jupyter_kernel_test
import pytest
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from op_jupyter.cli.main import main


class TestKernel(jupyter_kernel_test.KernelTests):
    """Jupyter's suite for kernels, and what ours has to show beyond it."""

    kernel_name = "openprogram"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [
        {"text": "zi", "matches": {"zip"}},
        {"text": "%agent sta"},
    ]
    complete_code_samples = ["1", "print('hi')", "def f(x):\n  return x*2\n\n", "%agent status"]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2", "for i in 1,:"]
    invalid_code_samples = ["import = 7q", "a b c"]
    code_page_something = "zip?"
    code_generate_error = "raise ValueError('no')"
    code_execute_result = [{"code": "1+2+3", "result": "6"}]
    code_display_data = [
        {
            "code": "from IPython.display import HTML, display; display(HTML('<b>hi</b>'))",
            "mime": "text/html",
        },
    ]
    code_history_pattern = "1?2*"
    # IPython calls the session that runs 0 in a range, so that the suite finds it nowhere.
    supported_history_operations = ("tail", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.mkdtemp()
        env = {
            **os.environ,
            "HOME": cls.folder,
            "OPENPROGRAM_HOME": f"{cls.folder}/sessions",
            "OPENPROGRAM_CONFIG": os.devnull,
        }
        cls.km = KernelManager(kernel_name=cls.kernel_name)
        cls.km.start_kernel(env=env, cwd=cls.folder)
        cls.kc = cls.km.blocking_client()
        cls.kc.start_channels()
        cls.kc.wait_for_ready(timeout=60)
        # The first cell opens the line to the lab extension, and the suite knows no comms.
        cls.kc.execute_interactive("pass", timeout=30, output_hook=lambda _: None)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.kc.stop_channels()
        cls.km.shutdown_kernel(now=True)
        cls.km.cleanup_resources()
        shutil.rmtree(cls.folder)

    def value_of(self, expression: str) -> str:
        """The repr of *expression* in the kernel."""
        reply = self.kc.execute_interactive(
            "", user_expressions={"value": expression}, timeout=30, output_hook=lambda _: None
        )
        value = reply["content"]["user_expressions"]["value"]
        assert value["status"] == "ok", value
        return str(value["data"]["text/plain"])

    def test_the_magics_are_there_before_the_first_cell(self) -> None:
        assert self.value_of("get_ipython().find_cell_magic('agent') is not None") == "True"
        assert self.value_of("get_ipython().find_line_magic('agent') is not None") == "True"

    def test_loading_the_extension_once_more_is_harmless(self) -> None:
        reply = self.kc.execute_interactive(
            "%load_ext openprogram", timeout=30, output_hook=lambda _: None
        )
        assert reply["content"]["status"] == "ok"
        assert self.value_of("get_ipython().find_cell_magic('agent') is not None") == "True"


def test_an_installation_offers_it_by_its_name() -> None:
    spec = KernelSpecManager().get_kernel_spec("openprogram")

    assert spec.display_name == "Python 3 (OpenProgram)"
    assert Path(spec.resource_dir).parts[-3:] == ("jupyter", "kernels", "openprogram")


def test_it_can_be_installed_for_a_server_of_another_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kernel", "install", "--prefix", str(tmp_path)]) == 0

    folder = tmp_path / "share" / "jupyter" / "kernels" / "openprogram"
    spec = json.loads((folder / "kernel.json").read_text())
    assert spec["argv"] == [sys.executable, "-m", "op_jupyter.kernel", "-f", "{connection_file}"]
    # A server may insist on what only the spec of a kernel can tell it.
    assert spec["metadata"] == {**get_kernel_dict()["metadata"], "debugger": True}
    assert str(folder) in capsys.readouterr().out
