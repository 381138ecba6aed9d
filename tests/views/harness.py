"""A page with the widget in it and no Jupyter around it: the test is the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from op_jupyter.views.bundle import css, esm, question_esm

CHROMIUM_ARGS: Final = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

# What JupyterLab's themes set; "none" leaves the view to its own fallbacks.
LIGHT: Final = """--jp-layout-color0:#fff;--jp-layout-color1:#fff;--jp-layout-color2:#eee;
--jp-border-color1:#bdbdbd;--jp-border-color2:#e0e0e0;--jp-ui-font-color0:#000;
--jp-ui-font-color1:rgba(0,0,0,.87);--jp-ui-font-color2:rgba(0,0,0,.54);
--jp-brand-color1:#1976d2;--jp-success-color1:#388e3c;--jp-warn-color1:#f57c00;
--jp-error-color1:#d32f2f;--jp-info-color1:#0097a7;--jp-cell-editor-background:#f5f5f5;
--jp-mirror-editor-keyword-color:#008000;--jp-mirror-editor-string-color:#ba2121;
--jp-mirror-editor-number-color:#080;--jp-mirror-editor-comment-color:#408080;
--jp-mirror-editor-operator-color:#aa22ff;color-scheme:light"""
DARK: Final = """--jp-layout-color0:#111;--jp-layout-color1:#212121;--jp-layout-color2:#424242;
--jp-border-color1:#616161;--jp-border-color2:#424242;--jp-ui-font-color0:#fff;
--jp-ui-font-color1:rgba(255,255,255,.87);--jp-ui-font-color2:rgba(255,255,255,.54);
--jp-brand-color1:#2196f3;--jp-success-color1:#4caf50;--jp-warn-color1:#ff9800;
--jp-error-color1:#f44336;--jp-info-color1:#00bcd4;--jp-cell-editor-background:#212121;
--jp-mirror-editor-keyword-color:#4caf50;--jp-mirror-editor-string-color:#ff7070;
--jp-mirror-editor-number-color:#66bb6a;--jp-mirror-editor-comment-color:#408080;
--jp-mirror-editor-operator-color:#aa22ff;color-scheme:dark"""

_PAGE: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Turn</title>
<style>body.light{%s}body.dark{%s}body.light{background:#fff}
body.dark{background:#111;color:rgba(255,255,255,.87)}
h1,h2{font-size:1px;margin:0;color:inherit}
main{width:860px;padding:8px;box-sizing:border-box}a{color:#1976d2}body.dark a{color:#64b5f6}
</style><style>%s</style></head>
<body class="%s"%s><main><h1>Notebook</h1><h2>Cell</h2>%s</main></body></html>"""

_START: Final = """async ([source, traits]) => {
  const url = URL.createObjectURL(new Blob([source], {type: "text/javascript"}));
  const module = (await import(url)).default;
  window.sent = [];
  const listeners = [];
  window.saved = {status: "running"};
  window.model = {
    get: (key) => (key === "state" ? window.saved : traits[key]),
    set() {}, save_changes() {},
    on: (event, callback) => listeners.push([event, callback]),
    off: (event, callback) => {
      const at = listeners.findIndex(([name, known]) => name === event && known === callback);
      if (at >= 0) listeners.splice(at, 1);
    },
    send: (message) => window.sent.push(JSON.parse(JSON.stringify(message))),
  };
  window.fire = (event, ...values) => {
    for (const [name, callback] of [...listeners]) if (name === event) callback(...values);
  };
  window.deliver = (message) => window.fire("msg:custom", message);
  window.show = (id) => {
    const el = document.createElement("div");
    el.id = id;
    document.getElementById("out").append(el);
    return module.render({model: window.model, el});
  };
  window.cleanup = window.show("view");
}"""


def page_html(theme: str, inside: str, style: str = "") -> str:
    """A page with JupyterLab's variables of *theme*, or without any for ``none``."""
    flag = {"light": ' data-jp-theme-light="true"', "dark": ' data-jp-theme-light="false"'}
    return _PAGE % (LIGHT, DARK, style, theme, flag.get(theme, ""), inside)


class ViewPage:
    """One rendered view, and the messages that pass between it and its kernel."""

    def __init__(
        self,
        page: Any,
        theme: str = "light",
        *,
        module: str | None = None,
        traits: dict[str, Any] | None = None,
    ) -> None:
        self.page = page
        self.problems: list[str] = []
        self._listeners: dict[str, Callable[[Any], None]] = {
            "pageerror": lambda error: self.problems.append(str(error)),
            "dialog": self._note_dialog,
            "request": self._note_request,
        }
        page.goto("about:blank")  # a window without globals and listeners
        for event, listener in self._listeners.items():
            page.on(event, listener)
        page.set_content(page_html(theme, '<div id="out"></div>', css()))
        page.evaluate(_START, [module or esm(), traits or {}])

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith(("blob:", "data:", "about:")):
            self.problems.append(f"fetched {request.url}")

    def _note_dialog(self, dialog: Any) -> None:
        self.problems.append("dialog")
        dialog.dismiss()

    def leave(self) -> None:
        """Hear no more of the page, which somebody else may use."""
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)

    @property
    def sent(self) -> list[dict[str, Any]]:
        """What the view has sent to its kernel, in order."""
        found: list[dict[str, Any]] = self.page.evaluate("window.sent")
        return found

    def deliver(self, message: dict[str, Any]) -> None:
        """Hand the view one message from its kernel, and wait until it is drawn."""
        self.page.evaluate("message => window.deliver(message)", message)
        self.settle()

    def settle(self) -> None:
        """Wait for two frames: one to draw, one to have drawn."""
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def load(self, state: dict[str, Any], **more: Any) -> None:
        """Answer ``ready`` with *state*."""
        self.deliver({"kind": "snapshot", "state": state, "now_ms": 0, "expired": False, **more})


class QuestionPage(ViewPage):
    """The form of one question, and no Jupyter around it."""

    def __init__(self, page: Any, question: dict[str, Any], theme: str = "light") -> None:
        super().__init__(page, theme, module=question_esm(), traits={"question": question})
