"""The documentation builds without a warning, and says what is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs.pages import DOCS, PAGES, ROOT, name_of
from PIL import Image

from op_jupyter import Runtime, agentic_function, llm, session_context
from op_jupyter.engine.function import AgenticFunction
from op_jupyter.store.memory import MemoryStore
from tests.support.matrix import rows

SPHINX = (sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going")


@pytest.mark.slow
@pytest.mark.timeout(300)  # it reads every page and lesson, on a machine that may be busy
def test_the_site_builds_without_a_warning_and_has_every_page(tmp_path: Path) -> None:
    trees, html = str(tmp_path / "trees"), str(tmp_path / "html")
    built = subprocess.run(
        [*SPHINX, "-d", trees, "-b", "html", str(DOCS), html],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, built.stderr.strip()) == (0, "")
    for page in DOCS.glob("*.md"):
        assert (tmp_path / "html" / f"{page.stem}.html").exists()
    for lesson in (ROOT / "notebooks").glob("*.ipynb"):
        shown = tmp_path / "html" / "lessons" / f"{lesson.stem}.html"
        links = re.findall(r'href="([^":#]+\.(?:html|ipynb|md))"', shown.read_text("utf-8"))
        lost = [link for link in links if not (shown.parent / link).exists()]
        assert lost in ([], ["data/README.md"])  # which is not part of the site
    api = (tmp_path / "html" / "api.html").read_text(encoding="utf-8")
    import op_jupyter

    for name in op_jupyter.__all__:
        assert name.startswith("__") or f"op_jupyter.{name}" in api, f"api.md lacks {name}"


def test_every_message_of_troubleshooting_is_one_that_the_program_says() -> None:
    source = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "op_jupyter").rglob("*.py"))
    text = re.sub(r'"\s*f?r?"', "", source)  # a message that goes on in the next line of source
    headings = re.findall(r"^### `(.+)`$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    assert len(headings) > 15
    unknown = [h for h in headings if not all(part in text for part in h.split("…"))]
    assert unknown == []


def test_every_make_target_of_the_pages_is_one() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    settings = set(re.findall(r"\$\(if \$\(([A-Z]+)\)", makefile)) | {"ONLY", "PYTHON"}
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = re.findall(r"(?:`|^)make ([a-z-]+)((?: [A-Z]+=[^ `]+)*)", text, re.MULTILINE)
    assert len(named) > 10
    assert {target for target, _ in named} <= targets
    assert {word.partition("=")[0] for _, given in named for word in given.split()} <= settings


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_to_a_file_of_the_repository_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_pictures_are_light_and_the_animation_moves() -> None:
    pictures = list((DOCS / "images").iterdir())
    assert [path.name for path in pictures if path.stat().st_size > 1_000_000] == []
    with Image.open(DOCS / "images" / "demo.webp") as animation:
        assert animation.n_frames > 50


@pytest.mark.parametrize("page", ["start.md", "concepts.md", "functions.md"])
def test_the_agentic_functions_of_the_pages_can_be_called(page: str) -> None:
    code = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    shown = next(block for block in code if "@agentic_function" in block)
    function = shown[shown.index("@agentic_function") :].split("\n\n\n")[0]
    names = {"agentic_function": agentic_function, "llm": llm}
    exec(function, names)  # the repository's own documentation
    called = next(value for value in names.values() if isinstance(value, AgenticFunction))
    with session_context(store=MemoryStore(), runtime=Runtime(call=lambda content: "Bern")):
        assert called("x") == "Bern"


def test_the_modules_that_architecture_names_exist() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "op_jupyter"
    rows = re.findall(r"^\| `([a-z/]+)/` \| (.+) \|$", page, re.MULTILINE)
    named = [f"{folder}/{name}" for folder, text in rows for name in re.findall(r"`(\w+)`", text)]
    layers = "|".join(folder for folder, _ in rows if "/" not in folder)
    dotted = re.findall(rf"\b(?:{layers})(?:\.[a-z_]+)+", re.sub(r"\S+\.md", "", page))
    assert len(named) > 100 and len(dotted) > 10
    paths = [package / name.replace(".", "/") for name in (*named, *dotted)]
    assert [path for path in paths if not (path.is_dir() or path.with_suffix(".py").exists())] == []


def test_the_table_of_front_ends_has_a_row_for_each_of_the_matrix_and_their_tests_exist() -> None:
    page = (DOCS / "front-ends.md").read_text(encoding="utf-8")
    for row in rows():
        assert f"| {' | '.join(row.key)} | " in page
        for test in row.tests:
            file, _, function = test.partition("::")
            assert f"def {function}" in (ROOT / file).read_text(encoding="utf-8")
