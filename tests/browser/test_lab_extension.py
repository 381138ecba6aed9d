"""The lab extension in a real page: stored sessions, approvals out of sight, commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, ElementHandle, Locator, Page, Route, expect
from server.conftest import make_session
from support.jupyter_tree import LABEXTENSION
from views.looks import violations

from browser.harness import FUNCTION, LOAD, QUESTION, Pages, Turn
from op_jupyter import SessionStore
from op_jupyter.cli.jupyter_server import JupyterServer
from op_jupyter.cli.notebook_page import NotebookPage
from op_jupyter.engine.service import SUB_AGENT
from op_jupyter.testing.fake_messages import FakeMessages, Reply, text, tool

MEAN = Reply([tool("column_stat", id="toolu_01", column="body_mass_g", statistic="mean")])
ANSWER = Reply([text("The mean of body_mass_g is **4201.75**.")])
HOSTILE = '\u202e<img src=x onerror="window.pwned=1"></script>'
ASK = "from openprogram import ask\nprint(ask('Which <b>colour</b>?', ['red', 'blue']))"
CELLS = [LOAD, FUNCTION, "%unload_ext openprogram", QUESTION, "print(calls)", ASK]
LOADING, DEFINING, UNLOADING, ASKING, CALLS, QUESTIONING = range(len(CELLS))
TITLE = "work-python3.ipynb"
LIST = "/openprogram/sessions?"
ANY_LIST = re.compile(re.escape(LIST))
BADGE = "tab => getComputedStyle(tab.querySelector('.lm-TabBar-tabLabel'), '::before').content"
LOOKING_AWAY = """hidden => {
  Object.defineProperty(document, 'hidden', {configurable: true, get: () => hidden});
  document.dispatchEvent(new Event('visibilitychange'));
}"""  # a browser without windows has no page that is out of sight
UNSET_SECONDS = 5.0  # how often the list is read anew where the setting says nothing
FAST_MS = 1000  # how often the list is read anew where the setting says: each second
READ_MS = 700  # the moment that a person gets to read a card, and a little more

LAB = pytest.mark.parametrize("server", ["lab"], indirect=True, scope="package")
NOTEBOOK = pytest.mark.parametrize("server", ["notebook"], indirect=True, scope="package")


@pytest.fixture(scope="module")
def store(server: JupyterServer) -> SessionStore:
    """The store that server and kernels use, with sessions of other days."""
    store = SessionStore(server.folder / "sessions")
    for name, prompt in {
        "s-first": "Count the penguins",
        "s-hostile": HOSTILE,
        "s-trash": "Throw me away",
    }.items():
        make_session(store, name, prompt)
    make_session(store, "s-agent", "Work for another", source=SUB_AGENT)
    return store


@pytest.fixture
def page(
    request: pytest.FixtureRequest,
    store: SessionStore,
    borrowed: Pages,
    service: FakeMessages,
    pictures: Path,
) -> Iterator[NotebookPage]:
    """One page for all tests of a server: the extension loaded, the notebook in front, the sidebar
    open; a picture of its end is kept.
    """
    if not (LABEXTENSION / "schemas").is_dir():
        pytest.skip("the lab extension is not built: python3 tests/support/prepare.py labextension")
    service.reset()
    page = borrowed.take("work", CELLS, "python3")
    if page.server.app == "lab":
        notebook_tab(page).click()
    if page.prompt(DEFINING) == "[ ]:":
        page.run(LOADING)
        page.run(DEFINING)
    run_command(page, "Show Sessions")
    expect(sidebar(page)).to_be_visible()
    sidebar(page).get_by_role("searchbox").fill("")
    expect(entry(page, "s-hostile")).to_be_visible()
    unfolded = sidebar(page).locator('.op-entry[aria-expanded="true"]')
    while (left := unfolded.count()) > 0:
        unfolded.first.click()
        expect(unfolded).to_have_count(left - 1)
    yield page
    page.screenshot(pictures / f"extension-{request.node.originalname}.png")


@pytest.fixture
def other(browser: Browser) -> Iterator[Page]:
    """Another page of the browser."""
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    yield page
    page.close(run_before_unload=False)


def sidebar(page: NotebookPage) -> Locator:
    return page.page.locator("#op-sessions")


def entry(page: NotebookPage, session_id: str) -> Locator:
    return sidebar(page).locator(f'[data-id="{session_id}"] .op-entry')


def open_entry(page: NotebookPage, session_id: str) -> None:
    """Open an entry of the list, unless it is open."""
    if entry(page, session_id).get_attribute("aria-expanded") != "true":
        entry(page, session_id).click()


def notebook_tab(page: NotebookPage) -> Locator:
    return page.page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab", has_text=TITLE)


def toast(page: Page, words: str) -> Locator:
    """A notice with these words, but none that fades out."""
    return page.locator(".Toastify__toast:not([class*=exit])", has_text=words)


def notice(page: NotebookPage) -> Locator:
    return toast(page.page, "Approval needed")


def handle(locator: Locator) -> ElementHandle:
    """The element itself, for a script of the page."""
    element = locator.element_handle()
    assert element is not None
    return element


def run_command(page: NotebookPage, label: str) -> None:
    """Choose a command in the palette, as a person does."""
    keyboard = page.page.keyboard
    page.page.evaluate("document.activeElement?.blur()")
    keyboard.press("Control+Shift+C")
    page.page.locator(".lm-CommandPalette-input").fill(label)
    chosen = page.page.locator(".lm-CommandPalette-item.lm-mod-active")
    expect(chosen).to_contain_text(label)  # the list is drawn some time after the words were typed
    keyboard.press("Enter")
    expect(page.page.locator(".lm-CommandPalette-input")).to_be_hidden()


def away(page: NotebookPage) -> None:
    """Bring something else to the front."""
    tabs = page.page.locator(".lm-DockPanel-tabBar")
    launcher = tabs.locator(".lm-TabBar-tab", has_text="Launcher")
    if launcher.count() == 0:
        tabs.locator(".lm-TabBar-addButton").first.click()
    launcher.first.click()
    expect(tabs.locator(".lm-TabBar-tab.lm-mod-current", has_text="Launcher")).to_be_visible()


def ask(page: NotebookPage) -> Turn:
    """Run the asking cell up to its card."""
    page.start(ASKING)
    turn = Turn(page, ASKING)
    expect(turn.card).to_be_visible()
    return turn


@LAB
def test_sessions_are_searched_and_looked_at_by_keyboard(page: NotebookPage) -> None:
    keyboard = page.page.keyboard
    search = sidebar(page).get_by_role("searchbox", name="Search sessions")
    expect(entry(page, "s-first")).to_be_visible()
    search.fill("penguins")
    expect(sidebar(page).locator(".op-entry")).to_have_count(1)
    search.focus()
    keyboard.press("Tab")
    expect(entry(page, "s-first")).to_be_focused()
    keyboard.press("Enter")
    expect(entry(page, "s-first")).to_have_attribute("aria-expanded", "true")
    keyboard.press("Tab")
    expect(page.page.locator(":focus")).to_have_text("Open graph")
    keyboard.press("Enter")

    view = page.page.locator("#op-session-s-first")
    expect(view.get_by_role("option")).to_have_count(3)
    expect(view.get_by_role("listbox")).to_be_focused()
    keyboard.press("End")
    expect(view.locator(".opv-details")).to_contain_text("6 * 7")
    expect(view.locator(".opv-details")).to_contain_text("allowed once (click)")
    search.fill("")
    expect(entry(page, "s-hostile")).to_be_visible()
    keyboard.press("Tab")
    expect(page.page.locator(":focus")).to_have_class("op-entry")
    keyboard.press("End")
    expect(page.page.locator(":focus")).to_have_class("op-entry")


@LAB
def test_the_sidebar_needs_no_mouse_and_loses_no_focus(page: NotebookPage) -> None:
    keyboard, focused = page.page.keyboard, page.page.locator(":focus")
    run_command(page, "Show Sessions")
    expect(sidebar(page).get_by_role("searchbox")).to_be_focused()
    keyboard.press("Shift+Tab")
    expect(focused).to_have_text("Refresh")
    keyboard.press("Tab")
    keyboard.press("Tab")
    expect(focused).to_have_class("op-entry")
    keyboard.press("Home")
    first = focused.evaluate("entry => entry.parentElement.dataset.id")
    keyboard.press("ArrowDown")
    second = focused.evaluate("entry => entry.parentElement.dataset.id")
    assert first != second
    keyboard.press("Space")
    expect(entry(page, second)).to_have_attribute("aria-expanded", "true")
    for name in ("Open graph", "Resume in notebook", "Copy id", "Delete…"):
        keyboard.press("Tab")
        expect(focused).to_have_text(name)
    keyboard.press("Enter")
    expect(page.page.locator(".jp-Dialog")).to_contain_text(second)
    keyboard.press("Escape")
    expect(focused).to_have_text("Delete…")
    keyboard.press("ArrowUp")
    expect(entry(page, first)).to_be_focused()


@LAB
def test_sidebar_and_graph_can_be_read_in_light_dark_and_narrow(
    page: NotebookPage, pictures: Path
) -> None:
    open_entry(page, "s-first")
    sidebar(page).get_by_role("button", name="Open graph").click()
    view = page.page.locator("#op-session-s-first")
    expect(view.get_by_role("option")).to_have_count(3)
    expect(page.page.locator(".lm-TabBar-tab.lm-mod-current", has_text="Count the")).to_be_visible()
    wrong = []
    for theme in ("Dark", "Light"):
        run_command(page, f"Use Theme: JupyterLab {theme}")
        is_light = str(theme == "Light").lower()
        expect(page.page.locator("body")).to_have_attribute("data-jp-theme-light", is_light)
        expect(page.page.locator("#jupyterlab-splash")).to_have_count(0)
        page.screenshot(pictures / f"extension-{theme.lower()}.png")
        for part in ("#op-sessions", "#op-session-s-first", ".op-status"):
            wrong += [f"{theme}: {each}" for each in violations(page.page, part)]
    assert wrong == [], "\n".join(wrong)
    page.page.set_viewport_size({"width": 720, "height": 900})
    details = view.locator(".opv-details")
    expect(details).to_be_visible()
    page.screenshot(pictures / "extension-narrow.png")
    widths = [each.evaluate("e => e.getBoundingClientRect().width") for each in (view, details)]
    page.page.set_viewport_size({"width": 1280, "height": 1000})
    assert widths[1] > 0.9 * widths[0]  # below the graph, and as wide


@LAB
def test_an_answer_is_found_and_its_session_exported(page: NotebookPage) -> None:
    search = sidebar(page).get_by_role("searchbox", name="Search sessions")
    search.fill("</script> it is")
    expect(entry(page, "s-first")).to_contain_text("It is [U+001B][31m42")
    open_entry(page, "s-first")
    with page.page.expect_download() as download:
        sidebar(page).get_by_role("button", name="Markdown").click()
    assert download.value.suggested_filename == "s-first.md"
    assert "Count the penguins" in download.value.path().read_text()
    search.fill("no such words")
    expect(sidebar(page)).to_contain_text("No session fits this search.")


@LAB
def test_of_two_thousand_sessions_the_newest_thousand_are_listed_which_is_said(
    page: NotebookPage,
) -> None:
    def answer(route: Route) -> None:
        (limit,) = parse_qs(urlsplit(route.request.url).query)["limit"]
        listed = [stranger(number) for number in range(int(limit))]
        route.fulfill(json={"sessions": listed, "total": 2000})

    place, more = sidebar(page), sidebar(page).get_by_role("button", name="Show more")
    page.page.route(ANY_LIST, answer)
    try:
        place.get_by_role("button", name="Refresh").click()
        for count in range(100, 1000, 100):
            expect(place.locator(".op-entry")).to_have_count(count)
            more.click()
        expect(place).to_contain_text("The newest 1,000 of 2,000; a search finds the others.")
        expect(more).to_be_hidden()
        place.locator(".op-entry").first.focus()
        page.page.keyboard.press("End")
        expect(entry(page, "s-999")).to_be_focused()
        assert place.evaluate("e => e.scrollWidth <= e.clientWidth")
    finally:
        page.page.unroute(ANY_LIST)
        place.get_by_role("searchbox").fill("s-first")
        expect(place.locator(".op-entry")).to_have_count(1)


def stranger(number: int) -> dict[str, Any]:
    """A session whose title does harm, if anything does."""
    return {
        "id": f"s-{number}",
        "title": f"{HOSTILE} {'long' * 50} {number}",
        "updated_at": "2026-01-01T00:00:00Z",
        "source": "",
        "turns": number,
        "last_status": "completed",
        "notebook": "",
    }


@LAB
def test_hostile_titles_stay_text(page: NotebookPage) -> None:
    open_entry(page, "s-hostile")
    sidebar(page).get_by_role("button", name="Open graph").click()

    expect(page.page.locator("#op-session-s-hostile header h3")).to_contain_text("[U+202E]<img")
    assert page.page.evaluate("window.pwned") is None


@LAB
def test_a_session_goes_to_the_trash_after_asking_and_comes_back(
    page: NotebookPage, store: SessionStore
) -> None:
    expect(entry(page, "s-trash")).to_be_visible()
    open_entry(page, "s-trash")
    sidebar(page).get_by_role("button", name="Delete…").click()
    dialog = page.page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("Throw me away")
    dialog.get_by_role("button", name="Cancel").click()
    assert store.exists("s-trash")

    sidebar(page).get_by_role("button", name="Delete…").click()
    dialog.get_by_role("button", name="Move to trash").click()
    expect(entry(page, "s-trash")).to_have_count(0)
    assert not SessionStore(store.root_path).exists("s-trash")
    page.page.get_by_role("button", name="Undo").click()
    expect(entry(page, "s-trash")).to_be_visible()
    assert SessionStore(store.root_path).exists("s-trash")


@LAB
def test_a_session_is_resumed_by_a_cell_that_stays(page: NotebookPage) -> None:
    before = page.page.locator(".jp-Notebook .jp-CodeCell").count()
    below = page.prompt(QUESTIONING)
    page.select(QUESTIONING)
    page.page.keyboard.press("Shift+ArrowUp")  # two are selected now; neither is to be run
    open_entry(page, "s-first")
    sidebar(page).get_by_role("button", name="Resume in notebook").click()

    cell = page.cell(CALLS + 1)
    expect(cell).to_contain_text("%agent resume s-first")
    expect(cell.locator(".jp-OutputArea-output")).to_contain_text("Resumed, with 1 turn")
    expect(page.page.locator(".jp-Notebook .jp-CodeCell")).to_have_count(before + 1)
    expect(page.page.locator(".op-status")).to_contain_text("s-first")
    assert page.prompt(QUESTIONING + 1) == below
    expect(sidebar(page).locator(".op-here")).to_contain_text("Count the penguins")
    page.page.locator(".op-status button").click()
    expect(entry(page, "s-first")).to_be_focused()
    # What a kernel writes to cannot be deleted.
    sidebar(page).get_by_role("button", name="Delete…").click()
    page.page.get_by_role("button", name="Move to trash").click()
    refusal = toast(page.page, "open for writing")
    refusal.get_by_role("button", name="Hide notification").click()
    page.select(CALLS + 1)  # the other tests count on the cells that were there
    page.page.keyboard.press("d")
    page.page.keyboard.press("d")
    expect(page.page.locator(".jp-Notebook .jp-CodeCell")).to_have_count(before)


@LAB
def test_an_approval_out_of_sight_is_told_and_answered_in_full_view(
    page: NotebookPage, service: FakeMessages, pictures: Path
) -> None:
    service.script(MEAN, ANSWER)
    turn = ask(page)
    expect(notice(page)).to_have_count(0)
    away(page)
    expect(notice(page)).to_contain_text(f"{TITLE}: Approval needed. Call column_stat?")
    expect(notebook_tab(page)).to_have_attribute("data-op-waits", "1")
    assert page.page.evaluate(BADGE, handle(notebook_tab(page))).startswith('"!"')
    assert notice(page).get_by_role("button", name="Allow").count() == 0

    notice(page).get_by_role("button", name="Review…").click()
    review = page.page.get_by_role("dialog", name=f"Approval in {TITLE}")
    expect(review).to_contain_text('"column": "body_mass_g"')
    expect(review.get_by_role("button", name="Deny", exact=False).first).to_be_focused()
    page.screenshot(pictures / "extension-review.png")
    assert violations(page.page, ".op-review") == []
    card = review.locator(".opv-card")  # the live view's own sheet came later, and weighs less
    assert card.evaluate("card => getComputedStyle(card).marginLeft") == "12px"
    review.get_by_role("button", name="Allow once").click()

    expect(review).to_have_count(0)
    expect(notice(page)).to_have_count(0)
    expect(notebook_tab(page)).not_to_have_attribute("data-op-waits", "1")
    notebook_tab(page).click()
    expect(turn.saved).to_contain_text("4201.75")


@LAB
def test_each_setting_has_its_effect(page: NotebookPage, service: FakeMessages) -> None:
    service.script(MEAN, ANSWER)
    turn = ask(page)
    run_command(page, "Settings Editor")
    page.page.locator(".jp-PluginList-entry", has_text="OpenProgram").click()

    def setting(name: str) -> Locator:
        return page.page.locator(f'.jp-SettingsPanel [id$="labextension:plugin_{name}"]:visible')

    expect(notice(page)).to_have_count(1)  # the settings hide the notebook
    setting("notify").select_option("never")
    expect(notice(page)).to_have_count(0)
    expect(notebook_tab(page)).to_have_attribute("data-op-waits", "1")
    setting("badge").uncheck()
    expect(notebook_tab(page)).not_to_have_attribute("data-op-waits", "1")
    expect(page.page.locator(".op-status")).to_be_visible()
    setting("statusItem").uncheck()
    expect(page.page.locator(".op-status")).to_be_hidden()
    expect(entry(page, "s-agent")).to_have_count(0)
    setting("subAgents").check()
    expect(entry(page, "s-agent")).to_be_visible()

    looks: list[float] = []
    page.page.on("request", lambda asked: looks.append(monotonic()) if LIST in asked.url else None)
    setting("refreshSeconds").fill("1")
    while len(looks) < 4:
        page.page.wait_for_event("request", lambda asked: LIST in asked.url)
    assert min(looks[-1] - looks[-2], looks[-2] - looks[-3]) < UNSET_SECONDS
    setting("refreshSeconds").fill("0")
    while looks:  # some may be on their way
        looks.clear()
        page.page.wait_for_timeout(3 * FAST_MS)

    setting("notify").select_option("always")
    notebook_tab(page).click()
    expect(notice(page)).to_have_count(1)
    page.page.locator(".lm-TabBar-tab", has_text="Settings").first.click()
    page.page.get_by_role("button", name="Restore to Defaults").click()
    page.page.locator(".lm-TabBar-tab", has_text="Settings").locator(
        ".lm-TabBar-tabCloseIcon"
    ).click()
    notebook_tab(page).click()
    expect(notice(page)).to_have_count(0)
    expect(page.page.locator(".op-status")).to_be_visible()
    turn.deny()
    page.wait_done(ASKING)


@LAB
def test_two_pages_on_one_kernel_both_know_of_the_card_and_one_answer_is_enough(
    page: NotebookPage, other: Page, service: FakeMessages
) -> None:
    service.script(MEAN, ANSWER)
    page.save()
    turn = ask(page)
    other.goto(page.server.page(page.notebook))
    # What it was given of the notebook has no such output: told, although the notebook is in front.
    expect(toast(other, "Approval needed")).to_be_visible()
    page.save()
    other.route("**/@jupyter-widgets/**", lambda route: route.abort())
    other.reload()
    # Now it has the output, and draws it as text; as where a notebook is not trusted.
    expect(toast(other, "Approval needed")).to_be_visible()
    tab = other.locator('.lm-TabBar-tab[data-op-waits="1"]', has_text=TITLE)
    expect(tab).to_be_visible()
    expect(other).not_to_have_title(re.compile(r"^\(1\) "))
    other.evaluate(LOOKING_AWAY, True)
    expect(other).to_have_title(re.compile(r"^\(1\) "))
    toast(other, "Approval needed").get_by_role("button", name="Review…").click()
    other.evaluate(LOOKING_AWAY, False)
    expect(other).not_to_have_title(re.compile(r"^\(1\) "))
    expect(turn.card).to_be_visible()
    other.get_by_role("dialog").get_by_role("button", name="Allow once").click()

    expect(turn.card).to_have_count(0)
    expect(turn.saved).to_contain_text("4201.75")
    expect(notebook_tab(page)).not_to_have_attribute("data-op-waits", "1")
    expect(other.get_by_role("dialog")).to_have_count(0)
    expect(tab).to_have_count(0)


@LAB
def test_a_notice_survives_a_reload_and_leads_to_its_card(
    page: NotebookPage, service: FakeMessages
) -> None:
    service.script(MEAN, ANSWER)
    turn = ask(page)
    page.save()
    page.reload()
    turn.card.wait_for()
    expect(notebook_tab(page)).to_have_attribute("data-op-waits", "1")
    expect(notice(page)).to_have_count(0)
    away(page)
    notice(page).get_by_role("button", name="Show").click()

    expect(turn.card.get_by_role("button", name="Deny", exact=False).first).to_be_focused()
    expect(notice(page)).to_have_count(0)
    turn.deny()  # in the cell: the badge goes as well
    expect(notebook_tab(page)).not_to_have_attribute("data-op-waits", "1")
    expect(turn.card).to_have_count(0)


@LAB
def test_a_question_out_of_sight_is_told_until_it_is_answered(page: NotebookPage) -> None:
    page.start(QUESTIONING)
    form = page.outputs(QUESTIONING).locator(".opv-question")
    form.wait_for()
    page.select(LOADING)
    away(page)
    told = toast(page.page, "Question. Which <b>colour</b>?")
    expect(notebook_tab(page)).to_have_attribute("data-op-waits", "1")
    told.get_by_role("button", name="Show").click()

    expect(form.get_by_role("radio", name="red")).to_be_focused()
    expect(page.cell(QUESTIONING)).to_have_class(re.compile("jp-mod-active"))
    expect(told).to_have_count(0)
    page.page.keyboard.press("Space")
    away(page)
    expect(told).to_have_count(1)
    form.evaluate("form => form.requestSubmit()")  # as from another page
    expect(told).to_have_count(0)
    expect(notebook_tab(page)).not_to_have_attribute("data-op-waits", "1")
    notebook_tab(page).click()
    expect(page.outputs(QUESTIONING).first).to_contain_text("→ red")


@LAB
def test_the_command_that_allows_needs_a_second_look(
    page: NotebookPage, service: FakeMessages
) -> None:
    service.script(MEAN, ANSWER)
    turn = ask(page)
    deny = turn.card.get_by_role("button", name="Deny", exact=False).first
    allow = "Allow the Approval in View, Once"
    page.select(CALLS)

    run_command(page, allow)
    expect(deny).to_be_focused()
    page.page.keyboard.press("Control+Alt+Enter")
    assert turn.card.get_by_role("button", name="Allow once").is_enabled()
    page.select(CALLS)  # looks away
    run_command(page, allow)
    assert turn.card.get_by_role("button", name="Allow once").is_enabled()
    page.page.wait_for_function(
        "element => element.matches(':focus-within')", arg=handle(turn.card)
    )
    now = page.page.evaluate("performance.now()")
    page.page.wait_for_function(f"now => performance.now() - now > {READ_MS}", arg=now)
    run_command(page, allow)
    expect(turn.saved).to_contain_text("4201.75")


@LAB
def test_a_card_far_away_is_gone_to_and_one_that_is_folded_is_shown_in_a_dialog(
    page: NotebookPage, service: FakeMessages
) -> None:
    service.script(MEAN, ANSWER)
    turn = ask(page)
    page.page.set_viewport_size({"width": 1280, "height": 420})
    page.select(LOADING)
    go, review = "Go to the Waiting Approval", page.page.get_by_role("dialog")
    run_command(page, go)
    deny = page.page.locator(".opv-card [data-answer=deny]")
    expect(deny).to_be_focused()
    expect(deny).to_be_in_viewport()
    expect(page.cell(ASKING)).to_have_class(re.compile("jp-mod-active"))

    run_command(page, "Collapse Selected Outputs")
    expect(deny).to_be_hidden()
    run_command(page, go)
    expect(review.get_by_role("button", name="Deny", exact=False).first).to_be_focused()
    page.page.set_viewport_size({"width": 1280, "height": 1000})
    review.get_by_role("button", name="Allow once").click()
    page.wait_done(ASKING)
    run_command(page, "Expand Selected Outputs")
    expect(turn.saved).to_contain_text("4201.75")


@LAB
def test_after_a_restart_nothing_waits_and_the_line_is_there_again(
    page: NotebookPage, service: FakeMessages
) -> None:
    service.script(MEAN, ANSWER)
    ask(page)
    away(page)
    expect(notice(page)).to_be_visible()
    before = page.page.locator(".op-status").inner_text()
    notebook_tab(page).click()
    page.restart_kernel()

    expect(notebook_tab(page)).not_to_have_attribute("data-op-waits", "1")
    expect(page.page.locator(".op-status")).to_be_hidden()
    page.run(LOADING)
    expect(page.page.locator(".op-status")).to_be_visible()
    assert page.page.locator(".op-status").inner_text() != before
    page.run(DEFINING)
    page.run(UNLOADING)
    expect(page.page.locator(".op-status")).to_be_hidden()
    expect(sidebar(page).locator(".op-here")).to_have_count(0)
    page.run(LOADING)
    expect(page.page.locator(".op-status")).to_be_visible()
    page.run(DEFINING)


@NOTEBOOK
def test_in_notebook_7_sessions_and_graphs_have_their_places(
    page: NotebookPage, service: FakeMessages
) -> None:
    open_entry(page, "s-first")
    sidebar(page).get_by_role("button", name="Open graph").click()
    view = page.page.locator("#op-session-s-first")
    expect(view.get_by_role("option")).to_have_count(3)
    height = view.evaluate("element => element.getBoundingClientRect().height")
    assert height >= 300

    service.script(MEAN, ANSWER)
    turn = ask(page)
    run_command(page, "Review the Waiting Approval")
    review = page.page.get_by_role("dialog")
    review.get_by_role("button", name="Allow once").click()
    expect(turn.saved).to_contain_text("4201.75")
