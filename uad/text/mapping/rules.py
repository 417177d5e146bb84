"""Rules compiled for a pair of vocabularies, and their incremental use on the committed stream of one sequence.

A rule matches specials as ids and text as bytes, so what a user types never looks like a special.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from uad.text.mapping.patterns import Item, Items, normalise
from uad.text.mapping.turns import BEGIN, OUTSIDE, Format, Mark, TurnKind, Turns
from uad.text.vocab.table import VocabTable

__all__ = ["CompiledRules", "Item", "Items", "Node", "RuleStream", "Step", "Table", "Writer", "normalise"]

_WHITE = b" \t\n\v\f\r"
_SPECIAL = 256
"""Symbols of the matcher: 0 to 255 are bytes, above that special ids."""


@dataclass(frozen=True, slots=True)
class Step:
    """The effect of a matched pattern: turn marks, or `emit` of an explicit rule (whose marks then only move the
    state).
    """

    marks: tuple[Mark, ...] = ()
    emit: Items | None = None


@dataclass(slots=True)
class Node:
    """A node of a trie of patterns."""

    children: dict[int, Node] = field(default_factory=dict)
    step: Step | None = None


class Table:
    """The patterns that may match in one state."""

    def __init__(self, patterns: Mapping[Items, Step]) -> None:
        self.root = Node()
        for items, step in patterns.items():
            node = self.root
            for symbol in symbols(items):
                node = node.children.setdefault(symbol, Node())
            node.step = step
        first = bytes(symbol for symbol in self.root.children if symbol < _SPECIAL)
        self.first = re.compile(b"[" + re.escape(first) + b"]") if first else None


def symbols(items: Iterable[Item]) -> Iterator[int]:
    """Items one by one for the matcher."""
    for item in items:
        if isinstance(item, bytes):
            yield from item
        else:
            yield item + _SPECIAL


@dataclass(frozen=True)
class CompiledRules:
    """Rules for one target and one draft; shared by all sequences."""

    target: VocabTable
    draft: VocabTable
    format: Format
    tables: dict[str, Table]
    """Patterns by state (uad.text.mapping.turns)."""
    lone: dict[int, Items]
    """The items that a special becomes if no pattern takes it."""
    backward: dict[int, tuple[int, ...]]
    """The target ids for a special that the draft proposes."""
    swallow_bos: bool
    lines: tuple[str, ...]
    warnings: tuple[str, ...]
    dropped: frozenset[int]
    """Target specials left out for the draft."""
    may_think: bool = False
    bare_system: bool = False
    bare_thoughts: bool = False

    def stream(self) -> RuleStream:
        """Fresh state for one sequence."""
        return RuleStream(self)

    def back(self, draft_special: int) -> tuple[int, ...]:
        """Target ids to offer when the draft proposes this special next; () where it means nothing to the target."""
        return self.backward.get(draft_special, ())


class Writer:
    """Collects the draft's stream and keeps its white space rules: a space after a special where the draft was trained
    with one, none where the special swallows it.
    """

    def __init__(self, draft: VocabTable) -> None:
        self._items: list[Item] = []
        self._space = draft.add_space_prefix
        self._rstrip = draft.rstrip
        self._last: int | None = -1

    def take(self) -> list[Item]:
        """The items that have come since the last call: specials, and the bytes between them joined."""
        items, self._items = self._items, []
        return normalise(items)

    def text(self, data: bytes) -> None:
        """Text of the stream, in UTF-8 bytes."""
        if self._last is not None:
            data = self._after_special(data)
        if data:
            self._items.append(data)

    def _after_special(self, data: bytes) -> bytes:
        if self._last in self._rstrip:
            data = data.lstrip(_WHITE)
        if not data:
            return data
        self._last = None
        return b" " + data if self._space else data

    def write(self, items: Iterable[Item], opens: bool = False) -> None:
        """Markers. `opens`: text of a turn comes next, so a space that belongs before it is written now."""
        for item in items:
            if isinstance(item, bytes):
                self.text(item)
            else:
                self._items.append(item)
                self._last = item
        if opens and self._space and self._last is not None:
            self._items.append(b" ")
            self._last = None


class RuleStream:
    """Translation of one sequence, fed with target ids as they are committed. Work follows the number of new tokens."""

    def __init__(self, rules: CompiledRules) -> None:
        self._rules = rules
        self._turns = Turns(rules.format, rules.may_think, rules.bare_system, rules.bare_thoughts)
        self._out = Writer(rules.draft)
        self._table = rules.tables.get(BEGIN, rules.tables[OUTSIDE])
        self._node = self._table.root
        self._held: list[int] = []
        self._best: tuple[int, Step] | None = None
        self._begun = False
        self._strip_space = rules.target.add_space_prefix

    def feed(self, ids: Sequence[int]) -> list[Item]:
        """The items that the draft's stream grows by. Anything that may still become the match of a longer pattern is
        held back.
        """
        for unit in self._units(ids):
            if isinstance(unit, bytes):
                self._text(unit)
            else:
                self._drain(deque([unit + _SPECIAL]))
        return self._out.take()

    def flush(self) -> list[Item]:
        """Lets go of everything held back, as if the stream ended here."""
        while self._held:
            self._drain(deque(self._resolve()))
        return self._out.take()

    @property
    def pending(self) -> bytes:
        """The text held back, as it would pass unmatched; specials that are held back are left out."""
        return b"" if self._turns.dropped else bytes(symbol for symbol in self._held if symbol < _SPECIAL)

    def _units(self, ids: Sequence[int]) -> Iterator[Item]:
        start = 0
        if ids and not self._begun:
            self._begun = True
            self._out.write(self._rules.format.begin)
            start = int(self._rules.swallow_bos and ids[0] == self._rules.target.bos)
        special, pieces = self._rules.target.special_ids, self._rules.target.pieces
        if special.isdisjoint(ids):
            yield self._unspaced(b"".join([pieces[id_] for id_ in ids[start:]]))
            return
        run: list[bytes] = []
        for id_ in ids[start:]:
            if id_ not in special:
                run.append(pieces[id_])
                continue
            yield self._unspaced(b"".join(run))
            run.clear()
            self._strip_space = self._rules.target.add_space_prefix
            yield id_
        yield self._unspaced(b"".join(run))

    def _unspaced(self, data: bytes) -> bytes:
        """Takes off the space that the target's tokenizer puts before text that follows a special."""
        if not data or not self._strip_space:
            return data
        self._strip_space = False
        return data[1:] if data[:1] == b" " else data

    def _text(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if not self._held and not self._turns.waiting:
                match = self._table.first.search(data, at) if self._table.first else None
                end = match.start() if match else len(data)
                self._pass(data[at:end])
                at = end
            if at < len(data):
                self._drain(deque([data[at]]))
                at += 1

    def _drain(self, queue: deque[int]) -> None:
        # With the patterns "[INST]" and "[INST] <<SYS>>\n" the text "[INST] Hi" is held up to "[INST] ", with "[INST]"
        # as the best match so far. "H" goes on with nothing: the best match fires, and " H" is looked at again, in the
        # state that the match leads to. Of "[INX" nothing has matched: "[" passes, and "INX" is looked at again.
        while queue:
            symbol = queue.popleft()
            child = self._node.children.get(symbol)
            if child is None and not self._held:
                self._pass_symbol(symbol)
                continue
            self._held.append(symbol)
            if child is not None:
                self._node = child
                if child.step is not None:
                    self._best = (len(self._held), child.step)
                if child.children:
                    continue
            queue.extendleft(reversed(self._resolve()))

    def _resolve(self) -> list[int]:
        """Settles the front of what is held: the longest match, or one symbol that passes. Returns the rest, to be
        looked at again.
        """
        held, best = self._held, self._best
        self._held, self._best = [], None
        self._node = self._table.root
        if best is None:
            self._pass_symbol(held[0])
            return held[1:]
        n, step = best
        for mark in step.marks:
            if step.emit is not None:
                self._turns.skip(mark)
            else:
                self._out.write(self._turns.apply(mark), opens=mark.kind is TurnKind.START)
        if step.emit is not None:
            self._out.write(step.emit, opens=bool(step.marks) and step.marks[-1].kind is TurnKind.START)
        self._enter()
        return held[n:]

    def _enter(self) -> None:
        """Takes up the patterns of the state that the conversation is in."""
        self._table = self._rules.tables.get(self._turns.state, self._rules.tables[OUTSIDE])
        self._node = self._table.root

    def _begin_text(self) -> None:
        self._out.write(self._turns.text())
        self._enter()

    def _pass_symbol(self, symbol: int) -> None:
        if symbol < _SPECIAL:
            self._pass(bytes([symbol]))
            return
        emit = self._rules.lone.get(symbol - _SPECIAL, ())
        if emit and self._turns.waiting:
            self._begin_text()
        if not self._turns.dropped:
            self._out.write(emit)

    def _pass(self, data: bytes) -> None:
        if data and self._turns.waiting:
            self._begin_text()
        if data and not self._turns.dropped:
            self._out.text(data)
