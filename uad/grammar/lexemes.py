"""Where a text may be cut into lexemes without changing what a grammar means. Knows no notation.

llguidance takes the longest match: a lexeme goes on as long as any lexeme can. With `num: /[0-9]+[ \\n]*/` and
`line: num "\\n"` the text `12\\n` is a whole `num`, and the line never ends. So a lexeme is cut up that could take what
may follow another one (here: itself). `[ \\n]*` becomes single characters, and `[0-9]+` may stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TypeAlias

from uad.errors import InvalidRequestError
from uad.grammar.gbnf_reader import Chars, Either, GbnfText, Node, Ref, Repeat, Seq

_MOST_PLACES = 2000  # characters of one lexeme; a larger one is cut
_MOST_PAIRS = 200_000  # some 0.4 s
_MOST_COPIES = 3  # of what is repeated; more are looked at as any number
_BYTES = (1 << 256) - 1


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A node that is one lexeme."""

    node: Node


Tree: TypeAlias = Lexeme | Node
"""A node whose parts are trees; what has no lexeme around it is a rule or empty."""


@dataclass(frozen=True)
class Plan:
    """A grammar of lexemes. trees: the rules that are made of lexemes. rules: those that lexemes are made of."""

    trees: Mapping[str, Tree]
    rules: Mapping[str, Node]


def overrun(plan: Plan) -> set[Node]:
    """The lexemes that might take a character which should follow another lexeme."""
    if len(plan.trees) == 1 and isinstance(plan.trees["root"], Lexeme):
        return set()  # nothing follows
    found = set[Node]()
    places, lexemes = _Places(plan.rules), dict[Node, _Word]()
    for node in dict.fromkeys(_lexemes_in(plan.trees.values())):
        try:
            lexemes[node] = places.word(node)
        except _TooLargeError:
            found.add(node)
    return found or _overrun(places, lexemes, _Follow(plan.trees, lexemes, places).by_lexeme)


def _overrun(places: _Places, lexemes: Mapping[Node, _Word], follow: Mapping[Node, int]) -> set[Node]:
    """Walks through all words that begin two lexemes, side by side."""
    owner = {place: node for node, word in lexemes.items() for place in word.all}
    last = {place for word in lexemes.values() for place in word.last}
    firsts = [place for word in lexemes.values() for place in word.first]
    found: set[Node] = set()
    waiting = [(one, other) for one in firsts for other in firsts if places.bytes[one] & places.bytes[other]]
    seen = set(waiting)
    while waiting:
        one, other = waiting.pop()
        more = places.next[other]
        if one in last and any(places.bytes[place] & follow[owner[one]] for place in more):
            found.add(owner[other])
        pairs = ((a, b) for a in places.next[one] for b in more if places.bytes[a] & places.bytes[b])
        new = {pair for pair in pairs if pair not in seen}
        seen |= new
        waiting += new
        if len(seen) > _MOST_PAIRS:
            raise InvalidRequestError("failed to parse grammar: too much of it begins alike; send a simpler one")
    return found


def _lexemes_in(trees: Iterable[Tree]) -> Iterator[Node]:
    waiting = [*trees]
    while waiting:
        match waiting.pop():
            case Lexeme(node):
                yield node
            case Seq(parts) | Either(parts):
                waiting += parts
            case Repeat(part):
                waiting.append(part)


class _TooLargeError(Exception):
    """A lexeme has too many characters to be looked at."""


@dataclass
class _Word:
    """The places of a lexeme's characters: the first and last ones, and all. can_be_empty: the lexeme itself."""

    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    can_be_empty: bool = True
    all: range = range(0)


