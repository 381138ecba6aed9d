"""Text made safe to look at: nothing invisible, nothing that reorders, nothing a terminal obeys.

`views/static/text.js` does the same in the browser; a test holds the two together.
"""

from __future__ import annotations

import re
from typing import Final

# Control characters other than tab and newline; marks that reorder, join or hide text; tags.
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def visible(text: str) -> str:
    """*text* with control, bidi and zero-width characters written out as ``[U+202E]``.

    Carriage returns of line ends are dropped; lone surrogates become U+FFFD.
    """
    plain = _SURROGATE.sub("\ufffd", text.replace("\r\n", "\n"))
    return _HIDDEN.sub(lambda found: f"[U+{ord(found.group()):04X}]", plain)
