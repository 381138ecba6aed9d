"""What may be stored, shown and sent: no secrets, and no text that UTF-8 cannot carry."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from op_jupyter.core.redact import Redactor, secrets_of

T = TypeVar("T")

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def well_formed(text: str) -> str:
    """*text* with lone surrogates, which are half characters, replaced."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return _SURROGATE.sub("\ufffd", text)


class _Cleaning(Redactor):
    def text(self, text: str) -> str:
        return super().text(well_formed(text))

    def _is_clean(self, text: str) -> bool:
        return super()._is_clean(text) and well_formed(text) is text


class Cleaner:
    """Cleans texts and JSON values of the secrets of *environ*.

    A notebook sets keys while it runs, so the environment is looked at again whenever it has
    changed.  A secret that was once there stays one.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        # What `os.environ` keeps, encoded; to compare that takes a hundredth of the time, and
        # this is done for everything that is stored or shown.
        self._raw: Mapping[Any, Any] = getattr(environ, "_data", environ)
        self._seen: Mapping[Any, Any] = {}
        self._secrets: frozenset[str] = frozenset()
        self._cleaning = _Cleaning()
        self._lock = threading.Lock()

    def json(self, value: T) -> T:
        """The JSON *value*, clean."""
        return self._current().json(value)

    def text(self, text: str) -> str:
        """*text*, clean."""
        return self._current().text(text)

    def _current(self) -> Redactor:
        if self._raw != self._seen:
            with self._lock:  # calls in several threads of one worker share it
                seen = dict(self._raw)
                self._secrets |= set(secrets_of(dict(self._environ)))
                self._cleaning, self._seen = _Cleaning(self._secrets), seen
        return self._cleaning
