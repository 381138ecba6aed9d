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

    provider = Unicode(
        "", help="Model service: anthropic, local, … Empty: the configured one."
    ).tag(config=True)
    model = Unicode("", help="Model to ask. Empty: the provider's default.").tag(config=True)
    runtime = Instance(
        Runtime,
        allow_none=True,
        help="A Runtime of your own to ask; --provider still names another service.",
    ).tag(config=True)
    home = Unicode("", help="Folder that sessions are kept in.").tag(config=True)
    mode = Enum(("", *CHOICES["mode"]), "", help="Permission mode of a new session.").tag(
        config=True
    )
    replay = Enum(
        ("", *CHOICES["replay"]), "", help="Record model calls, or play recorded ones."
    ).tag(config=True)
    cassette = Unicode("", help="File of recorded model calls. Empty: beside the notebook.").tag(
        config=True
    )
    answer_timeout = Unicode(
        "", help="Seconds until a card that nobody answers is a denial. Empty: it waits."
    ).tag(config=True)
    session = Unicode("", help="Session to go on with when the extension is loaded.").tag(
        config=True
    )
    resume = Enum(
        ("ask", "auto", "never"),
        "ask",
        help="What to do with the notebook's earlier session after a restart.",
    ).tag(config=True)
    on_rerun = Enum(
        ("fork", "append", "replay"),
        "fork",
        help="A cell that is run again takes the place of its earlier turn, follows it, or, "
        "unchanged, shows what that turn said.",
    ).tag(config=True)
    workspace = Unicode("", help="Folder that the tools work in. Empty: the current one.").tag(
        config=True
    )
    tools = List(
        Unicode(), help="Tools that are offered. Empty: python, inspect and the file tools."
    ).tag(config=True)
    extra_tools = List(
        Unicode(), help="Tools that are offered as well and have to be asked for: shell."
    ).tag(config=True)
    budget = Int(0, min=0, help="Most tokens of one turn. 0: any number.").tag(config=True)
    max_steps = Int(MAX_MODEL_CALLS, min=1, help="Most model calls of one turn.").tag(config=True)
    quiet = Bool(False, help="Show nothing of a turn; its result alone.").tag(config=True)

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
