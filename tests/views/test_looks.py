"""What a person sees, in every theme: nothing too pale, nothing that axe-core would complain about.

A picture of each scene is kept in pytest's cache, to be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import nh3
import pytest
from views import stories
from views.harness import QuestionPage, ViewPage, page_html
from views.looks import poor_contrasts, violations
from views.stories import Story

from op_jupyter.core.questions import Question, fields_of
from op_jupyter.views.model import TurnModel
from op_jupyter.views.question_view import question_bundle
from op_jupyter.views.static_html import static_bundle

pytestmark = pytest.mark.browser
Wire = dict[str, Any]
THEMES: Final = ("light", "dark", "none")


def state_of(story: Story) -> Wire:
    model = TurnModel()
    for envelope in story.updates:
        model.apply(envelope)
    return model.to_json()


class Studio:
    """Shows one scene after the other in the shared page."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.theme = "light"
        self._left: list[ViewPage] = []

    def view(self, story: Story, **more: Any) -> Any:
        view = ViewPage(self.page, self.theme)
        self._left.append(view)
        view.load(state_of(story), details=True, actions=list(stories.ACTIONS), **more)
        return self.page

    def question(self, **values: Any) -> Any:
        asked = Question(**{"id": "q", "session_id": "s", "turn_id": "t", **values})
        self._left.append(QuestionPage(self.page, asked.to_json(), self.theme))
        return self.page

    def saved(self, html: str) -> Any:
        self.page.goto("about:blank")
        self.page.set_content(page_html(self.theme, html))
        return self.page

    def leave(self) -> list[str]:
        for view in self._left:
            view.leave()
        return [problem for view in self._left for problem in view.problems]


def running(studio: Studio) -> None:
    page = studio.view(stories.running())
    page.locator(".opv-call summary").nth(1).click()
    page.get_by_role("option", name="review_month ×12").click()


def dangerous(studio: Studio) -> None:
    page = studio.view(stories.asking(stories.dangerous_request()))
    page.get_by_role("option").nth(1).click()


def edit(studio: Studio) -> None:
    page = studio.view(stories.asking(stories.diff_request(), tool="edit_file"))
    page.get_by_role("button", name="Edit first").click()


def message(studio: Studio) -> None:
    page = studio.view(stories.asking(stories.request("c1")))
    page.get_by_role("button", name="Deny with message").click()


def rule(studio: Studio) -> None:
    page = studio.view(stories.asking(stories.request("c1")))
    page.get_by_role("button", name="Allow for this session").click()


def expired(studio: Studio) -> None:
    studio.view(stories.asking(stories.dangerous_request()), expired=True)


def failed(studio: Studio) -> None:
    end = {"status": "failed", "code": "model_error", "message": "connection closed after 3 tries"}
    studio.view(stories.running().finish(**end))


def denied(studio: Studio) -> None:
    studio.view(stories.running().finish(status="failed", code="permission_denied"))


def cancelled(studio: Studio) -> None:
    studio.view(stories.running().finish(status="cancelled", code="cancelled"))


def agents(studio: Studio) -> None:
    page = studio.view(stories.agents())
    page.get_by_role("option", name="review ×200").click()


def shell(studio: Studio) -> None:
    studio.view(stories.asking(stories.shell_request(), tool="shell"))


def arguments(studio: Studio) -> None:
    page = studio.view(stories.asking(stories.long_request(), tool="send_report"))
    page.get_by_role("button", name="Edit first").click()


def compacting(studio: Studio) -> None:
    studio.view(stories.compacting())


def asked(studio: Studio) -> None:
    studio.question(kind="ask", prompt="Which colour?", options=("red", "blue"))


def form(studio: Studio) -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where to?"},
            "kind": {"enum": ["sea", "snow"]},
            "days": {"type": "integer"},
            "pets": {"type": "boolean", "default": True},
        },
        "required": ["city", "days"],
    }
    page = studio.question(kind="form", prompt="Your trip?", fields=fields_of(schema))
    page.evaluate("window.deliver({kind: 'problem', text: 'days: a whole number is needed'})")


def saved(studio: Studio) -> None:
    studio.saved(static_bundle(state_of(stories.completed()))["text/html"])


def saved_failure(studio: Studio) -> None:
    end = {"status": "failed", "code": "model_error", "message": "connection closed"}
    html = static_bundle(state_of(stories.running().finish(**end)))["text/html"]
    studio.saved(html + question_bundle("Which colour?", "red")["text/html"])


def without_styles(html: str) -> str:
    """As GitHub shows it: no style, no class, nothing that runs."""
    tags = nh3.ALLOWED_TAGS | SVG | {"details", "summary"}
    everywhere = {"width", "height", "align", "open", "role", "aria-label", "viewBox"}
    drawn = {"d", "x", "y", "cx", "cy", "r", "rx", "fill", "stroke", "opacity", "transform"}
    drawn |= {"stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin"}
    drawn |= {"font-family", "font-size", "font-weight", "text-anchor", "points", "display"}
    return nh3.clean(html, tags=tags, attributes={"*": everywhere | drawn})


def without_drawing(html: str) -> str:
    """As JupyterLab shows a notebook that is not trusted: it drops tags that it does not know."""
    tags = nh3.ALLOWED_TAGS | {"details", "summary"}
    return nh3.clean(html, tags=tags, attributes={"details": {"open"}})


SVG: Final = {"svg", "g", "path", "circle", "rect", "text", "tspan"}


