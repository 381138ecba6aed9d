"""Whether model services may be asked from here: a test run that replays forbids it."""

from __future__ import annotations

import os
from typing import Final

from op_jupyter.errors import ConfigurationError

RECORD_WITH: Final = "OPENPROGRAM_RECORD_WITH"
"""When it is set, no service is asked; its value is the command that records what is missing."""


def check_live(service: str) -> None:
    """Refuse to ask *service* where live calls are forbidden.

    Raises:
        ConfigurationError: they are; says how to record.
    """
    command = os.environ.get(RECORD_WITH)
    if command:
        raise ConfigurationError(
            f"this would ask {service}, and live calls are forbidden here; record it with: "
            f"{command}"
        )
