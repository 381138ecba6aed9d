"""Output of code that the model runs: shown in the cell as it comes, and kept for the model."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from op_jupyter.core.messages import ImageBlock, TextBlock
from op_jupyter.tools.figures import image_block
from op_jupyter.tools.summaries import without_addresses

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

HEAD_CHARS: Final = 60_000
TAIL_CHARS: Final = 20_000
PICTURES: Final = 3

Redact = Callable[[str], str]


class Transcript:
    """The output of one run: the first and the last of its text, and its first pictures."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._head: list[str] = []
        self._room = HEAD_CHARS
        self._tail: deque[str] = deque()
        self._tail_chars = 0
        self._cut_chars = 0
        self._pictures: list[ImageBlock] = []

    def write(self, text: str) -> None:
        """Add *text*."""
        with self._lock:
            self._head.append(text[: self._room])
            rest = text[self._room :]
            self._room -= min(self._room, len(text))
            if rest:
                self._add_tail(rest)

    def write_block(self, text: str) -> None:
        """Add *text* as lines of its own."""
        self.write(text if text.endswith("\n") else f"{text}\n")

    def draw(self, picture: ImageBlock | None) -> None:
        """Add a picture, or say that there was one."""
        if picture is None or len(self._pictures) >= PICTURES:
            self.write_block("[an image that is not shown here]")
            return
        self._pictures.append(picture)
        self.write_block(f"[image {len(self._pictures)}]")

    def content(self) -> tuple[TextBlock | ImageBlock, ...]:
        """Everything as content for the model."""
        text = without_addresses(self._text()).rstrip("\n")
        return (TextBlock(text or "(no output)"), *self._pictures)

    def _add_tail(self, text: str) -> None:
        self._tail.append(text)
        self._tail_chars += len(text)
        while self._tail_chars > 2 * TAIL_CHARS:  # joined seldom, so that short writes stay cheap
            joined = "".join(self._tail)
            self._cut_chars += len(joined) - TAIL_CHARS
            self._tail = deque((joined[-TAIL_CHARS:],))
            self._tail_chars = TAIL_CHARS

    def _text(self) -> str:
        head, tail = "".join(self._head), "".join(self._tail)
        if not self._cut_chars and len(tail) <= TAIL_CHARS:
            return head + tail
        whole = len(head) + len(tail) + self._cut_chars
        # Cut between words: half a secret would not be recognised as one.
        head, tail = _whole_words(head), _whole_words(tail[-TAIL_CHARS:][::-1])[::-1]
        cut = whole - len(head) - len(tail)
        return f"{head}\n… {cut} characters cut; whole: the output of the cell …\n{tail}"


def _whole_words(text: str) -> str:
    """*text* without its last word, when that is not too long to be one."""
    end = max(text.rfind(" ", -1000), text.rfind("\n", -1000))
    return text[:end] if end > 0 else text


class _Tee:
    """A stream that writes through, and into a transcript while there is one.

    What takes hold of it (a log handler, a progress bar) goes on writing to the cell later.
    """

    def __init__(self, stream: Any, transcript: Transcript, redact: Redact) -> None:
        self._stream = stream
        self._redact = redact
        self.transcript: Transcript | None = transcript

    def write(self, text: str) -> int:
        if self.transcript is not None:
            self.transcript.write(text)
        self._stream.write(self._redact(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _DisplayTee:
    """A display publisher that publishes, and notes what the running code displays."""

    def __init__(self, publisher: Any, transcript: Transcript, redact: Redact) -> None:
        self._publisher = publisher
        self._transcript = transcript
        self._redact = redact
        self.threads = {threading.get_ident()}

    def publish(self, data: Mapping[str, Any], metadata: Any = None, **more: Any) -> None:
        if threading.get_ident() in self.threads and not more.get("update"):
            _note(data, self._transcript)
        shown = {
            mime: self._redact(value)
            if mime.startswith("text/") and isinstance(value, str)
            else value
            for mime, value in data.items()
        }
        with _unheard():
            self._publisher.publish(shown, metadata or {}, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._publisher, name)


def _note(data: Mapping[str, Any], transcript: Transcript) -> None:
    """Write what the model should see of one displayed value."""
    for mime in ("image/png", "image/jpeg"):
        if mime in data:
            transcript.draw(image_block(data[mime], mime))
            return
    plain = data.get("text/plain", "")
    if plain.startswith("<IPython.core.display."):
        plain = data.get("text/markdown") or data.get("text/latex") or plain
    if plain:
        transcript.write_block(plain)


@contextmanager
def _unheard() -> Iterator[None]:
    """A terminal shows a displayed value by printing it, which is not printed twice."""
    tees = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, _Tee)]
    before = [tee.transcript for tee in tees]
    for tee in tees:
        tee.transcript = None
    try:
        yield
    finally:
        for tee, transcript in zip(tees, before, strict=True):
            tee.transcript = transcript


@contextmanager
def captured(shell: InteractiveShell, transcript: Transcript, redact: Redact) -> Iterator[set[int]]:
    """Note everything that is printed or displayed inside.

    Yields the ids of the threads whose displays are noted; this thread's is among them.
    """
    out, err, publisher = sys.stdout, sys.stderr, shell.display_pub
    tees = _Tee(out, transcript, redact), _Tee(err, transcript, redact)
    display: Any = _DisplayTee(publisher, transcript, redact)
    sys.stdout, sys.stderr, shell.display_pub = *tees, display
    try:
        yield display.threads
    finally:
        sys.stdout, sys.stderr, shell.display_pub = out, err, publisher
        for tee in tees:
            tee.transcript = None
