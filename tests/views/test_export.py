"""A whole session as Markdown, as a page and as a notebook, hostile text included."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import nbformat
import pytest
from markdown_it import MarkdownIt

from op_jupyter.core.attempts import attempts_of, messages_of
from op_jupyter.core.graph import Dag
from op_jupyter.core.nodes import Node, Turn
from op_jupyter.store.memory import MemoryStore
from op_jupyter.views.export import to_html, to_markdown, to_notebook
from op_jupyter.views.static_html import MIME_TYPE

EVIL = (
    "</div></section><script>alert(1)</script><img src=x onerror=alert(1)>"
    "![x](http://evil.example/p.png) [l](javascript:alert(1)) ````\n```\n<style>*{}</style>"
    "\n<!-- \x1b[31m \u202e"
)


def session(prompt: str, answer: str, *, title: str = "A title") -> Dag:
    store = MemoryStore()
    opened = store.open(store.create_session("s", title=title))
    about = {"turn_id": "t"}
    opened.begin_turn(Turn("t", subject=prompt[:100]))
    asked = [{"type": "text", "text": prompt}]
    opened.append(Node("u", "user", "user", asked, status="completed", metadata=about))
    said = {"role": "assistant", "content": [{"type": "text", "text": answer}]}
    opened.append(
        Node("m", "llm", "model", output=said, status="completed", predecessor="u", metadata=about)
    )
    result = {"state": "succeeded", "content": [{"type": "text", "text": prompt}]}
    kind = {"kind": "tool", "tool_call_id": "c", **about}
    opened.append(
        Node("c", "code", "python", {"code": prompt}, result, "completed", "m", metadata=kind)
    )
    opened.end_turn("t", "completed", metadata={"answer": "m", "steps": 2})
    opened.begin_turn(Turn("f", subject="failing", base="m"))
    opened.end_turn("f", "failed", failure={"code": "model_error", "message": prompt})
    return opened.dag


class Tags(HTMLParser):
    """Every tag and attribute of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_a_page_shows_the_session_and_hostile_text_is_inert() -> None:
    page = to_html(session(EVIL, EVIL, title=EVIL))
    seen = Tags(page)

    assert not {"script", "img", "iframe", "object", "link", "base", "form"} & set(seen.tags)
    assert seen.tags.count("style") == 1
    assert [name for name, _ in seen.attributes if name.startswith("on")] == []
    addresses = [value for name, value in seen.attributes if name in ("src", "href")]
    assert addresses == []
    assert "default-src 'none'" in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "alert(1)" in page  # as text


def test_a_page_reads_as_what_happened() -> None:
    page = to_html(session("Plot the penguins", "**Done**, see [there](https://example.com)."))

    for text in ("A title", "Plot the penguins", "<strong>Done</strong>", "python", "2 turns",
                 "OpenProgram: completed · 2 steps · 1 tool call"):  # fmt: skip
        assert text in page
    assert 'href="https://example.com"' in page


def test_markdown_shows_the_session_and_hostile_text_is_inert() -> None:
    text = to_markdown(session(EVIL, EVIL, title=EVIL))
    rendered = MarkdownIt("commonmark", {"html": True}).render(text)
    seen = Tags(rendered)

    assert not {"script", "img", "style", "iframe"} & set(seen.tags)
    plain = to_markdown(session("Plot it", "**Done**\n```python\nif a < b: pass\n```"))
    assert plain.startswith("# A title\n")
    assert "```text\nPlot it\n```" in plain
    assert "if a < b: pass" in plain
    assert re.search(r"^## 1\. Plot it$", plain, re.MULTILINE)


@pytest.mark.parametrize("prompt", ["Plot the penguins", EVIL])
def test_a_notebook_opens_and_shows_the_turns(prompt: str) -> None:
    notebook = nbformat.reads(to_notebook(session(prompt, "Done")), as_version=4)

    nbformat.validate(notebook)
    title, load, first, failed = notebook.cells
    assert title.cell_type == "markdown"
    assert load.source == "%load_ext openprogram"
    assert first.source.startswith("%%agent\n")
    (output,) = first.outputs
    assert set(output.data) == {"text/plain", "text/html", MIME_TYPE}
    assert output.data["text/plain"].startswith("Done")
    assert "<script" not in output.data["text/html"]
    assert failed.outputs[0].data[MIME_TYPE]["status"] == "failed"


NONSENSE = [[], {}, 7, {"type": ["x"]}, [{"type": "text"}, 3, None], "text", [["a"]]]


@pytest.mark.parametrize("value", NONSENSE)
def test_a_session_of_nonsense_is_exported_all_the_same(value: object) -> None:
    store = MemoryStore()
    opened = store.open(store.create_session("s", title=value, created_at=value))
    about = {"turn_id": "t", "skills": value, "label": value, "permission": {"answer": value}}
    opened.begin_turn(Turn("t", metadata={"steps": value}))
    opened.append(Node("u", "user", "user", value, status="completed", metadata=about))
    tool = {"kind": "tool", "tool_call_id": value, "error": value, "files": value, **about}
    for name, given in (("update_plan", {"steps": [value, {"text": value, "status": value}]}),
                        ("x", value)):  # fmt: skip
        output = {"state": value, "content": value}
        opened.append(Node(name, "code", name, given, output, "error", "u", metadata=tool))
    opened.end_turn("t", "failed", failure={"code": value, "message": value})
    opened.begin_turn(Turn("running", metadata={"answer": value}))

    for write in (to_html, to_markdown, to_notebook):
        assert write(opened.dag)
    assert list(messages_of(opened.dag))
    assert attempts_of(opened.dag)
