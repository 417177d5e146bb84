"""The continuations still open to one answer: a grammar's state after the ids so far, or free text up to a trigger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from copy import copy

import llguidance
import numpy as np
import numpy.typing as npt

from uad.base.errors import UadError
from uad.base.types import Constraint
from uad.text.grammar.ahead import Blanks, ahead
from uad.text.grammar.protocol import IdIndexes, Mask
from uad.text.grammar.vocabulary import GrammarVocabulary
from uad.text.vocab.table import VocabTable


class GrammarError(UadError):
    """An answer could not be kept within its grammar: a limit of size or time was exceeded."""

    code = "grammar_failed"


class Trigger:
    """Texts after which a grammar begins. Fed with ids until one of the texts was written, or can be no more."""

    def __init__(self, constraint: Constraint, table: VocabTable) -> None:
        self.must = constraint.must_trigger
        self.is_dead = False
        self._keeps = constraint.keeps_trigger
        self._at_start = constraint.at_start
        self._words = [word.encode() for word in constraint.triggers]
        self._n_tail = max(map(len, self._words)) - 1
        self._table = table
        self._tail = constraint.before.encode()

    def feed(self, id_: int) -> bytes | None:
        """The text goes on with this id. Once a trigger was written: the bytes that the grammar begins with; None
        before.
        """
        # Kept is so much of the text as a trigger may begin in: for "<tool_call>" its last 10 bytes. With the tail "I
        # <tool_" the id "call>{" gives "{": the grammar begins with that, since ids need not end where triggers do.
        data = self._tail + self._bytes(id_)
        if self._at_start:
            data = data.lstrip()
            self.is_dead = not any(word.startswith(data) or data.startswith(word) for word in self._words)
            if self.is_dead:
                return None
        begun = self._begun(data)
        if begun is None:
            self._tail = data[-self._n_tail :] if self._n_tail else b""
        return begun

    def holding(self) -> Iterator[tuple[int, bytes]]:
        """Ids with a whole trigger in them and more after it, and what the grammar would begin with."""
        for id_, text in enumerate(self._table.texts):
            if any(word in text for word in self._words) and (begun := self._begun(text)):
                yield id_, begun

    def completing(self) -> Iterator[tuple[int, bytes]]:
        """Ids that would end a trigger which has begun and go on after it, and what the grammar would begin with."""
        # With the tail "<tool_" the rest of the trigger is "call>"; of the ids that begin with it, such as "call>[",
        # the vocabulary's sorted pieces are one range. A piece that goes on as the grammar cannot ("[" for an object)
        # gets barred.
        rests = {word[n:] for word in self._words for n in range(1, len(word)) if self._tail.endswith(word[:n])}
        pieces, ids = self._table.sorted_pieces
        for rest in rests:
            low, high = self._table.range_of(rest)
            for i in range(low, high):
                if begun := self._begun(self._tail + pieces[i]):
                    yield ids[i], begun

    def _begun(self, data: bytes) -> bytes | None:
        ends = [(at + len(word), -len(word), word) for word in self._words if (at := data.find(word)) >= 0]
        if not ends:
            return None
        end, _, word = min(ends)
        return (word if self._keeps else b"") + data[end:]

    def _bytes(self, id_: int) -> bytes:
        text = self._table.texts[id_]
        return text if text or self._at_start else self._table.special_names.get(id_, "").encode()


def mask_of(data: bytes, n_vocab: int) -> Mask:
    """The mask whose bits these are. A large vocabulary has few of one kind nearly always, so only bytes with some are
    looked at.
    """
    # Of 150,000 ids a free text bans three: 18,750 bytes, of which three are not 0xFF. Only these are unpacked.
    bits = np.frombuffer(data, np.uint8)
    others = ~bits
    if np.count_nonzero(others) < np.count_nonzero(bits):
        return Mask(_ids_of(others, n_vocab), are_banned=True)
    return Mask(_ids_of(bits, n_vocab))


def _ids_of(bits: npt.NDArray[np.uint8], n_vocab: int) -> IdIndexes:
    """The places of the bits that are set, before the n_vocab-th."""
    at = np.flatnonzero(bits)
    allowed = np.flatnonzero(np.unpackbits(bits[at], bitorder="little"))
    ids: IdIndexes = at[allowed >> 3] * 8 + (allowed & 7)
    return ids[: np.searchsorted(ids, n_vocab)]


def can_begin(native: llguidance.LLMatcher, data: bytes, vocabulary: GrammarVocabulary) -> bool:
    """Whether these bytes may follow in the grammar."""
    ids = vocabulary.encode(data)
    return int(native.validate_tokens(ids)) == len(ids)


class GrammarMatcher:
    """See `protocol.Matcher`. Made by `Grammars.start`.

    failed: called where a limit is exceeded. barred: ids that cannot follow while it waits for the trigger.
    """

    def __init__(
        self,
        native: llguidance.LLMatcher,
        vocabulary: GrammarVocabulary,
        failed: Callable[[], None],
        trigger: Trigger | None = None,
        barred: Collection[int] = (),
    ) -> None:
        self._native = native
        self._barred = barred
        self._vocabulary = vocabulary
        self._failed = failed
        self._trigger = trigger  # None: the grammar has begun
        self._is_over = False
        self._forced: Sequence[int] | None = None  # None: not asked for after the last id
        self._expected: Sequence[tuple[int, float]] | None = None  # the same
        self._blanks = Blanks()
        self._last = b""  # what the last id says

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def forced(self) -> Sequence[int]:
        if self._forced is None:
            self._forced = () if self._trigger is not None or self._is_over else tuple(self._native.compute_ff_tokens())
        return self._forced

    @property
    def expected(self) -> Sequence[tuple[int, float]]:
        if self._expected is None:
            self._expected = [(id_, 1.0) for id_ in self.forced]
            if self._trigger is None and not self._is_over:
                self._expected = self._blanks.chosen(ahead(self._native, self._vocabulary, self._last), self._expected)
        return self._expected

    def mask(self) -> Mask | None:
        if self._trigger is not None:
            return self._mask_before(self._trigger)
        data = self._native.compute_bitmask()
        if self._native.is_error():
            raise self._error()
        mask = mask_of(data, self._vocabulary.table.n_vocab)
        if not len(mask.ids) and not mask.are_banned:
            raise GrammarError("no token of the vocabulary can follow in this grammar; describe another answer")
        return mask

    def accept(self, id_: int) -> None:
        self._last = self._vocabulary.table.pieces[id_]
        self._blanks.accept(id_, self._last)
        self._forced = self._expected = None
        if id_ in self._vocabulary.eog:
            self._is_over = True
        elif self._trigger is None:
            self._go_on([id_])
        elif not self._trigger.is_dead and (begun := self._trigger.feed(id_)) is not None:
            self._trigger = None
            self._go_on(self._vocabulary.encode(begun))

    def n_valid(self, ids: Sequence[int]) -> int:
        if self._trigger is None:
            n = next((n for n, (id_, only) in enumerate(zip(ids, self.forced, strict=False)) if id_ != only), len(ids))
            return min(n, int(self._native.validate_tokens(list(ids))))
        # Ids before the trigger are free. Of [so][<tool_call>{][x] the second brings it: a copy of the grammar takes
        # "{", and says how many of the rest it takes.
        trigger = copy(self._trigger)
        for n, id_ in enumerate(ids, 1):
            begun = None if trigger.is_dead else trigger.feed(id_)
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

    def _mask_before(self, trigger: Trigger) -> Mask | None:
        """The mask of free text: all but early ends, and tokens that run into a grammar which begins otherwise."""
        banned: set[int] = set(self._vocabulary.eog) if trigger.must else set()
        if not trigger.is_dead:
            completing = trigger.completing()
            banned |= {id_ for id_, begun in completing if not can_begin(self._native, begun, self._vocabulary)}
            banned.update(self._barred)
        return Mask(np.array(sorted(banned), np.intp), are_banned=True) if banned else None

    def _error(self) -> GrammarError:
        self._failed()
        words = self._native.get_error().removesuffix("\n<non-verbose/>").strip()[:300] or str(
            self._native.stop_reason()
        )
        return GrammarError(f"the answer could not be kept within its grammar ({words}); simplify the grammar")
