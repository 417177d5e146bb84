"""Bytes to streamed text: whole characters only, and nothing that may still become part of a stop string. Knows no tokens."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """Feed bytes, get text. After a stop string was found (`stopped` is it), text ends before it and nothing more comes out."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stop = tuple(word for word in stop if word)
        self._longest = max((len(word) for word in self._stop), default=0)
        self._held = ""
        self.stopped: str | None = None

    def feed(self, data: bytes) -> str:
        """The answer goes on with these bytes; returns the text that can no longer become part of a stop string."""
        if self.stopped is not None:
            return ""
        return self._release(self._decoder.decode(data))

    def finish(self) -> str:
        """What was held back. A character that never became whole comes out as U+FFFD."""
        if self.stopped is not None:
            return ""
        text = self._release(self._decoder.decode(b"", final=True))
        if self.stopped is None:
            text, self._held = text + self._held, ""
        return text

    def _release(self, text: str) -> str:
        if not self._stop:
            return text
        held = self._held + text
        found = [(at + len(word), at, word) for word in self._stop if (at := held.find(word)) >= 0]
        if found:
            _, at, self.stopped = min(found)  # the one that ends first: a run of ids must stop where single ids would have
            self._held = ""
            return held[:at]
        keep = self._partial(held)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def _partial(self, held: str) -> int:
        """Length of the longest end of held that begins a stop string."""
        for n in range(min(len(held), self._longest - 1), 0, -1):
            if any(word.startswith(held[-n:]) for word in self._stop):
                return n
        return 0
