"""A model's Markdown as HTML that does nothing but show it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from op_jupyter.views.text import visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererProtocol
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict

_TAGS: Final = frozenset(
    (
        *("p", "br", "hr", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote"),
        *("pre", "code", "strong", "em", "s", "a", "span"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    )
)
_ATTRIBUTES: Final = {
    "a": {"href", "title"},
    "ol": {"start"},
    "th": {"align"},
    "td": {"align"},
}
_WEB: Final = re.compile(r"https?://", re.IGNORECASE)
_ALIGN: Final = re.compile(r"text-align:(left|right|center)")
_HEADING: Final = re.compile(r"h([1-6])")


def to_html(source: str) -> str:
    """*source* rendered and sanitised: links to the web only, no images, no HTML of its own."""
    import nh3

    html: str = _parser().render(visible(source))
    return nh3.clean(
        html,
        tags=set(_TAGS),
        attributes={tag: set(names) for tag, names in _ATTRIBUTES.items()},
        url_schemes={"http", "https"},
        link_rel="noopener noreferrer",
    )


@cache
def _parser() -> MarkdownIt:
    """Built on first use: loading the library costs more than rendering."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.validateLink = lambda url: bool(_WEB.match(url))  # type: ignore[method-assign]
    parser.core.ruler.push("plain_attributes", _plain_attributes)
    parser.add_render_rule("image", _image)
    return parser


def _plain_attributes(state: Any) -> None:
    """Alignment as an attribute, and the first heading right below those of the notebook itself."""
    top = None
    for token in state.tokens:
        style = _ALIGN.search(str(token.attrs.pop("style", "")))
        if style:
            token.attrs["align"] = style.group(1)
        if level := _HEADING.fullmatch(token.tag):
            # One inside a quote or a list says nothing of the others.
            if top is None and token.level == 0:
                top = int(level.group(1))
            token.tag = f"h{min(6, max(3, int(level.group(1)) - (top or 1) + 3))}"


def _image(
    _renderer: RendererProtocol,
    tokens: Sequence[Token],
    index: int,
    _options: OptionsDict,
    _env: EnvType,
) -> str:
    """Name the image: fetching it would tell its address what was read, and when."""
    from markdown_it.common.utils import escapeHtml

    return f"<span>[image: {escapeHtml(tokens[index].content) or 'no description'}]</span>"
