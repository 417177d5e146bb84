"""Bytes to streamed text: whole characters only, and nothing that may still become part of a stop string. Knows no
ids.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from uad.decode.search import Search


class TextStream:
    """Feed bytes and names of control tokens, get text. After a stop string was found (`stopped` is it) nothing more
    comes out.

    Text ends before the stop string, or after it if `keeps_stop`. Names never come out, but a stop string may contain
    them.
    """

    def __init__(self, stop: Sequence[str] = (), keeps_stop: bool = False) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._plain = [Search(word) for word in dict.fromkeys(stop) if word]
        self._named: list[Search] = []  # in the text with names in it, from the first of them on
        self._firsts = frozenset(search.word[0] for search in self._plain)
        self._keeps_stop = keeps_stop
        self._held = ""
        self._is_matching = False
        self.stopped: str | None = None
        self.decoded = ""  # the characters that the last bytes completed

    def feed(self, data: bytes, may_stop: bool = True) -> str:
        """The answer goes on with these bytes; returns the text that can no longer become part of a stop string.

        Without may_stop a stop string that ends here is text like any other.
        """
        if self.stopped is not None:
            return ""
        self.decoded = self._decoder.decode(data)
        return self._release(self.decoded, may_stop)

    def feed_name(self, name: str, may_stop: bool = True) -> str:
        """The answer goes on with a control token of this name, which is no text."""
        if self.stopped is not None or not self._plain or not name:
            return ""
        self._named = self._named or [search.twin() for search in self._plain]
        found = [search for search in self._named if search.read_name(name)]
        if found and may_stop:
            return self._stop(self._held, found)
        for search in found:
            search.go_on()
        return self._keep(self._held)

    def finish(self) -> str:
        """What was held back. A character that never became whole comes out as U+FFFD."""
        if self.stopped is not None:
            return ""
        text = self._release(self._decoder.decode(b"", final=True), may_stop=True)
        if self.stopped is None:
            text, self._held = text + self._held, ""
        return text

    def _release(self, text: str, may_stop: bool) -> str:
        if not self._is_matching and self._firsts.isdisjoint(text):
            return text
        held = self._held
        for n, char in enumerate(text, 1):
            found = [search for search in self._searches() if search.read(char)]
            if found and may_stop:  # the one that ends first: several ids at once must stop where single ids would have
                return self._stop(held + text[:n], found)
            for search in found:
                search.go_on()
        return self._keep(held + text)

    def _searches(self) -> Sequence[Search]:
        return (*self._plain, *self._named) if self._named else self._plain

    def _stop(self, text: str, found: Sequence[Search]) -> str:
        longest = max(found, key=lambda search: (search.n_visible, len(search.word)))
        self.stopped, self._held = longest.word, ""
        return text if self._keeps_stop else text[: len(text) - longest.n_visible]

    def _keep(self, text: str) -> str:
        """Holds back what may become part of a stop string; returns the rest."""
        searches = self._searches()
        self._is_matching = any(search.n for search in searches)
        n_released = len(text) - max(search.n_visible for search in searches)
        self._held = text[n_released:]
        return text[:n_released]
