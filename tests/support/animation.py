"""The animation of README: a person asks in JupyterLab, allows what a card shows, and is answered.

    python -m tests.support.animation [docs/images/demo.webp]

All of it happens: JupyterLab, a kernel, the local model (`op-jupyter local install`), and a
headless Chromium that tells what it paints.  Added is a mouse pointer, which a headless browser
has none of; waiting for the model goes by faster.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from PIL import Image, ImageChops
from playwright.sync_api import Locator, Page

from op_jupyter.cli.jupyter_server import running_server
from op_jupyter.cli.notebook_page import NotebookPage, running_browser
from tests.support.code_cells import write_notebook
from tests.support.jupyter_tree import ROOT, tree_environment

WIDTH, HEIGHT = 980, 760
SHORTEST_MS, LAST_MS = 100, 5_000
WAIT_SECONDS: Final = 3.0
NOISE: Final = 3
MOST_BYTES: Final = 1_000_000
TURN_MS: Final = 180_000
CELLS: Final = (
    '%load_ext openprogram\n%config AgentMagics.provider = "local"',
    """\
import pandas as pd

df = pd.read_csv("penguins.csv")


def column_mean(column: str) -> float:
    \"\"\"Compute the mean of one column of the table df.\"\"\"
    return round(df[column].mean(), 2)""",
    "",
)
PROMPT: Final = "%%agent --tools column_mean\nWhat is the mean of body_mass_g?"
POINTER: Final = """
() => {
  const pointer = document.createElement("div");
  pointer.innerHTML = `<svg width="22" height="22" viewBox="0 0 22 22"><path fill="black"
    stroke="white" stroke-width="1.5" d="M3 2v16l4-4 3 6 3-1.5-3-5.7h6z"/></svg>`;
  pointer.style.cssText = "position:fixed;z-index:99999;pointer-events:none;left:60%;top:92%;";
  document.body.append(pointer);
  document.addEventListener("mousemove", (moved) => {
    pointer.style.left = `${moved.clientX - 3}px`;
    pointer.style.top = `${moved.clientY - 2}px`;
  }, true);
  document.addEventListener("mousedown", () => { pointer.style.transform = "scale(0.8)"; }, true);
  document.addEventListener("mouseup", () => { pointer.style.transform = ""; }, true);
}
"""


@dataclass
class Film:
    """What a page paints, each picture with the second at which it came."""

    frames: list[tuple[float, bytes]] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)

    def keep(self, frame: Mapping[str, Any]) -> None:
        """One more, as Playwright hands it over while it waits for something."""
        self.frames.append((frame["timestamp"] / 1000, frame["data"]))

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What comes in this block goes by in `WAIT_SECONDS`."""
        begin = len(self.frames)
        yield
        self.waits.append((begin, len(self.frames)))

    def times(self) -> list[float]:
        """When each picture is shown, in seconds."""
        gaps = [b - a for (a, _), (b, _) in pairwise(self.frames)]
        for begin, end in self.waits:
            took = sum(gaps[begin:end])
            gaps[begin:end] = [g * min(1.0, WAIT_SECONDS / took) for g in gaps[begin:end]]
        return list(accumulate(gaps, initial=0.0))

    def pictures(self) -> list[tuple[Image.Image, int]]:
        """The different ones, with the milliseconds that each is shown."""
        chosen: list[tuple[Image.Image, float]] = []
        for when, (_, data) in zip(self.times(), self.frames, strict=True):
            if chosen and (when - chosen[-1][1]) * 1000 < SHORTEST_MS:
                when = chosen.pop()[1]
            picture = Image.open(io.BytesIO(data)).convert("RGB")
            if not chosen:
                chosen.append((picture, when))
            elif changed := changes(chosen[-1][0], picture):
                chosen.append((changed, when))
        lengths = [round((b - a) * 1000) for (_, a), (_, b) in pairwise(chosen)]
        pictures = (picture for picture, _ in chosen)
        return list(zip(pictures, [*lengths, LAST_MS], strict=True))


