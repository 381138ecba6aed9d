"""From a click on a card to the start of the tool, in a real kernel."""

from __future__ import annotations

import time

from kernel.harness import Kernel
from kernel.page import Page

from op_jupyter.testing.fake_messages import FakeMessages, Reply, text, tool

_CODE = "import time; print('began', time.time())"


def from_click_to_start(kernel: Kernel, fake: FakeMessages, number: int) -> float:
    """Seconds; *number* is another one for each call."""
    fake.script(Reply([tool("python", id=f"toolu_{number}", code=_CODE)]), Reply([text("So.")]))
    cell = kernel.send("%%agent\nRun it", allow_stdin=True)
    page = Page(kernel, cell)
    page.send({"kind": "ready"})
    card = page.card()
    clicked = time.time()
    page.decide(card, "allow")
    kernel.finish(cell)
    return float(cell.stdout.split()[1]) - clicked
