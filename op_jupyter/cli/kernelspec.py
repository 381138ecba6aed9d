"""`op-jupyter kernel install`: make this environment's kernel known to Jupyter."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from jupyter_client.kernelspec import NATIVE_KERNEL_NAME, KernelSpecManager

import op_jupyter
from op_jupyter.errors import ConfigurationError

NAME: Final = "openprogram"
SPEC: Final = Path(op_jupyter.__file__).parent / "kernel" / "spec"


def install(prefix: Path | None = None) -> Path:
    """Install the kernelspec for the user, or into *prefix*, and return its folder.

    It names this interpreter, so that a server of another environment starts the right one.

    Raises:
        ConfigurationError: the folder cannot be written.
    """
    spec = json.loads((SPEC / "kernel.json").read_text(encoding="utf-8"))
    spec["argv"][0] = sys.executable
    # What the ipykernel of this interpreter is capable of, among it that its channels can be
    # encrypted: a server that insists on that starts no kernel whose spec does not say so.
    native = KernelSpecManager(kernel_dirs=[]).get_kernel_spec(NATIVE_KERNEL_NAME)
    spec["metadata"] = {**native.metadata, **spec["metadata"]}
    with tempfile.TemporaryDirectory() as source:
        (Path(source) / "kernel.json").write_text(json.dumps(spec, indent=2), encoding="utf-8")
        try:
            folder = KernelSpecManager().install_kernel_spec(
                source, NAME, user=prefix is None, prefix=None if prefix is None else str(prefix)
            )
        except OSError as error:
            raise ConfigurationError(f"the kernel cannot be installed: {error}") from error
    return Path(folder)
