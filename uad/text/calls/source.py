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
OnCut = Callable[[str], None]
MAX_BLANKS = 1024
"""Characters of white space that are waited through to see what stands after them."""
_BLANKS = rf"\s{{0,{MAX_BLANKS}}}"


class MalformedError(Exception):
    """The text is not what the format wants."""


class EndedError(MalformedError):
    """The text ends where more of it is wanted."""

    def __init__(self) -> None:
        super().__init__("the text ends")


class SoughtTexts:
    """Texts to look for. Of those that begin at one place the longest counts."""

    def __init__(self, *texts: str) -> None:
        self.texts = tuple(sorted({text for text in texts if text}, key=len, reverse=True))
        self.pattern = re.compile("|".join(map(re.escape, self.texts)) or r"(?!)")
        self.beginnings = frozenset(text[:n] for text in self.texts for n in range(len(text)))
        self.longest = max(map(len, self.texts), default=0)

    def held_from(self, text: str, at: int) -> int:
        """Where the longest end of the text begins that may become a word; its length where none does."""
        # With the word "<tool_call>" the text "so <to" is held from 3: "<to" may go on as the word, "so " cannot.
        for start in range(max(at, len(text) - self.longest + 1), len(text)):
            if text[start:] in self.beginnings:
                return start
        return len(text)


@lru_cache(maxsize=512)
def words(*texts: str) -> SoughtTexts:
    """Such texts, kept for the next time. Empty ones do not count."""
    return SoughtTexts(*texts)


class Following:
    """The text that may follow a value: white space, and then `after`, a regular expression, or one of `stops`; before
    that a comma too many, if there are commas.

    begun: a regular expression for the beginning of `after`, `starts` texts with which it begins.
    """

    # Why a beginning needs an expression of its own: `re` says whether a text matches, not whether more of it could.
    # A string in `{"a": "x", "b": 1}` ends at a mark that `,\s*"` follows. Where the text so far is `{"a": "x", `, the
    # mark after x may be its end, but nothing matches `after` yet; `begun` (`,\s*`) does, so the reader waits for more.

    def __init__(self, after: str, begun: str, stops: SoughtTexts, starts: SoughtTexts, commas: bool) -> None:
        gap = _BLANKS + (rf"(?:,{_BLANKS})?" if commas else "")
        self.pattern = re.compile(rf"{_BLANKS}(?:{after})|{gap}(?:{stops.pattern.pattern})")
        self._gap = re.compile(gap)
        self._begun = re.compile(rf"{_BLANKS}(?:{begun})\Z")
        self._beginnings = stops.beginnings | starts.beginnings
        self._longest = max(stops.longest, starts.longest)

    def may_follow(self, text: str, at: int) -> bool:
        """Whether the text from here on is the beginning of what may follow."""
        after_gap = self._gap.match(text, at).end()  # type: ignore[union-attr]
        if after_gap == len(text):
            return True  # the gap itself is bounded
        if len(text) - after_gap < self._longest and text[after_gap:] in self._beginnings:
            return True
        return self._begun.match(text, at) is not None


class MarkedText:
    """The text so far, and how much of it is read. From `mark` on it is kept, to be read again."""

    def __init__(self) -> None:
        self.at = 0
        self.n_gone = 0  # characters that are forgotten
        self.n_again = 0  # characters that had to be read again
        self._text = ""
        self._mark: int | None = None
        self._is_ended = False
        self.is_cut = False  # the text ended before the model did

    def add(self, text: str) -> None:
        """Add more text. Text that is read and not marked is forgotten."""
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

    def end(self, is_cut: bool) -> None:
        """No more text comes. is_cut: the model did not end it."""
        self._is_ended, self.is_cut = True, is_cut

    def set_mark(self, back: int = 0) -> None:
        """Keep the text from `back` characters before this place on."""
        self._mark = self.at - back

    @property
    def is_marked(self) -> bool:
        """Whether the text can be read again."""
        return self._mark is not None

    def rewind(self) -> None:
        """Go back to the mark, which goes: what is read from here on need not be kept."""
        if self._mark is None:
            raise AssertionError("there is no mark")
        self.n_again += self.at - self._mark
        self.at, self._mark = self._mark, None

    def clear_mark(self) -> None:
        """Clear the mark: text that is read need not be kept."""
        self._mark = None

    def rest(self) -> str:
        """The text that is not read yet."""
        return self._text[self.at :]

    def tell_match(self, pattern: re.Pattern[str], tell: OnCut) -> None:
        """Emit what matches here, as far as the text has come."""
        match = pattern.match(self._text, self.at)
        self._tell(match.end() if match else self.at, tell)

    def tell_all(self, tell: OnCut) -> None:
        """Emit what is not read yet."""
        self._tell(len(self._text), tell)

    def _tell(self, end: int, tell: OnCut) -> None:
        text, self.at = self._text[self.at : end], end
        if text:
            tell(text)


