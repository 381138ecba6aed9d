"""Calls the JavaScript twins of `views.text`, `views.layout` and `views.model`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import op_jupyter.views
from op_jupyter.views.bundle import joined

STATIC: Final = Path(op_jupyter.views.__file__).parent / "static"
Twins = Callable[[str, Any], Any]

# What the tests call: each takes and gives plain JSON.
_CALLS: Final = """
const calls = {
  visible: (texts) => texts.map((text) => visible(text)),
  layOut: ({ nodes, changes, fold }) => {
    const layout = new Layout({ fold });
    for (const node of nodes) layout.add(node);
    for (const [id, status] of changes) layout.update(id, status);
    return layout.rows;
  },
  fold: (items) => {
    const turn = new TurnFold();
    for (const item of items) turn.apply(item);
    return turn.state;
  },
  foldFrom: ({ state, items }) => {
    const turn = new TurnFold(state);
    for (const item of items) turn.apply(item);
    return turn.state;
  },
};
"""
_NODE_LOOP: Final = """
import { createInterface } from "node:readline";
for await (const line of createInterface({ input: process.stdin })) {
  const { name, data } = JSON.parse(line);
  process.stdout.write(JSON.stringify(calls[name](data)) + "\\n");
}
"""
_PARTS: Final = ("text", "layout", "fold")


@contextmanager
def node_twins(node: str, folder: Path) -> Iterator[Twins]:
    """The twins in one Node process."""
    script = folder / "twins.mjs"
    script.write_text(joined(_PARTS) + _CALLS + _NODE_LOOP, "utf-8")
    with subprocess.Popen(
        [node, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def call(name: str, data: Any) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({"name": name, "data": data}) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield call
        process.stdin.close()


def chromium_twins(browser: Any) -> Twins:
    """The twins in a page."""
    page = browser.new_page()
    page.add_script_tag(content=joined(_PARTS) + _CALLS + "window.calls = calls;")

    def call(name: str, data: Any) -> Any:
        return page.evaluate(
            "({name, data}) => window.calls[name](data)", {"name": name, "data": data}
        )

    return call