def saved_on_github(studio: Studio) -> None:
    html = static_bundle(state_of(stories.completed()))["text/html"]
    studio.saved(without_styles(html))


def saved_untrusted(studio: Studio) -> None:
    html = static_bundle(state_of(stories.completed()))["text/html"]
    page = studio.saved(without_drawing(html))
    page.get_by_text("The graph as text").click()


SCENES: Final[tuple[Callable[[Studio], None], ...]] = (
    *(running, agents, dangerous, edit, shell, arguments, message, rule, expired),
    *(failed, denied, cancelled, compacting),
    *(asked, form, saved, saved_failure, saved_on_github, saved_untrusted),
)


@pytest.fixture(scope="module")
def pictures(request: pytest.FixtureRequest) -> Path:
    """Where pictures are kept: `.pytest_cache/d/pictures`."""
    return Path(str(request.config.cache.mkdir("pictures")))  # type: ignore[union-attr]


@pytest.fixture
def studio(shared_page: Any) -> Iterator[Studio]:
    place = Studio(shared_page)
    yield place
    assert place.leave() == []


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_every_text_can_be_read_and_axe_core_has_nothing_to_say(
    studio: Studio, pictures: Path, scene: Callable[[Studio], None]
) -> None:
    wrong = []
    for theme in THEMES:
        studio.theme = theme
        scene(studio)
        name = f"{scene.__name__}-{theme}"
        studio.page.locator("main").screenshot(path=pictures / f"{name}.png", animations="disabled")
        found = poor_contrasts(studio.page)
        if theme == "light":
            found += violations(studio.page)
        wrong += [f"{name}: {each}" for each in found]
    assert wrong == [], "\n".join(wrong)


# -- other ways to look at it

BEYOND: Final = """() => [...document.querySelectorAll(".opv, .opv *")].filter((element) => {
  const style = getComputedStyle(element);
  const hides = style.overflowX !== "visible" || element.closest(".opv-sr, svg, pre, .opv-graph");
  const edge = document.querySelector(".opv").getBoundingClientRect().right + 1;
  return !hides && element.getBoundingClientRect().right > edge;
}).map((element) => element.className || element.localName)"""
PHONE: Final = "360px"
LIVE: Final = (running, agents, dangerous, edit, shell, arguments, message, rule, form)


def test_on_a_narrow_page_nothing_lies_beyond_an_edge(studio: Studio, pictures: Path) -> None:
    wrong = []
    for scene in LIVE:
        scene(studio)
        page = studio.page
        page.locator("main").evaluate("(main, width) => { main.style.width = width; }", PHONE)
        page.evaluate("() => new Promise((d) => requestAnimationFrame(() => setTimeout(d)))")
        page.locator("main").screenshot(path=pictures / f"{scene.__name__}-narrow.png")
        wrong += [f"{scene.__name__}: {each}" for each in page.evaluate(BEYOND)]
    assert wrong == []


def test_where_the_system_chooses_the_colours_what_is_chosen_can_be_told(
    studio: Studio, pictures: Path
) -> None:
    try:
        for scheme in ("light", "dark"):
            studio.page.emulate_media(forced_colors="active", color_scheme=scheme)
            for scene in (running, dangerous):
                scene(studio)
                name = f"{scene.__name__}-forced-{scheme}"
                studio.page.locator("main").screenshot(path=pictures / f"{name}.png")
                assert poor_contrasts(studio.page) == [], name
            running(studio)
            chosen = studio.page.locator("[role=option][aria-selected=true]")
            assert chosen.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
            shape = studio.page.locator(".opv-shape").first
            fill = shape.evaluate("e => getComputedStyle(e).fill")
            assert fill == {"light": "rgb(255, 255, 255)", "dark": "rgb(0, 0, 0)"}[scheme]
    finally:
        studio.page.emulate_media(forced_colors="none", color_scheme="light")


def test_nothing_moves_where_less_motion_is_asked_for(studio: Studio) -> None:
    moving = "document.getAnimations().filter((each) => each.playState === 'running').length"
    running(studio)
    assert studio.page.evaluate(moving) > 0
    try:
        studio.page.emulate_media(reduced_motion="reduce")
        running(studio)
        assert studio.page.evaluate(moving) == 0
    finally:
        studio.page.emulate_media(reduced_motion="no-preference")


def test_a_saved_turn_needs_no_style_to_show_its_answer_and_its_graph(studio: Studio) -> None:
    saved_on_github(studio)
    page = studio.page
    assert page.locator("main :is([style], [class])").count() == 0
    assert page.get_by_text("March counts one order twice").is_visible()
    drawing = page.get_by_role("img", name="Graph of the turn, oldest first")
    box = drawing.bounding_box()
    assert (box["width"], box["height"]) == (760, 240)
    lefts = drawing.locator("text").evaluate_all("all => all.map((e) => e.getBoundingClientRect())")
    assert min(left["x"] for left in lefts) > box["x"] + 4 * 26  # beside its four lanes
    rows = drawing.locator("text").filter(has_text=re.compile("^review_month$"))
    assert rows.count() == 1
    assert drawing.locator("path").first.evaluate("e => getComputedStyle(e).fill") == "none"


def test_where_no_drawing_is_let_through_the_graph_is_there_as_text(studio: Studio) -> None:
    saved_untrusted(studio)
    assert studio.page.locator("svg").count() == 0
    lines = studio.page.locator("details details pre").inner_text().split("\n")
    assert lines[0].startswith("o")
    assert lines[4].startswith("    f    review_month ×12")
    assert len(lines) == 8
