"""The site: ``make docs`` builds it, and every warning is an error."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from op_jupyter import __version__  # noqa: E402

project = "op-jupyter"
author = "the op-jupyter authors"
copyright = author  # noqa: A001 -- Sphinx wants the name
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"op-jupyter {__version__}"
html_extra_path = ["_build/lessons"]  # the lessons, as a notebook without a kernel shows them

myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
copybutton_exclude = ".linenos, .gp, .go"


def lessons() -> list[Path]:
    """The notebooks in the order in which to read them."""
    return sorted(
        (ROOT / "notebooks").glob("*.ipynb"), key=lambda n: (n.stem != "quickstart", n.stem)
    )


def render_lessons() -> None:
    """Draw the notebooks as pages, and a list of them for ``lessons.md``; nothing is executed."""
    import nbformat
    from nbconvert import HTMLExporter

    target = Path(__file__).parent / "_build" / "lessons" / "lessons"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    exporter = HTMLExporter(template_name="lab")
    lines = []
    for path in lessons():
        notebook = nbformat.read(path, as_version=4)
        page, _ = exporter.from_notebook_node(notebook)
        (target / f"{path.stem}.html").write_text(_linked(page), encoding="utf-8")
        title, about = _introduced(notebook)
        lines.append(f'- <a href="lessons/{path.stem}.html">{title}</a>: {about}')
    (target.parent.parent / "lessons.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _linked(page: str) -> str:
    """*page* with its links to other lessons and to the docs leading to pages of the site."""
    page = re.sub(r'href="\.\./docs/([\w-]+)\.md"', r'href="../\1.html"', page)
    return re.sub(r'href="([\w-]+)\.ipynb"', r'href="\1.html"', page)


def _introduced(notebook: Any) -> tuple[str, str]:
    """The title of a lesson, and the sentence after it."""
    first = next(c.source for c in notebook.cells if c.cell_type == "markdown")
    title, _, rest = first.strip().partition("\n")
    sentence = " ".join(rest.split("\n\n")[1 if rest.startswith("\n\n") else 0].split())
    return title.lstrip("# "), sentence.split(". ")[0].rstrip(".") + "."


render_lessons()
