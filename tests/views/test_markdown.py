"""Markdown as sanitised HTML, for saved files."""

import pytest

from op_jupyter.views.markdown import to_html


def test_what_models_write_is_rendered() -> None:
    html = to_html("# Title\n\n**bold** `code` ~~old~~\n\n- one\n\n1. two\n\n```py\nx < 1\n```")
    for part in ("<h3>Title</h3>", "<strong>bold</strong>", "<code>code</code>", "<s>old</s>"):
        assert part in html
    assert "<li>one</li>" in html
    assert "x &lt; 1" in html


def test_columns_keep_their_alignment_without_a_style() -> None:
    html = to_html("| a | b |\n|---|--:|\n| 1 | 2 |")
    assert '<td align="right">2</td>' in html
    assert "style" not in html


def test_links_lead_to_the_web_only() -> None:
    html = to_html("[a](https://example.org/x) [b](javascript:x) [c](file:///etc) [d](/local)")
    assert html.count("<a ") == 1
    assert 'href="https://example.org/x"' in html
    assert 'rel="noopener noreferrer"' in html


def test_images_are_named_and_never_fetched() -> None:
    html = to_html('![the "plot"](https://example.org/p.png) ![](http://example.org/q.png)')
    assert "<img" not in html
    assert "example.org" not in html
    assert "[image: the" in html
    assert "[image: no description]" in html


@pytest.mark.parametrize("source", ["<b>x</b>", "<!-- c -->", "<div\nonclick=1>"])
def test_html_in_the_text_stays_text(source: str) -> None:
    assert "&lt;" in to_html(source)
