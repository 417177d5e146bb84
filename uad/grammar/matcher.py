"""What one answer may still be: a grammar's state behind the ids so far, or free text up to a trigger."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import llguidance
import numpy as np

from uad.errors import UadError
from uad.grammar.protocol import Ids
from uad.grammar.vocabulary import Vocabulary
from uad.types import Constraint
from uad.vocab.table import VocabTable


class GrammarError(UadError):
    """An answer could not be kept within its grammar: a limit of size or time was exceeded."""

    code = "grammar_failed"


class Trigger:
    """Texts behind which a grammar begins. Fed with ids until one of the texts was written."""

    def __init__(self, constraint: Constraint, table: VocabTable) -> None:
        self.must = constraint.must_trigger
        self._keeps = constraint.keeps_trigger
        self._words = [word.encode() for word in constraint.triggers]
        self._n_tail = max(map(len, self._words)) - 1
        self._table = table
        self._tail = b""

    def copy(self) -> Trigger:
        """Another one that goes on from here."""
        twin = object.__new__(Trigger)
        twin.must, twin._keeps, twin._words, twin._n_tail = self.must, self._keeps, self._words, self._n_tail
        twin._table, twin._tail = self._table, self._tail
        return twin

    def feed(self, id_: int) -> bytes | None:
        """The text goes on with this id. Once a trigger was written: the bytes that the grammar begins with; None before."""
        data = self._tail + self._bytes(id_)
        ends = [(at + len(word), -len(word), word) for word in self._words if (at := data.find(word)) >= 0]
        if not ends:
            self._tail = data[-self._n_tail :] if self._n_tail else b""
            return None
        end, _, word = min(ends)
        return (word if self._keeps else b"") + data[end:]

    def overshooting(self) -> list[tuple[int, bytes]]:
        """Ids that would end a trigger and go on behind it, with what the grammar would begin with."""
        starts = {word[n:] for word in self._words for n in range(len(word)) if self._tail.endswith(word[:n])}
        pieces, ids = self._table.sorted_pieces
        found: list[tuple[int, bytes]] = []
        for start in starts:
            low, high = self._table.range_of(start)
            for i in range(low, high):
                if pieces[i] != start and (begun := self.copy().feed(ids[i])):
                    found.append((ids[i], begun))
        return found

    def _bytes(self, id_: int) -> bytes:
        return self._table.texts[id_] or self._table.special_names.get(id_, "").encode()


def ids_of(mask: bytes, n_vocab: int) -> Ids:
    """The ids whose bits are set."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(mask, np.uint8), count=n_vocab, bitorder="little"))


class Matcher:
    """See `protocol.Matcher`. Made by `Grammars.start`. failed: called where a limit is exceeded."""

    def __init__(
        self, native: llguidance.LLMatcher, vocabulary: Vocabulary, failed: Callable[[], None], trigger: Trigger | None = None
    ) -> None:
        self._native = native
        self._vocabulary = vocabulary
        self._failed = failed
        self._trigger = trigger  # None: the grammar has begun
        self._is_over = False
        self._forced: Sequence[int] | None = None  # None: not asked for behind the last id

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def forced(self) -> Sequence[int]:
        if self._forced is None:
            self._forced = () if self._trigger is not None or self._is_over else tuple(self._native.compute_ff_tokens())
        return self._forced

    def allowed(self) -> Ids | None:
        if self._trigger is not None:
            return self._allowed_before(self._trigger)
        mask = self._native.compute_bitmask()
        if self._native.is_error():
            raise self._error()
        ids = ids_of(mask, self._vocabulary.table.n_vocab)
        if not len(ids):
            raise GrammarError("no token of the vocabulary can follow in this grammar; describe another answer")
        return ids

    def accept(self, id_: int) -> None:
        self._forced = None
        if id_ in self._vocabulary.eog:
            self._is_over = True
        elif self._trigger is None:
            self._go_on([id_])
        elif (begun := self._trigger.feed(id_)) is not None:
            self._trigger = None
            self._go_on(self._vocabulary.encode(begun))

    def n_valid(self, ids: Sequence[int]) -> int:
        if self._trigger is None:
            n = next((n for n, (id_, only) in enumerate(zip(ids, self.forced, strict=False)) if id_ != only), len(ids))
            return min(n, int(self._native.validate_tokens(list(ids))))
        trigger = self._trigger.copy()
        for n, id_ in enumerate(ids, 1):
            begun = trigger.feed(id_)
            if begun is not None:
                native, first = self._native.deep_copy(), self._vocabulary.encode(begun)
                if native.try_consume_tokens(first) < len(first):
                    return n - 1
                return n + int(native.validate_tokens(list(ids[n:])))
        return len(ids)

    def _go_on(self, ids: Sequence[int]) -> None:
        """The grammar's part goes on. It may end with these ids."""
        if ids and not self._native.consume_tokens(list(ids)):
            raise self._error()
        self._is_over = bool(self._native.is_stopped())
        if self._is_over and not self._native.is_accepting():
            raise self._error()

    def _allowed_before(self, trigger: Trigger) -> Ids | None:
        """What free text may go on with: all but early ends, and tokens that run into a grammar which begins otherwise."""
        banned = [id_ for id_, begun in trigger.overshooting() if not self._can_begin(begun)]
        if trigger.must:
            banned += self._vocabulary.eog
        if not banned:
            return None
        is_allowed = np.ones(self._vocabulary.table.n_vocab, bool)
        is_allowed[banned] = False
        return np.flatnonzero(is_allowed)

    def _can_begin(self, data: bytes) -> bool:
        ids = self._vocabulary.encode(data)
        return int(self._native.validate_tokens(ids)) == len(ids)

    def _error(self) -> GrammarError:
        self._failed()
        words = self._native.get_error().removesuffix("\n<non-verbose/>").strip()[:300] or str(self._native.stop_reason())
        return GrammarError(f"the answer could not be kept within its grammar ({words}); simplify the grammar")
