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

from uad.base.errors import InvalidRequestError
from uad.text.grammar.gbnf_reader import Chars, Either, GbnfNode, GbnfText, Lexeme, Ref, Repeat, Seq, children, users_of

_MOST_EDGES = 20_000  # from one character of a lexeme to the next; a lexeme with more is cut
_MOST_WORK = 300_000  # places looked at, some 0.4 s
_MOST_COPIES = 3  # of what is repeated; more are looked at as any number
_BYTES = (1 << 256) - 1


@dataclass(frozen=True)
class LexemePlan:
    """A grammar of lexemes. trees: the rules that are made of lexemes. rules: those that lexemes are made of."""

    trees: Mapping[str, GbnfNode]
    rules: Mapping[str, GbnfNode]


def overrun(plan: LexemePlan) -> set[GbnfNode]:
    """The lexemes that might take a character which should follow another lexeme."""
    if len(plan.trees) == 1 and isinstance(plan.trees["root"], Lexeme):
        return set()  # nothing follows
    overrunning, places = set[GbnfNode](), _Places(plan.rules)
    lexemes = list(_lexemes_in(plan.trees.values()))
    for node in dict.fromkeys(lexeme.node for lexeme in lexemes):
        try:
            places.add(node)
        except _TooLargeError:
            overrunning.add(node)
    return overrunning or _Walk(plan.trees, {lexeme.number: lexeme.node for lexeme in lexemes}, places).overrun()


def _lexemes_in(trees: Iterable[GbnfNode]) -> Iterator[Lexeme]:
    waiting = [*trees]
    while waiting:
        tree = waiting.pop()
        if isinstance(tree, Lexeme):
            yield tree
        waiting += children(tree)


class _Walk:
    """Walks through all texts from one lexeme's beginning to its end, with all lexemes that may stand there side by
    side, as llguidance's lexer does. A rule counts as followed by all that follows it anywhere: that allows more, and
    misses nothing.
    """

    def __init__(self, trees: Mapping[str, GbnfNode], nodes: Mapping[int, GbnfNode], places: _Places) -> None:
        self._places = places
        self._words = {number: places.words[node] for number, node in nodes.items()}
        self._nodes = nodes
        self._follow = _Follow(trees, {number: word.can_be_empty for number, word in self._words.items()})
        self._bytes = {number: _any_of(places.bytes[at] for at in word.first) for number, word in self._words.items()}
        follow = self._follow.by_lexeme
        known = {mask: _any_of(self._bytes[number] for number in _bits(mask)) for mask in set(follow.values())}
        self._after = {number: known[follow[number]] for number in nodes}
        self._seen: set[frozenset[tuple[int, int]]] = set()
        self._work = 0

    def overrun(self) -> set[GbnfNode]:
        """See the function of this name."""
        nodes: set[GbnfNode] = set()
        starts, seen = [self._follow.first_of_root], set[int]()
        while starts:
            start = starts.pop()
            if start in seen:
                continue
            seen.add(start)
            for ended in self._from(start, nodes):
                starts.append(_any_of(self._follow.by_lexeme[number] for number in ended))
        return nodes

    def _from(self, start: int, nodes: set[GbnfNode]) -> Iterator[frozenset[int]]:
        """The lexemes that end together, for every text that may stand here."""
        begun = [(number, at) for number in _bits(start) for at in self._words[number].first]
        waiting = list(self._by_byte(begun))
        while waiting:
            state = waiting.pop()
            if state in self._seen:
                continue
            self._seen.add(state)
            ended = frozenset(number for number, at in state if at in self._words[number].last)
            more = [(number, after) for number, at in state for after in self._places.next[at]]
            if ended:
                # Here a lexeme may end and another go on: `num: /[0-9]+[ \n]*/` after "12" may end, or take a digit, a
                # blank or a line's end. A number is followed by "\n". That is a byte of both, so `num` might take what
                # should follow it. `/[0-9]+/` could only take digits, which nothing else begins with: it stays.
                after = _any_of(self._after[number] for number in ended)
                nodes.update(self._nodes[number] for number, at in more if self._places.bytes[at] & after)
                yield ended
            waiting += self._by_byte(more)

    def _by_byte(self, places: Iterable[tuple[int, int]]) -> Iterator[frozenset[tuple[int, int]]]:
        """The sets of these places that some byte leads to."""
        # Of [a-m] at place 1 and [h-z] at place 2: a-g lead to {1}, h-m to {1, 2}, n-z to {2}. Each further place cuts
        # every set so far in what it shares with it, and the rest.
        parts: list[tuple[int, list[tuple[int, int]]]] = []
        for place in places:
            left, after = self._places.bytes[place[1]], list[tuple[int, list[tuple[int, int]]]]()
            for mask, inside in parts:
                self._work += 1
                both = mask & left
                after += [(both, [*inside, place])] if both else []
                after += [(mask & ~both, inside)] if mask & ~both else []
                left &= ~both
            parts = [*after, (left, [place])] if left else after
            self._work += 1
            if self._work > _MOST_WORK:
                raise InvalidRequestError("failed to parse grammar: too much of it begins alike; send a simpler one")
        return (frozenset(inside) for _, inside in parts)


class _TooLargeError(Exception):
    """A lexeme has too many characters to be looked at."""


@dataclass
class _Word:
    """The places of a lexeme's first and last characters."""

    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    can_be_empty: bool = True


