"""llama.cpp's grammar notation (GBNF) to the notation of llguidance (Lark). Knows no vocabulary.

GBNF knows characters only. llguidance cuts text into lexemes first, the longest that match. So whatever has no
recursion becomes one lexeme, which is a regular expression with all its freedom. Around recursion text is cut where
the longest match is the only one (`lexemes`), down to single characters.

llguidance's own converter, `gbnf_to_lark`, makes a lexeme of each rule that names no other. In `name "and" name` with
`name ::= [a-z ]+` the first name would take the "and", too, and the text could not end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from uad.base.errors import InvalidRequestError
from uad.text.grammar.gbnf_reader import (
    Chars,
    Either,
    GbnfNode,
    GbnfReader,
    GbnfText,
    Lexeme,
    Ref,
    Repeat,
    Seq,
    children,
    refs_in,
    users_of,
)
from uad.text.grammar.lexemes import LexemePlan, overrun

MAX_LEXEME_CHARS = 1 << 16  # characters; a longer one is cut, which changes nothing but the time that masks take
MAX_ROUNDS = 6  # of cutting what overruns into its parts; then it is cut into characters
MAX_LEXEME_DEPTH = 60  # rules in each other


def to_lark(text: str) -> str:
    """The same grammar in llguidance's notation. Raises InvalidRequestError, which names line and column."""
    # `root: "x" sum "\n"`, `sum: num ("+" sum)?`, `num: [0-9]+`: sum has recursion, so the first plan has the lexemes
    # "x", num, "+" and "\n". Were num `[0-9]+ [\n]?`, it could take the "\n" that should follow a sum; `overrun` finds
    # that, and num is cut into `[0-9]+` and `[\n]?`. It ends when nothing overruns, as single characters never do.
    rules = _that_end(GbnfReader(text).rules())
    regular = _regular(rules)
    cut: set[GbnfNode] = set()
    n_rounds = 0
    while more := overrun(plan := _Planner(rules, regular, cut).plan()) - cut:
        n_rounds += 1
        cut |= more if n_rounds < MAX_ROUNDS else set(_inside(more, rules))
    return _LarkWriter(rules, plan).lark()


def _inside(nodes: Iterable[GbnfNode], rules: Mapping[str, GbnfNode]) -> Iterator[GbnfNode]:
    """These nodes, and all that they are made of."""
    waiting, seen = [*nodes], set[GbnfNode]()
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            yield node
            waiting += (rules[node.name],) if isinstance(node, Ref) else children(node)


def _that_end(rules: Mapping[str, GbnfNode]) -> dict[str, GbnfNode]:
    """The rules without what can never end: text that has begun with it would go on for ever."""
    ends: set[str] = set()
    waiting, users = [*rules], users_of(rules)
    while waiting:
        name = waiting.pop()
        if name not in ends and _can_end(rules[name], ends):
            ends.add(name)
            waiting += users[name]
    if "root" not in ends:
        raise InvalidRequestError("failed to parse grammar: no answer could ever end; give root a way out of recursion")
    return {name: _without_endless(node, ends) for name, node in rules.items() if name in ends}


def _can_end(node: GbnfNode, ends: set[str]) -> bool:
    match node:
        case Ref(name):
            return name in ends
        case Either(parts):
            return any(_can_end(part, ends) for part in parts)
        case Repeat(part, low):
            return not low or _can_end(part, ends)
    return all(_can_end(part, ends) for part in children(node))


def _without_endless(node: GbnfNode, ends: set[str]) -> GbnfNode:
    match node:
        case Either(parts):
            return Either(tuple(_without_endless(part, ends) for part in parts if _can_end(part, ends)))
        case Repeat(part, low, high):
            return Repeat(_without_endless(part, ends), low, high) if _can_end(part, ends) else Seq(())
        case Seq(parts):
            return Seq(tuple(_without_endless(part, ends) for part in parts))
    return node


def _regular(rules: Mapping[str, GbnfNode]) -> Mapping[str, tuple[int, int]]:
    """Rules without recursion: how many characters each is written with, and through how many others."""
    # From the leaves up: a rule is ready when all that it refers to is. Rules in a circle, or above one, never are.
    waiting = {name: len({ref.name for ref in refs_in(node)}) for name, node in rules.items()}
    users = users_of(rules)
    ready = [name for name, n in waiting.items() if not n]
    regular: dict[str, tuple[int, int]] = {}
    while ready:
        name = ready.pop()
        regular[name] = _size(rules[name], regular)
        for user in users[name]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return regular


