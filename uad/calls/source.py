"""Text that comes in pieces, for parsers that are generators: they yield where they need more of it. Knows no
format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")
Wait = Generator[None, None, T]
Tell = Callable[[str], None]
_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')
_SCALAR = re.compile(r"[-+.\w]")


class MalformedError(Exception):
    """The text is not what the format wants."""


class Words:
    """Texts to look for. Of those that begin at one place the longest counts."""

    def __init__(self, *texts: str) -> None:
        self.texts = tuple(sorted({text for text in texts if text}, key=len, reverse=True))
        self.pattern = re.compile("|".join(map(re.escape, self.texts)) or r"(?!)")
        self.beginnings = frozenset(text[:n] for text in self.texts for n in range(len(text)))
        self.longest = max(map(len, self.texts), default=0)

    def held_from(self, text: str, at: int) -> int:
        """Where the longest end of the text begins that may become a word; its length where none does."""
        for start in range(max(at, len(text) - self.longest + 1), len(text)):
            if text[start:] in self.beginnings:
                return start
        return len(text)


@lru_cache(maxsize=512)
def words(*texts: str) -> Words:
    """Such texts, kept for the next time. Empty ones do not count."""
    return Words(*texts)


class FormatSource:
    """The text so far, and how much of it is read. From `mark` on it is kept, to be read again."""

    def __init__(self) -> None:
        self.at = 0
        self.n_gone = 0  # characters that are forgotten
        self.n_again = 0  # characters that had to be read again
        self._text = ""
        self._mark: int | None = None
        self._is_ended = False

    def add(self, text: str) -> None:
        """More text. What is read and not marked is forgotten."""
        kept = self.at if self._mark is None else self._mark
        self._text = self._text[kept:] + text
        self.n_gone += kept
        self.at -= kept
        if self._mark is not None:
            self._mark = 0

    @property
    def place(self) -> int:
        """How many characters of the whole text are read."""
        return self.n_gone + self.at

    def end(self) -> None:
        """No more text comes."""
        self._is_ended = True

    def set_mark(self, back: int = 0) -> None:
        """Keep the text from `back` characters before this place on."""
        self._mark = self.at - back

    def rewind(self) -> None:
        """Go back to the mark, which stays."""
        if self._mark is None:
            raise AssertionError("there is no mark")
        self.n_again += self.at - self._mark
        self.at = self._mark

    @property
    def is_marked(self) -> bool:
        """Whether the text can be read again."""
        return self._mark is not None

    def clear_mark(self) -> None:
        """What is read now need not be kept."""
        self._mark = None

    def more(self) -> Wait[bool]:
        """Wait for more text; false at its end."""
        if self._is_ended:
            return False
        yield
        return True

    def peek(self) -> Wait[str]:
        """The next character; empty at the end."""
        while self.at == len(self._text):
            if not (yield from self.more()):
                return ""
        return self._text[self.at]

    def blank(self) -> Wait[None]:
        """Pass over white space."""
        while (yield from self.peek()).isspace():
            self.at += 1

    def take(self, wanted: Words) -> Wait[str]:
        """Pass over the word that stands here, and return it; empty where none does."""
        while self._text[self.at : self.at + wanted.longest] in wanted.beginnings:
            if not (yield from self.more()):
                break
        found = wanted.pattern.match(self._text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found[0]

    def until(self, wanted: Words, tell: Tell) -> Wait[str]:
        """Tell the text up to the next word, pass over that, and return it; empty where the text ends first."""
        while True:
            held = len(self._text) if self._is_ended else wanted.held_from(self._text, self.at)
            found = wanted.pattern.search(self._text, self.at)
            if found is not None and (found.start() < held or self._is_ended):
                self._tell(found.start(), tell)
                self.at = found.end()
                return found[0]
            self._tell(held if found is None else min(held, found.start()), tell)
            if not (yield from self.more()):
                return ""

    def collect(self, wanted: Words, limit: int) -> Wait[tuple[str, str]]:
        """The text up to the next word, and the word, which is passed over.

        Raises MalformedError behind `limit` characters or at the end.
        """
        pieces: list[str] = []
        size = 0

        def add(text: str) -> None:
            nonlocal size
            pieces.append(text)
            size += len(text)
            if size > limit:
                raise MalformedError("too long")

        word = yield from self.until(wanted, add)
        if not word:
            raise MalformedError("the text ends")
        return "".join(pieces), word

    def json(self, tell: Tell) -> Wait[None]:
        """Tell the text of one JSON value, as it comes. Only brackets and quotation marks are checked. Raises
        MalformedError.
        """
        yield from self.blank()
        first = yield from self.peek()
        if first and first in '{["':
            yield from self._brackets(tell)
        elif _SCALAR.match(first):
            while _SCALAR.match((yield from self.peek())):
                self._tell(self.at + 1, tell)
        else:
            raise MalformedError("no value")

    def _brackets(self, tell: Tell) -> Wait[None]:
        closers: list[str] = []
        in_string = skips = False
        while True:
            i = self.at
            while i < len(self._text):
                if skips:
                    i, skips = i + 1, False
                    continue
                found = (_INSIDE if in_string else _OUTSIDE).search(self._text, i)
                if found is None:
                    i = len(self._text)
                    break
                i, char = found.end(), found[0]
                if char == "\\":
                    skips = True
                elif char == '"':
                    in_string = not in_string
                elif char in "{[":
                    closers.append("}" if char == "{" else "]")
                elif not closers or closers.pop() != char:
                    self._tell(i - 1, tell)
                    raise MalformedError("brackets do not match")
                if not closers and not in_string and char != "\\":
                    self._tell(i, tell)
                    return
            self._tell(i, tell)
            if not (yield from self.more()):
                raise MalformedError("the text ends")

    def _tell(self, end: int, tell: Tell) -> None:
        text, self.at = self._text[self.at : end], end
        if text:
            tell(text)