class _Places:
    """Places of characters in lexemes (Glushkov's automaton): which bytes begin the character, and what follows it."""

    # `"a" [0-9]* "b"` has places 0 (a), 1 (a digit) and 2 (b). It begins at 0, ends at 2, and 0 -> 1, 2; 1 -> 1, 2.
    # There are no states but these, so a text is walked by sets of places: after "a7" they are {1}, then {1, 2}.

    def __init__(self, rules: Mapping[str, GbnfNode]) -> None:
        self._rules = rules
        self._n_edges = 0
        self.bytes: list[int] = []
        self.next: list[set[int]] = []
        self.words: dict[GbnfNode, _Word] = {}

    def add(self, node: GbnfNode) -> None:
        """A lexeme, whose characters get places. Raises _TooLargeError."""
        self._n_edges = 0
        self.words[node] = self._word(node)

    def _word(self, node: GbnfNode) -> _Word:
        match node:
            case GbnfText(text):
                return self._row([self._place_of(_first_bytes(((char, char),))) for char in text])
            case Chars(ranges, negated):
                return self._place_of(_others(ranges) if negated else _first_bytes(ranges))
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

    def _place_of(self, bytes_: int) -> _Word:
        self.bytes.append(bytes_)
        self.next.append(set())
        place = len(self.bytes) - 1
        return _Word([place], [place], can_be_empty=False)

    def _copies(self, part: GbnfNode, low: int, high: int | None) -> Iterator[_Word]:
        """low to high times a part; more than a few count as any number, which allows more and misses nothing."""
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
        self._n_edges += len(last) * len(first)
        if self._n_edges > _MOST_EDGES:
            raise _TooLargeError
        for place in last:
            self.next[place].update(first)


class _Follow:
    """by_lexeme: the lexemes that may follow each lexeme, as bits of a number. first_of_root: those that may come
    first.
    """

    # With `root: L0 list L1` and `list: L2 list | L3` a list begins with L2 or L3, which is found first, rule by rule,
    # until nothing changes. Then what follows is passed down: L1 follows the list in root, so it follows L3, its last
    # part, and the list inside of a list, again. L2 is followed by what a list begins with, L2 and L3.

    def __init__(self, trees: Mapping[str, GbnfNode], can_be_empty: Mapping[int, bool]) -> None:
        self.by_lexeme = dict.fromkeys(can_be_empty, 0)
        self._can_be_empty = can_be_empty
        self._rules = dict.fromkeys(trees, (0, False))
        self._after = dict.fromkeys(trees, 0)
        self._waiting = [*trees]
        users = users_of(trees)
        while self._waiting:
            name = self._waiting.pop()
            first = self._first(trees[name])
            if first != self._rules[name]:
                self._rules[name] = first
                self._waiting += users[name]
        self._waiting = [*trees]
        while self._waiting:
            name = self._waiting.pop()
            self._pass_on(trees[name], self._after[name])
        self.first_of_root = self._rules["root"][0]

    def _first(self, tree: GbnfNode) -> tuple[int, bool]:
        """The lexemes with which a tree may begin, and whether it may be empty."""
        match tree:
            case Lexeme(_, number):
                return 1 << number, self._can_be_empty[number]
            case Ref(name):
                return self._rules[name]
            case Seq(parts):
                first_of_all, can_be_empty = 0, True
                for first, is_empty in map(self._first, parts):
                    first_of_all |= first if can_be_empty else 0
                    can_be_empty &= is_empty
                return first_of_all, can_be_empty
            case Either(parts):
                firsts = [self._first(part) for part in parts]
                return _any_of(first for first, _ in firsts), any(is_empty for _, is_empty in firsts)
            case Repeat(part, low):
                first, is_empty = self._first(part)
                return first, is_empty or not low
        raise AssertionError(tree)

    def _pass_on(self, tree: GbnfNode, after: int) -> None:
        """Pass on to the last parts of a tree what may stand after the tree."""
        match tree:
            case Lexeme(_, number):
                self.by_lexeme[number] |= after
            case Ref(name):
                if after & ~self._after[name]:
                    self._after[name] |= after
                    self._waiting.append(name)
            case Seq(parts):
                for part in reversed(parts):
                    self._pass_on(part, after)
                    first, is_empty = self._first(part)
                    after = first | after if is_empty else first
            case Either(parts):
                for part in parts:
                    self._pass_on(part, after)
            case Repeat(part, _, high):
                self._pass_on(part, after if high == 1 else after | self._first(part)[0])


def _any_of(masks: Iterable[int]) -> int:
    """All bits of some masks."""
    return reduce(or_, masks, 0)


def _bits(mask: int) -> Iterator[int]:
    """The places of the bits that are set."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _first_bytes(ranges: tuple[tuple[str, str], ...]) -> int:
    """The bytes with which characters of these ranges begin in UTF-8, as bits of a number."""
    mask = 0
    for low, high in ranges:
        first, last = low.encode("utf-8", "surrogatepass")[0], high.encode("utf-8", "surrogatepass")[0]
        mask |= (1 << (last + 1)) - (1 << first)
    return mask


def _others(ranges: tuple[tuple[str, str], ...]) -> int:
    """The same for all other characters. Of those that begin alike some may be left."""
    ascii_only = tuple((low, min(high, "\x7f")) for low, high in ranges if low <= "\x7f")
    return _BYTES & ~_first_bytes(ascii_only)