def _size(node: GbnfNode, regular: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    match node:
        case Ref(name):
            n, depth = regular[name]
            return n, depth + 1
        case GbnfText(text):
            return len(text), 0
        case Chars():
            return 1, 0
        case Repeat(part, low, high):
            n, depth = _size(part, regular)
            return n * (1 + min(low, 3) + min(high or 0, 3)), depth
    sizes = [_size(part, regular) for part in children(node)]
    return sum(n for n, _ in sizes), max((depth for _, depth in sizes), default=0)


class _Planner:
    """Which parts of a grammar become lexemes: what has no recursion, as long as it goes, unless it is `cut`."""

    def __init__(
        self, rules: Mapping[str, GbnfNode], regular: Mapping[str, tuple[int, int]], cut: set[GbnfNode]
    ) -> None:
        self._rules = rules
        self._regular = regular
        self._cut = cut
        self._numbers: dict[GbnfNode, int] = {}
        self._waiting = ["root"]

    def plan(self) -> LexemePlan:
        """The rules that are made of lexemes, by name, from root on."""
        if "root" in self._regular:
            return LexemePlan({"root": Lexeme(Ref("root", 0), 0)}, self._rules)
        trees: dict[str, GbnfNode] = {}
        while self._waiting:
            name = self._waiting.pop()
            if name not in trees:
                trees[name] = self._tree(self._rules[name])
        return LexemePlan(trees, self._rules)

    def _is_lexeme(self, node: GbnfNode) -> bool:
        """Whether a node may be one lexeme: without recursion, and not too large to be looked at."""
        if node in self._cut or any(ref.name not in self._regular for ref in refs_in(node)):
            return False
        n, depth = _size(node, self._regular)
        return n <= MAX_LEXEME_CHARS and depth <= MAX_LEXEME_DEPTH

    def _lexeme(self, node: GbnfNode) -> Lexeme:
        return Lexeme(node, self._numbers.setdefault(node, len(self._numbers)))

    def _tree(self, node: GbnfNode) -> GbnfNode:
        if isinstance(node, Chars) or self._is_lexeme(node):
            return self._lexeme(node)
        match node:
            case Ref(name):
                self._waiting.append(name)
            case GbnfText(text):
                return Seq(tuple(self._lexeme(GbnfText(char)) for char in text))
            case Seq(parts):
                return Seq(tuple(self._runs(parts)))
            case Either(parts):
                return Either(tuple(map(self._tree, parts)))
            case Repeat(part, low, high):
                return Repeat(self._tree(part), low, high)
        return node

    def _runs(self, parts: Sequence[GbnfNode]) -> Iterator[GbnfNode]:
        """The parts, with neighbours that are lexemes joined to one, unless that is cut."""
        # `"(" [ ]* list [ ]* ")"` has the runs `"(" [ ]*` and `[ ]* ")"`: two lexemes around `list`. One that is cut is
        # written part by part: single characters for a text, the repetition of a lexeme for `[ ]*`.
        run: list[GbnfNode] = []
        for part in (*parts, None):
            if part is not None and self._is_lexeme(part):
                run.append(part)
                continue
            joined = run[0] if len(run) == 1 else Seq(tuple(run))
            yield from [self._lexeme(joined)] if run and self._is_lexeme(joined) else map(self._tree, run)
            run = []
            if part is not None:
                yield self._tree(part)


@dataclass
class _LarkWriter:
    """Writes rules: T1, T2, … and L1, L2, … are lexemes, r1, r2, … are made of lexemes."""

    rules: Mapping[str, GbnfNode]
    made: LexemePlan

    def __post_init__(self) -> None:
        self._numbers = {name: i for i, name in enumerate(self.rules)}
        self._lexemes: dict[GbnfNode, str] = {}

    def lark(self) -> str:
        lines = [f"r{self._numbers[name]}: {self._written(tree, 'r')}" for name, tree in self.made.trees.items()]
        lexemes = [f"{name}: {self._written(node, 'T')}" for node, name in self._lexemes.items()]
        return "\n".join(["%llguidance {}", f"start: r{self._numbers['root']}", *lines, *lexemes, *self._used(), ""])

    def _used(self) -> Iterator[str]:
        """The rules that lexemes are made of."""
        waiting, seen = [*self._lexemes], set[str]()
        while waiting:
            for ref in refs_in(waiting.pop()):
                if ref.name not in seen:
                    seen.add(ref.name)
                    waiting.append(self.rules[ref.name])
                    yield f"T{self._numbers[ref.name]}: {self._written(self.rules[ref.name], 'T')}"

    def _written(self, node: GbnfNode, rules: str) -> str:
        """A node of a rule that is made of lexemes (`r`), or one without recursion (`T`), by what rules are called."""
        match node:
            case Lexeme(inner, _):
                return self._lexemes.setdefault(inner, f"L{len(self._lexemes)}")
            case GbnfText(text):
                return json.dumps(text, ensure_ascii=False)
            case Chars(ranges, negated):
                inside = "".join(_code(low) + (f"-{_code(high)}" if high > low else "") for low, high in ranges)
                return f"/[{'^' * negated}{inside}]/" if inside else r"/(.|\n)/"
            case Ref(name):
                return f"{rules}{self._numbers[name]}"
            case Seq(parts):
                return f"({' '.join(self._written(part, rules) for part in parts)})" if parts else '""'
            case Either():
                return f"({' | '.join(self._written(part, rules) for part in _with_one_class(node))})"
            case Repeat(part, low, high):
                return f"({self._written(part, rules)}){{{low},{'' if high is None else high}}}"


def _with_one_class(node: Either) -> list[GbnfNode]:
    """The alternatives, those inside of alternatives too; single characters are one class, which stands in front."""
    # llguidance 1.9.1 panics where one lexeme has `[b-é] | ([ab] | "é" | [b-é])`: classes that overlap beyond ASCII.
    others, ranges, waiting = list[GbnfNode](), list[tuple[str, str]](), [*reversed(node.parts)]
    while waiting:
        match part := waiting.pop():
            case Either(parts):
                waiting += reversed(parts)
            case GbnfText(text) if len(text) == 1:
                ranges.append((text, text))
            case Chars(own, negated=False):
                ranges += own
            case _:
                others.append(part)
    return [Chars(_joined(ranges)), *others] if ranges else others


def _joined(ranges: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The same characters in the fewest ranges, in order."""
    joined: list[tuple[str, str]] = []
    for low, high in sorted(ranges):
        if joined and ord(low) <= ord(joined[-1][1]) + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def _code(char: str) -> str:
    return f"\\x{{{ord(char):x}}}"
