"""What can be configured in a notebook: ``%config AgentMagics``, or ``c.AgentMagics.… = …``."""

from __future__ import annotations

from typing import Any, Final

from traitlets import Bool, Enum, Instance, Int, List, Unicode
from traitlets.config import Configurable

from op_jupyter.bootstrap import settings
from op_jupyter.config.settings import CHOICES, Settings
from op_jupyter.core.turn import MAX_MODEL_CALLS
from op_jupyter.engine.runtime import Runtime

_SHARED: Final = ("provider", "model", "home", "mode", "replay", "cassette", "answer_timeout")


class AgentMagics(Configurable):
    """Settings of ``%%agent`` and ``%agent``.

    An empty value leaves the choice to the environment, then to the user's file.
    """

    provider = Unicode("", help="Provider: anthropic, local, … Empty: the configured one.").tag(
        config=True
    )
    model = Unicode("", help="Model. Empty: the provider's default.").tag(config=True)
    runtime = Instance(
        Runtime,
        allow_none=True,
        help="A Runtime of your own, used instead of a provider unless --provider is given.",
    ).tag(config=True)
    home = Unicode("", help="Folder for stored sessions.").tag(config=True)
    mode = Enum(("", *CHOICES["mode"]), "", help="Permission mode of new sessions.").tag(
        config=True
    )
    replay = Enum(("", *CHOICES["replay"]), "", help="Record model calls, or replay them.").tag(
        config=True
    )
    cassette = Unicode("", help="File for recorded model calls. Empty: beside the notebook.").tag(
        config=True
    )
    answer_timeout = Unicode(
        "", help="Seconds until an unanswered card is denied. Empty: it waits."
    ).tag(config=True)
    session = Unicode("", help="Session to continue when the extension is loaded.").tag(config=True)
    resume = Enum(
        ("ask", "auto", "never"),
        "ask",
        help="What to do with the notebook's earlier session after a restart.",
    ).tag(config=True)
    on_rerun = Enum(
        ("fork", "append", "replay"),
        "fork",
        help="When a cell runs again: fork (replace its earlier turn on a new branch), append, or "
        "replay (show the earlier answer if the cell is unchanged).",
    ).tag(config=True)
    workspace = Unicode("", help="Folder that tools work in. Empty: the current one.").tag(
        config=True
    )
    tools = List(Unicode(), help="Tools to offer. Empty: python, inspect and the file tools.").tag(
        config=True
    )
    extra_tools = List(
        Unicode(), help="Optional tools to offer as well: shell, remember, recall."
    ).tag(config=True)
    budget = Int(0, min=0, help="Token budget of a turn. 0: unlimited.").tag(config=True)
    max_steps = Int(MAX_MODEL_CALLS, min=1, help="Most model calls of a turn.").tag(config=True)
    quiet = Bool(False, help="Show nothing; only return results.").tag(config=True)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # What `%config` sets later is this notebook's own choice.
        self._loaded = {name: getattr(self, name) for name in self.traits(config=True)}

    def chosen(self) -> dict[str, tuple[object, str]]:
        """What a notebook alone has to say that is not the default, and where that was said."""
        found: dict[str, tuple[object, str]] = {}
        for name, trait in sorted(self.traits(config=True).items()):
            value = getattr(self, name)
            if name not in (*_SHARED, "runtime") and value != trait.default():
                as_loaded = value == self._loaded[name]
                found[name] = (value, "IPython's configuration" if as_loaded else "this notebook")
        return found

    def settings(self, **flags: str | None) -> Settings:
        """Every setting that is not about notebooks alone: *flags* first, then these traits.

        Raises:
            ConfigurationError: the user's file cannot be used.
        """
        traits = {name: getattr(self, name) or None for name in _SHARED}
        return settings({**traits, **{k: v for k, v in flags.items() if v}})