class _Places:
    """Places of characters in lexemes (Glushkov's automaton): which bytes begin the character, and what follows it."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._rules = rules
        self._limit = 0
        self.bytes: list[int] = []
        self.next: list[set[int]] = []

    def word(self, node: Node) -> _Word:
        """A lexeme, whose characters get places. Raises _TooLargeError."""
        start = len(self.bytes)
        self._limit = start + _MOST_PLACES
        try:
            word = self._word(node)
        except RecursionError:
            raise _TooLargeError from None
        finally:
            del self.bytes[self._limit :], self.next[self._limit :]
        word.all = range(start, len(self.bytes))
        return word

    def _word(self, node: Node) -> _Word:
        match node:
            case GbnfText(text):
                return self._row([self._one(_first_bytes(((char, char),))) for char in text])
            case Chars(ranges, negated):
                return self._one(_others(ranges) if negated else _first_bytes(ranges))
            case Ref(name):
                return self._word(self._rules[name])
            case Seq(parts):
                return self._row(map(self._word, parts))
            case Either(parts):
                words = [self._word(part) for part in parts]
                return _Word(
                    [place for word in words for place in word.first],
                    [place for word in words for place in word.last],
                    any(word.can_be_empty for word in words),
                )
            case Repeat(part, low, high):
                return self._row(self._copies(part, low, high))
        raise AssertionError(node)

    def _one(self, bytes_: int) -> _Word:
        if len(self.bytes) >= self._limit:
            raise _TooLargeError
        self.bytes.append(bytes_)
        self.next.append(set())
        place = len(self.bytes) - 1
        return _Word([place], [place], can_be_empty=False)

    def _copies(self, part: Node, low: int, high: int | None) -> Iterator[_Word]:
        """So many of a part; more than a few count as any number, which allows more and misses nothing."""
        for _ in range(min(low, _MOST_COPIES)):
            yield self._word(part)
        if high is not None and high <= _MOST_COPIES:
            for _ in range(high - low):
                word = self._word(part)
                yield _Word(word.first, word.last)
            return
        word = self._word(part)
        self._join(word.last, word.first)
        yield _Word(word.first, word.last)

    def _row(self, words: Iterable[_Word]) -> _Word:
        row = _Word()
        for word in words:
            self._join(row.last, word.first)
            row.first = row.first + word.first if row.can_be_empty else row.first
            row.last = row.last + word.last if word.can_be_empty else word.last
            row.can_be_empty &= word.can_be_empty
        return row

    def _join(self, last: list[int], first: list[int]) -> None:
        for place in last:
            self.next[place].update(first)


class _Follow:
    """by_lexeme: the bytes that may begin what follows each lexeme."""

    def __init__(self, trees: Mapping[str, Tree], lexemes: Mapping[Node, _Word], places: _Places) -> None:
        self.by_lexeme = dict.fromkeys(lexemes, 0)
        self._lexemes = {
            node: (_any_of(places.bytes[place] for place in word.first), word.can_be_empty)
            for node, word in lexemes.items()
        }
        self._rules = dict.fromkeys(trees, (0, False))
        self._behind = dict.fromkeys(trees, 0)
        while self._look(trees):
            pass

    def _look(self, trees: Mapping[str, Tree]) -> bool:
        """Whether anything was new."""
        before = (dict(self._rules), dict(self._behind), dict(self.by_lexeme))
        for name, tree in trees.items():
            self._rules[name] = self._first(tree)
            self._pass_on(tree, self._behind[name])
        return before != (self._rules, self._behind, self.by_lexeme)

    def _first(self, tree: Tree) -> tuple[int, bool]:
        """The bytes with which a tree may begin, and whether it may be empty."""
        match tree:
            case Lexeme(node):
                return self._lexemes[node]
            case Ref(name):
                return self._rules[name]
            case Seq(parts):
                found, can_be_empty = 0, True
                for first, is_empty in map(self._first, parts):
                    found |= first if can_be_empty else 0
                    can_be_empty &= is_empty
                return found, can_be_empty
            case Either(parts):
                firsts = [self._first(part) for part in parts]
                return _any_of(first for first, _ in firsts), any(is_empty for _, is_empty in firsts)
            case Repeat(part, low):
                first, is_empty = self._first(part)
                return first, is_empty or not low
        raise AssertionError(tree)

    def _pass_on(self, tree: Tree, behind: int) -> None:
        """What may stand after a tree may stand after its last parts."""
        match tree:
            case Lexeme(node):
                self.by_lexeme[node] |= behind
            case Ref(name):
                self._behind[name] |= behind
            case Seq(parts):
                for part in reversed(parts):
                    self._pass_on(part, behind)
                    first, is_empty = self._first(part)
                    behind = first | behind if is_empty else first
            case Either(parts):
                for part in parts:
                    self._pass_on(part, behind)
            case Repeat(part, _, high):
                self._pass_on(part, behind if high == 1 else behind | self._first(part)[0])


def _any_of(masks: Iterable[int]) -> int:
    """All bits of some masks."""
    return reduce(or_, masks, 0)


def _first_bytes(ranges: tuple[tuple[str, str], ...]) -> int:
    """The bytes with which characters of these ranges begin in UTF-8, as bits of a number."""
    found = 0
    for low, high in ranges:
        first, last = low.encode("utf-8", "surrogatepass")[0], high.encode("utf-8", "surrogatepass")[0]
        found |= (1 << (last + 1)) - (1 << first)
    return found


def _others(ranges: tuple[tuple[str, str], ...]) -> int:
    """The same for all other characters. Of those that begin alike some may be left."""
    ascii_only = tuple((low, min(high, "\x7f")) for low, high in ranges if low <= "\x7f")
    return _BYTES & ~_first_bytes(ascii_only)
