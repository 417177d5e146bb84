"""llama.cpp's grammar notation (GBNF) to the notation of llguidance (Lark). Knows no vocabulary.

GBNF knows characters only. llguidance cuts text into lexemes first, the longest that match. So whatever has no
recursion becomes one lexeme, which is a regular expression with all its freedom. Around recursion text is cut where
the longest match is the only one (`lexemes`), down to single characters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from uad.errors import InvalidRequestError
from uad.grammar.gbnf_reader import MAX_CHARS as MAX_CHARS
from uad.grammar.gbnf_reader import Chars, Either, GbnfReader, GbnfText, Node, Ref, Repeat, Seq, children, refs_in
from uad.grammar.lexemes import Lexeme, Plan, Tree, overrun


def to_lark(text: str) -> str:
    """The same grammar in llguidance's notation. Raises InvalidRequestError, which names line and column."""
    rules = _that_end(GbnfReader(text).rules())
    recursive = _recursive(rules)
    cut: set[Node] = set()
    while more := overrun(plan := _Planner(rules, recursive, cut).plan()) - cut:
        cut |= more
    return _LarkWriter(rules, plan).lark()


def _that_end(rules: Mapping[str, Node]) -> dict[str, Node]:
    """The rules without what can never end: text that has begun with it would go on for ever."""
    ends: set[str] = set()
    while found := {name for name, node in rules.items() if name not in ends and _can_end(node, ends)}:
        ends |= found
    if "root" not in ends:
        raise InvalidRequestError("failed to parse grammar: no answer could ever end; give root a way out of recursion")
    return {name: _without_endless(node, ends) for name, node in rules.items() if name in ends}


def _can_end(node: Node, ends: set[str]) -> bool:
    match node:
        case Ref(name):
            return name in ends
        case Either(parts):
            return any(_can_end(part, ends) for part in parts)
        case Repeat(part, low):
            return not low or _can_end(part, ends)
    return all(_can_end(part, ends) for part in children(node))


def _without_endless(node: Node, ends: set[str]) -> Node:
    match node:
        case Either(parts):
            return Either(tuple(_without_endless(part, ends) for part in parts if _can_end(part, ends)))
        case Repeat(part, low, high):
            return Repeat(_without_endless(part, ends), low, high) if _can_end(part, ends) else Seq(())
        case Seq(parts):
            return Seq(tuple(_without_endless(part, ends) for part in parts))
    return node


def _recursive(rules: Mapping[str, Node]) -> frozenset[str]:
    """Rules that contain themselves, and those that contain such a rule."""
    uses = {name: {ref.name for ref in refs_in(node)} for name, node in rules.items()}
    waiting = {name: len(used) for name, used in uses.items()}
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, used in uses.items():
        for one in used:
            users[one].append(name)
    ready = [name for name, n in waiting.items() if not n]
    regular: set[str] = set()
    while ready:
        name = ready.pop()
        regular.add(name)
        for user in users[name]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return frozenset(rules) - regular


class _Planner:
    """Which parts of a grammar become lexemes: what has no recursion, as long as it goes, unless it is `cut`."""

    def __init__(self, rules: Mapping[str, Node], recursive: frozenset[str], cut: set[Node]) -> None:
        self._rules = rules
        self._recursive = recursive
        self._cut = cut
        self._waiting = ["root"]

    def plan(self) -> Plan:
        """The rules that are made of lexemes, by name, from root on."""
        if self._is_lexeme(root := Ref("root", 0)):
            return Plan({"root": Lexeme(root)}, self._rules)
        trees: dict[str, Tree] = {}
        while self._waiting:
            name = self._waiting.pop()
            if name not in trees:
                trees[name] = self._tree(self._rules[name])
        return Plan(trees, self._rules)

    def _is_lexeme(self, node: Node) -> bool:
        return node not in self._cut and all(ref.name not in self._recursive for ref in refs_in(node))

    def _tree(self, node: Node) -> Tree:
        if self._is_lexeme(node):
            return Lexeme(node)
        match node:
            case Ref(name):
                self._waiting.append(name)
            case GbnfText(text):
                return Seq(tuple(Lexeme(GbnfText(char)) for char in text))
            case Seq(parts):
                return Seq(tuple(self._runs(parts)))
            case Either(parts):
                return Either(tuple(map(self._tree, parts)))
            case Repeat(part, low, high):
                return Repeat(self._tree(part), low, high)
        return node

    def _runs(self, parts: Sequence[Node]) -> Iterator[Tree]:
        """The parts, with neighbours that are lexemes joined to one, unless that is cut."""
        run: list[Node] = []
        for part in (*parts, None):
            if part is not None and self._is_lexeme(part):
                run.append(part)
                continue
            joined = run[0] if len(run) == 1 else Seq(tuple(run))
            yield from (Lexeme(joined),) if run and joined not in self._cut else map(self._tree, run)
            run = []
            if part is not None:
                yield self._tree(part)


@dataclass
class _LarkWriter:
    """Writes rules: T1, T2, … and L1, L2, … are lexemes, r1, r2, … are made of lexemes."""

    rules: Mapping[str, Node]
    made: Plan

    def __post_init__(self) -> None:
        self._numbers = {name: i for i, name in enumerate(self.rules)}
        self._lexemes: dict[Node, str] = {}

    def lark(self) -> str:
        lines = [f"r{self._numbers[name]}: {self._rule(tree)}" for name, tree in self.made.trees.items()]
        lexemes = [f"{name}: {self._regex(node)}" for node, name in self._lexemes.items()]
        return "\n".join(["%llguidance {}", f"start: r{self._numbers['root']}", *lines, *lexemes, *self._used(), ""])

    def _used(self) -> Iterator[str]:
        """The rules that lexemes are made of."""
        waiting, seen = [*self._lexemes], set[str]()
        while waiting:
            for ref in refs_in(waiting.pop()):
                if ref.name not in seen:
                    seen.add(ref.name)
                    waiting.append(self.rules[ref.name])
                    yield f"T{self._numbers[ref.name]}: {self._regex(self.rules[ref.name])}"

    def _rule(self, tree: Tree) -> str:
        match tree:
            case Lexeme(node):
                return self._lexemes.setdefault(node, f"L{len(self._lexemes)}")
            case Ref(name):
                return f"r{self._numbers[name]}"
            case Seq(parts):
                return f"({' '.join(map(self._rule, parts))})" if parts else '""'
            case Either(parts):
                return f"({' | '.join(map(self._rule, parts))})"
            case Repeat(part, low, high):
                return f"({self._rule(part)}){_times(low, high)}"
        raise AssertionError(tree)

    def _regex(self, node: Node) -> str:
        """A node without recursion."""
        match node:
            case GbnfText(text):
                return json.dumps(text, ensure_ascii=False)
            case Chars(ranges, negated):
                inner = "".join(_code(low) + (f"-{_code(high)}" if high > low else "") for low, high in ranges)
                return f"/[{'^' * negated}{inner}]/" if inner else r"/(.|\n)/"
            case Ref(name):
                return f"T{self._numbers[name]}"
            case Seq(parts):
                return f"({' '.join(map(self._regex, parts))})" if parts else '""'
            case Either(parts):
                return f"({' | '.join(map(self._regex, parts))})"
            case Repeat(part, low, high):
                return f"({self._regex(part)}){_times(low, high)}"
        raise AssertionError(node)


def _code(char: str) -> str:
    return f"\\x{{{ord(char):x}}}"


def _times(low: int, high: int | None) -> str:
    return f"{{{low},{'' if high is None else high}}}"
