"""The widget is one self-contained module, and its parts are modules of their own."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from views.twins import STATIC

from op_jupyter.views.bundle import PARTS, QUESTION_PARTS, css, esm, question_esm
from op_jupyter.views.icons import ICONS


def test_every_part_is_in_the_module_after_what_it_imports() -> None:
    known = {*PARTS, *QUESTION_PARTS}
    assert sorted(known) == sorted(path.stem for path in STATIC.glob("*.js"))
    for parts in (PARTS, QUESTION_PARTS):
        for index, part in enumerate(parts):
            source = (STATIC / f"{part}.js").read_text("utf-8")
            imported = re.findall(r'from "\./(\w+)\.js";', source)
            assert set(imported) <= set(parts[:index]), part


@pytest.mark.parametrize("module", [esm, question_esm])
def test_the_module_imports_nothing_and_exports_its_render_function(module) -> None:
    assert not re.search(r"^\s*import\b", module(), re.MULTILINE)
    assert re.findall(r"^export .*", module(), re.MULTILINE) == ["export default { render };"]


def test_nothing_is_fetched_from_elsewhere_and_no_html_is_parsed() -> None:
    code = esm() + question_esm()
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


@pytest.mark.parametrize("part", [esm, question_esm])
def test_the_module_parses(tmp_path: Path, part) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; the browser tests load the module")
    module = tmp_path / "view.mjs"
    module.write_text(part(), "utf-8")
    checked = subprocess.run([node, "--check", str(module)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_the_saved_graph_has_the_icons_of_the_live_one() -> None:
    source = re.sub(r"\s+", " ", (STATIC / "icons.js").read_text("utf-8"))
    for name, specs in ICONS.items():
        (block,) = re.findall(rf"\b{name}: \[(.*?)\],", source)
        assert re.findall(r'"([^"]+)"', block) == list(specs), name
