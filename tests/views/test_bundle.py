"""The widget is one self-contained module, and its parts are modules of their own."""

import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest
from views.twins import STATIC

from op_jupyter.views.bundle import PARTS, QUESTION_PARTS, css, esm, loader, question_esm
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


def test_a_page_loads_the_module_once_for_all_widgets(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; benchmarks/test_page.py tells when modules pile up")
    source = "globalThis.loads = (globalThis.loads ?? 0) + 1;\nexport default { render: (x) => x };"
    for number in (1, 2):
        (tmp_path / f"{number}.mjs").write_text(loader(source), "utf-8")
    program = f"""
      URL.createObjectURL = () => {"data:text/javascript," + quote(source)!r};
      const draw = async (name, traits) => {{
        const model = {{ get: (trait) => traits[trait], set: (trait, to) => (traits[trait] = to) }};
        const el = {{ textContent: name }};
        const drawn = await (await import(name)).default.render({{ model, el }});
        console.log(drawn?.el === el, globalThis.loads, el.textContent, `[${{traits.source}}]`);
      }};
      await draw("./1.mjs", {{ source: "", state: {{ answer: "saved" }} }});
      await draw("./1.mjs", {{ source: "as the kernel sent it" }});
      await draw("./2.mjs", {{ source: "as the kernel sent it" }});"""
    (tmp_path / "page.mjs").write_text(program, "utf-8")
    run = [node, str(tmp_path / "page.mjs")]
    told = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path)
    assert told.stdout.splitlines() == [
        "false undefined saved []",  # in a page without a kernel
        "true 1 ./1.mjs []",
        "true 1 ./2.mjs []",  # a module of its own, which loads nothing more
    ], told.stderr


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