class FormatSource(MarkedText):
    """The same text for readers that wait for more of it."""

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

    def blanks(self) -> Wait[str]:
        """Pass over white space, and return it."""
        pieces: list[str] = []
        while (char := (yield from self.peek())).isspace():
            pieces.append(char)
            self.at += 1
        return "".join(pieces)

    def expect(self, text: str) -> Wait[None]:
        """Pass over this text, and white space before it; raises MalformedError where it is missing."""
        yield from self.blanks()
        if not (yield from self.take(words(text))):
            raise MalformedError(f"{text} is missing")

    def stands(self, wanted: SoughtTexts) -> Wait[bool]:
        """Whether one of the words stands here."""
        word = yield from self.take(wanted)
        self.at -= len(word)
        return bool(word)

    def match(self, pattern: re.Pattern[str], n: int) -> Wait[str]:
        """Pass over what matches here, for which `n` characters must be known, and return it."""
        while len(self._text) - self.at < n:
            if not (yield from self.more()):
                break
        match = pattern.match(self._text, self.at)
        self.at += len(match[0]) if match else 0
        return match[0] if match else ""

    def follows(self, ends: Following, n_on: int) -> Wait[bool]:
        """Whether such an end stands `n_on` characters further on. The end of the text is one."""
        while not ends.pattern.match(self._text, self.at + n_on):
            if not ends.may_follow(self._text, self.at + n_on):
                return False
            if not (yield from self.more()):
                return True
        return True

    def take(self, wanted: SoughtTexts) -> Wait[str]:
        """Pass over the word that stands here, and return it; empty where none does."""
        while self._text[self.at : self.at + wanted.longest] in wanted.beginnings:
            if not (yield from self.more()):
                break
        match = wanted.pattern.match(self._text, self.at)
        if match is None:
            return ""
        self.at = match.end()
        return match[0]

    def until(self, wanted: SoughtTexts, tell: OnCut) -> Wait[str]:
        """Emit the text up to the next word, pass over that, and return it; empty where the text ends first."""
        # Text that may yet become a word is kept back. A word that begins in it does not count yet, either: of "</a"
        # and "</a>" the longer one counts, so at the end of "x</a" the shorter one must wait for the next letter.
        while True:
            held = len(self._text) if self._is_ended else wanted.held_from(self._text, self.at)
            match = wanted.pattern.search(self._text, self.at)
            if match is not None and (match.start() < held or self._is_ended):
                self._tell(match.start(), tell)
                self.at = match.end()
                return match[0]
            self._tell(held if match is None else min(held, match.start()), tell)
            if not (yield from self.more()):
                return ""

    def value(self, marks: SoughtTexts, ends: Following, tell: OnCut) -> Wait[bool]:
        """Emit the text up to the first of the marks that an end follows, and pass over that; false where the text
        ends first.
        """
        while word := (yield from self.until(marks, tell)):
            if (yield from self.is_last(word, ends, tell)):
                return True
        return False

    def is_last(self, word: str, ends: Following, tell: OnCut) -> Wait[bool]:
        """Whether an end follows this word, which has been passed over. If not, its first letter is emitted, and the
        rest is to be read again: the mark that is looked for may begin in it.
        """
        self.at -= len(word)
        is_last = yield from self.follows(ends, len(word))
        if is_last:
            self.at += len(word)
        else:
            self._tell(self.at + 1, tell)
        return is_last

    def collect(self, wanted: SoughtTexts, limit: int) -> Wait[tuple[str, str]]:
        """The text up to the next word, and the word, which is passed over.

        Raises MalformedError after `limit` characters or at the end.
        """
        pieces: list[str] = []
        word = yield from self.until(wanted, bounded(pieces, limit))
        if not word:
            raise EndedError
        return "".join(pieces), word


def bounded(pieces: list[str], limit: int) -> OnCut:
    """Adds to the pieces. Raises MalformedError after `limit` characters."""
    size = 0

    def add(text: str) -> None:
        nonlocal size
        pieces.append(text)
        size += len(text)
        if size > limit:
            raise MalformedError("too long")

    return add
