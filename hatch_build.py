"""Build hook: compile the lab extension when it is missing, and ship it as shared data.

A clone without Node still builds: the wheel then lacks the lab extension, and one line says so.
The stock `jupyter-builder` hook stops with an error there.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "op-jupyter-labextension"
SHARED = f"share/jupyter/labextensions/{NAME}"


class LabExtensionHook(BuildHookInterface[Any]):
    """Provide `op_jupyter/labextension` to the sdist and to both kinds of wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build if nothing is there; an sdist carries built files, so it needs no Node."""
        root = Path(self.root)
        built = root / "op_jupyter" / "labextension"
        if not (built / "package.json").exists() and not self._build(root / "labextension"):
            return
        if self.target_name == "wheel":
            build_data["shared_data"][str(built)] = SHARED
            build_data["shared_data"][str(root / "labextension" / "install.json")] = (
                f"{SHARED}/install.json"
            )

    def _build(self, source: Path) -> bool:
        npm = shutil.which("npm")
        if npm is None:
            self.app.display_warning(
                f"op-jupyter: npm was not found, so this {self.target_name} is built WITHOUT the "
                "lab extension (everything else works; install Node and build again to add it)"
            )
            return False
        subprocess.run([npm, "install"], cwd=source, check=True)
        subprocess.run([npm, "run", "build"], cwd=source, check=True)
        return True
