"""Bytes to streamed text: whole characters only, and nothing that may still become part of a stop string. Knows no
ids.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class Search:
    """How much of a word the text ends with: Knuth, Morris and Pratt's search, whose table is built as far as the text
    has come.

    Names of control tokens may stand in the text. Each counts as a whole: a word is found only where it covers all of
    it.
    """

    __slots__ = ("_at", "_borders", "_names", "n", "word")

    def __init__(self, word: str) -> None:
        self.word = word
        self.n = 0  # characters of the word with which the text ends
        self._at = 0  # length of the text
        self._names: list[tuple[int, int]] = []  # where names lie in the part that matches
        self._borders = [0, 0]  # [n]: the longest shorter beginning of the word with which word[:n] ends

    def twin(self) -> Search:
        """Another one that has come as far."""
        other = Search(self.word)
        other.n, other._at, other._names, other._borders = self.n, self._at, self._names.copy(), self._borders
        return other

    @property
    def n_visible(self) -> int:
        """The same without the names."""
        return self.n - sum(end - start for start, end in self._names)

    @property
    def is_found(self) -> bool:
        """Whether the text ends with the word."""
        return self.n == len(self.word)

    def read(self, char: str) -> bool:
        """The text goes on with a character; returns whether it ends with the word now."""
        return self._advance(char)

    def read_name(self, name: str) -> bool:
        """The text goes on with the name of a control token."""
        start = self._at
        is_found = self._advance(name)
        if self.n:
            self._names.append((start, self._at))
        return is_found

    def go_on(self) -> None:
        """The word that was found does not count; one that begins inside it may."""
        self.n = self._shorter(self.n)
        self._forget()

    def _advance(self, part: str) -> bool:
        while self.n and not self.word.startswith(part, self.n):
            self.n = self._shorter(self.n)
        if self.word.startswith(part, self.n):
            self.n += len(part)
        self._at += len(part)
        if self._names:
            self._forget()
        return self.n == len(self.word)

    def _shorter(self, n: int) -> int:
        """The next shorter beginning of the word that ends where word[:n] does, and does not start inside a name."""
        n = self._border(n)
        while n and any(start < self._at - n < end for start, end in self._names):
            n = self._border(n)
        return n

    def _border(self, n: int) -> int:
        borders, word = self._borders, self.word
        while len(borders) <= n:
            k = borders[-1]
            while k and word[k] != word[len(borders) - 1]:
                k = borders[k]
            borders.append(k + (word[k] == word[len(borders) - 1]))
        return borders[n]

    def _forget(self) -> None:
        first = self._at - self.n
        self._names = [(start, end) for start, end in self._names if start >= first]


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
        matched = [search for search in self._named if search.read_name(name)]
        if matched and may_stop:
            return self._stop(self._held, matched)
        for search in matched:
            search.go_on()
        return self._keep(self._held)

    def finish(self) -> str:
        """The text that was held back. A character that never became whole comes out as U+FFFD."""
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
            matched = [search for search in self._searches() if search.read(char)]
            if (
                matched and may_stop
            ):  # the one that ends first: several ids at once must stop where single ids would have
                return self._stop(held + text[:n], matched)
            for search in matched:
                search.go_on()
        return self._keep(held + text)

    def _searches(self) -> Sequence[Search]:
        return (*self._plain, *self._named) if self._named else self._plain

    def _stop(self, text: str, matched: Sequence[Search]) -> str:
        longest = max(matched, key=lambda search: (search.n_visible, len(search.word)))
        self.stopped, self._held = longest.word, ""
        return text if self._keeps_stop else text[: len(text) - longest.n_visible]

    def _keep(self, text: str) -> str:
        """Holds back what may become part of a stop string; returns the rest."""
        searches = self._searches()
        self._is_matching = any(search.n for search in searches)
        n_released = len(text) - max(search.n_visible for search in searches)
        self._held = text[n_released:]
        return text[:n_released]