def changes(before: Image.Image, after: Image.Image) -> Image.Image | None:
    """*after*, but for the noise that compression put into what stays; None: all of it stays."""
    red, green, blue = ImageChops.difference(before, after).split()
    most = ImageChops.lighter(ImageChops.lighter(red, green), blue)
    mask = most.point(lambda value: 255 * (value > NOISE))
    return Image.composite(after, before, mask) if mask.getbbox() else None


def move_to(page: Page, target: Locator) -> None:
    """Move the mouse as a hand does."""
    box = target.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=25)


def play(notebook: NotebookPage) -> Film:
    """Ask, look at the card, allow, and wait for the answer."""
    page, asked = notebook.page, len(CELLS) - 1
    page.keyboard.press("Control+b")  # without the list of files
    for number in range(asked):
        notebook.run(number)
    notebook.cell(asked).locator(".cm-content").click()
    page.evaluate(POINTER)
    page.mouse.move(WIDTH * 0.6, HEIGHT * 0.9)
    film = Film()
    page.screencast.start(on_frame=film.keep, quality=100, size={"width": WIDTH, "height": HEIGHT})
    page.wait_for_timeout(600)
    page.keyboard.type(PROMPT, delay=45)
    page.wait_for_timeout(500)
    page.keyboard.press("Control+Enter")
    allow = notebook.outputs(asked).get_by_role("button", name="Allow once")
    with film.waiting():
        allow.wait_for(timeout=TURN_MS)
    notebook.cell(asked).evaluate("cell => cell.scrollIntoView({ block: 'start' })")
    page.wait_for_timeout(2_000)
    move_to(page, allow)
    page.wait_for_timeout(500)
    page.mouse.down()
    page.wait_for_timeout(150)
    page.mouse.up()
    with film.waiting():
        notebook.cell(asked).locator(".op-saved-turn").wait_for(timeout=TURN_MS)
    page.wait_for_timeout(1_500)
    page.screencast.stop()
    return film


def write(pictures: Sequence[tuple[Image.Image, int]], path: Path) -> None:
    """Write them as one animation.

    Raises:
        SystemExit: it is too large.
    """
    first, *others = (picture for picture, _ in pictures)
    first.save(
        path,
        save_all=True,
        append_images=others,
        duration=[ms for _, ms in pictures],
        loop=0,
        lossless=True,
        quality=50,
        method=3,
    )
    size = path.stat().st_size
    seconds = sum(ms for _, ms in pictures) / 1000
    print(f"{path}: {len(pictures)} pictures, {seconds:.0f} s, {size:,} bytes")
    if size > MOST_BYTES:
        raise SystemExit(f"more than {MOST_BYTES:,} bytes")


def main(path: str = "docs/images/demo.webp") -> None:
    """Play it and write *path*."""
    with TemporaryDirectory(prefix="op-animation-") as made:
        folder, home = Path(made) / "penguins", Path(made) / "home"
        folder.mkdir()
        data = ROOT / "notebooks" / "data" / "penguins.csv"
        (folder / "penguins.csv").write_bytes(data.read_bytes())
        write_notebook(folder / "penguins.ipynb", CELLS)
        env = {
            "OPENPROGRAM_CONFIG": os.devnull,
            "OPENPROGRAM_HOME": str(home / "sessions"),
            "OPENPROGRAM_REPLAY": "off",
            **tree_environment(home / "tree"),
        }
        with running_server(folder, home=home, env=env) as server, running_browser() as browser:
            notebook = NotebookPage(browser, server, "penguins.ipynb", width=WIDTH, height=HEIGHT)
            film = play(notebook)
            if notebook.errors:
                raise SystemExit(f"the page raised an error: {notebook.errors[0]}")
        write(film.pictures(), Path(path))


if __name__ == "__main__":
    main(*sys.argv[1:])
