"""Looks for one stop string in a text that comes in pieces, in time proportional to the text. Knows no stream and no
tokens.
"""

from __future__ import annotations


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
