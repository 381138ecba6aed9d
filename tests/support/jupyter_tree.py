"""This tree's lab extension and server extension, in front of what is installed.

Editable installs copy the built lab extension, and tests have to see what was built last.
"""

import json
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LABEXTENSION = ROOT / "op_jupyter" / "labextension"
NAME = "op-jupyter-labextension"


def tree_environment(folder: Path, *more_data: Path) -> dict[str, str]:
    """Variables for a Jupyter process; links are made in *folder*.

    *more_data*: other folders of Jupyter data, searched after the tree's own.
    """
    data, config = folder / "share" / "jupyter", folder / "etc" / "jupyter"
    (data / "labextensions").mkdir(parents=True, exist_ok=True)
    config.mkdir(parents=True, exist_ok=True)
    _link(data / "labextensions" / NAME, LABEXTENSION)
    _link(config / "jupyter_server_config.d", ROOT / "op_jupyter" / "server" / "config")
    (config / "labconfig").mkdir(exist_ok=True)
    # A page would have the server start Node, to look whether JupyterLab itself has to be built.
    (config / "labconfig" / "page_config.json").write_text(json.dumps({"buildCheck": False}))
    return {
        "JUPYTER_PATH": os.pathsep.join(map(str, (data, *more_data))),
        "JUPYTER_CONFIG_PATH": str(config),
        "PYTHONPATH": str(ROOT),
    }


def _link(link: Path, target: Path) -> None:
    if not link.is_symlink():
        link.symlink_to(target)
