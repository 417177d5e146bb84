"""What a grammar in llama.cpp's notation means, worked out without llguidance; and random grammars."""

from __future__ import annotations

from uad.text.grammar.gbnf_reader import Chars, Either, GbnfNode, GbnfReader, GbnfText, Ref, Repeat, Seq


class Meaning:
    """Decides whether a text is a whole answer: for each rule and place the places where it may end, until none is
    new.
    """

    def __init__(self, grammar: str) -> None:
        self._rules = GbnfReader(grammar).rules()

    def has(self, text: str) -> bool:
        ends: dict[tuple[str, int], frozenset[int]] = {}
        n_before = -1
        while n_before != sum(map(len, ends.values())):
            n_before = sum(map(len, ends.values()))
            for name, node in self._rules.items():
                for at in range(len(text) + 1):
                    ends[name, at] = frozenset(self._ends(node, text, at, ends))
        return len(text) in ends["root", 0]

    def _ends(self, node: GbnfNode, text: str, at: int, ends: dict[tuple[str, int], frozenset[int]]) -> set[int]:
        match node:
            case GbnfText(word):
                return {at + len(word)} if text.startswith(word, at) else set()
            case Chars(ranges, negated):
                fits = any(low <= char <= high for char in text[at : at + 1] for low, high in ranges) is not negated
                return {at + 1} if at < len(text) and fits else set()
            case Ref(name):
                return set(ends.get((name, at), ()))
            case Either(parts):
                return {end for part in parts for end in self._ends(part, text, at, ends)}
            case Seq(parts):
                reached = {at}
                for part in parts:
                    reached = {end for start in reached for end in self._ends(part, text, start, ends)}
                return reached
            case Repeat(part, low, high):
                found, reached = {at} if not low else set(), {at}
                for n in range(1, (len(text) + low + 1 if high is None else high) + 1):
                    reached = {end for start in reached for end in self._ends(part, text, start, ends)}
                    found |= reached if n >= low else set()
                return found
        raise AssertionError(node)
