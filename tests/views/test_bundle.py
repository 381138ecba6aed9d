"""The widget is one self-contained module, and its parts are modules of their own."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from views.twins import STATIC

from op_jupyter.views.bundle import PARTS, css, esm
from op_jupyter.views.icons import ICONS


def test_every_part_is_in_the_module_after_what_it_imports() -> None:
    assert sorted(PARTS) == sorted(path.stem for path in STATIC.glob("*.js"))
    for index, part in enumerate(PARTS):
        source = (STATIC / f"{part}.js").read_text("utf-8")
        imported = re.findall(r'from "\./(\w+)\.js";', source)
        assert set(imported) <= set(PARTS[:index]), part


def test_the_module_imports_nothing_and_exports_its_render_function() -> None:
    assert not re.search(r"^\s*import\b", esm(), re.MULTILINE)
    assert re.findall(r"^export .*", esm(), re.MULTILINE) == ["export default { render };"]


def test_nothing_is_fetched_from_elsewhere_and_no_html_is_parsed() -> None:
    code = esm()
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "fetch(",
    ):
        assert word not in code
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)[\w.]", code)
    assert "url(" not in css()
    assert "@import" not in css()


def test_the_module_parses(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; the browser tests load the module")
    module = tmp_path / "view.mjs"
    module.write_text(esm(), "utf-8")
    checked = subprocess.run([node, "--check", str(module)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_the_saved_graph_has_the_icons_of_the_live_one() -> None:
    source = re.sub(r"\s+", " ", (STATIC / "icons.js").read_text("utf-8"))
    for name, specs in ICONS.items():
        (block,) = re.findall(rf"\b{name}: \[(.*?)\],", source)
        assert re.findall(r'"([^"]+)"', block) == list(specs), name
