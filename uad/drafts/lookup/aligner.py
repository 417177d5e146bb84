"""An answer that copies a source, with edits: where in the source it is, and how it goes on after a difference. Knows
ids only.

A copy is aligned as `diff` would, id by id: after a difference the last ids of the answer are looked for among the next
ones of the source. So it goes on where a look-up would first need as many equal ids as its key has. It keeps its place
among lines that are alike, and expects again what was replaced once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import NamedTuple

from uad.base.common.sequences import common_prefix
from uad.base.types import Draft, Origin
from uad.drafts.lookup.history import BELIEFS
from uad.drafts.lookup.replacements import LONGEST, Edit, Expected, Replacements
from uad.drafts.lookup.sources import Located, Source

_REACH_IDS = 16
"""Ids after a difference, of the source and of the answer, in which they may meet again."""
_SURE = 2
"""Ids that must agree there."""
_KNOWN = 8
"""Ids of a source that were copied, for it to be resumed where none agrees yet."""
MARGIN = 2 * LONGEST + 2
"""Ids looked at beyond those that are asked for: edits may take some away, and are only known as a whole."""
_NEAR = 3
"""Edits with no more ids between them are one: a name that was changed at both ends."""
_RESUMED = 4
"""Ids that a copy resumed after a difference counts as, beside those that agree."""
_MOST_AGREED = len(BELIEFS) // 2
"""Longer copies are not surer."""


class Guess(NamedTuple):
    """How the answer is expected to go on, how far each id is believed (empty: all are), and how many ids before agreed
    in a row.
    """

    ids: Sequence[int]
    trust: Sequence[float]
    length: int

    def draft(self, n: int, origin: Origin, n_match: int, surer: int = 1) -> Draft:
        """A draft of the first n ids. Each is believed as after `surer` times as many that agree. A copy that was
        resumed, and agrees in fewer ids than a look-up of n_match needs, has a kind of its own.
        """
        ids, length, kind = tuple(self.ids[:n]), min(surer * self.length, _MOST_AGREED), str(origin)
        if self.length < n_match:
            length, kind = length + _RESUMED, f"{kind}/resumed"
        p = BELIEFS[length : length + surer * len(ids) : surer]
        p += BELIEFS[-1:] * (len(ids) - len(p))
        return Draft(ids, tuple(map(mul, p, self.trust)) if self.trust else p, origin, kind=kind)


@dataclass(slots=True)
class Difference:
    """The ids an answer has written since it left a source, and where in the source it may come back."""

    ahead: Sequence[int]
    """Ids of the source, from before the difference on."""
    first: int
    """Where in it the difference began."""
    written: list[int]
    rejoin: int = 0
    """The last id of it up to which the source may be written; 0: not known."""
    n_same: int = 0
    """Ids before that which agree."""

    def write(self, id_: int) -> None:
        """One more id: look for the source's place where most of the last ids agree, and the fewest were put in or left
        out. Where too few agree to be sure, those are likeliest that were replaced one by one.

        The source goes on "load ( path ) :", the answer has written "read ( path". After "read" nothing agrees: it
        may stand for "load", so the next source id would be "(". After "read (" one id agrees at the place of "(", and
        as many ids were left out as were put in: kept, not yet sure. After "read ( path" two agree, _SURE: the copy
        is resumed after "path", and "load" -> "read" is learned.
        """
        written, ahead, first = self.written, self.ahead, self.first
        written.append(id_)
        n_written = len(written)
        alone = first if n_written == 1 and first < len(ahead) else 0
        self.rejoin, self.n_same, fewest = alone, 0, 0
        for place in [i for i, expected in enumerate(ahead[first : first + _REACH_IDS], first) if expected == id_]:
            # ids[first : place + 1] of the source stand against what was written; their ends are compared
            n_source = place - first + 1
            same, most = 1, min(n_source, n_written)
            while same < most and ahead[place - same] == written[-1 - same]:
                same += 1
            # one id alone, say a comma, agrees by chance; where nothing was put in or left out, it does so less often
            if same < _SURE and n_source != n_written:
                continue
            odd = abs(n_source - n_written)
            if same > self.n_same or (same == self.n_same and odd < fewest):
                self.rejoin, self.n_same, fewest = place, same, odd


class CopyAligner:
    """The aligner of one answer."""

    def __init__(self) -> None:
        self.resumed = False
        """Whether what agrees does so since a difference, not since a look-up."""
        self.left: Located | None = None
        """Where the answer last left a source, and how many ids had agreed."""
        self._replacements = Replacements()
        self._source: Source | None = None
        self._ahead: Sequence[int] = ()  # of the source, from the id before the next one on
        self._expected = Expected((), range(1))
        self._at = 1  # the next id of what is expected
        self._length = 0
        self._difference: Difference | None = None  # None: the answer copies
        # the last one, source and answer, with what followed
        self._edit: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        self._since = _NEAR + 1  # ids that did
        self._before = 0  # the source's id before it

    @property
    def is_copying(self) -> bool:
        """Whether a source is known that the answer has not left."""
        return self._source is not None and self._difference is None

    @property
    def n_since(self) -> int:
        """Ids that the answer has written since it left a source to which it may soon come back; 0 if there is no such
        source, or while it copies.
        """
        return len(self._difference.written) if self._source is not None and self._difference is not None else 0

    @property
    def is_in_edit(self) -> bool:
        """Whether an expected edit is half written."""
        return self.is_copying and self._expected.begun(self._at) is not None

    @property
    def source(self) -> Source | None:
        """The place of the last id, where the answer copies; None within an edit, too."""
        if self._source is None or self._difference is not None or self._expected.begun(self._at) is not None:
            return None
        return self._source.moved(self._expected.places[self._at] - 1)

    @property
    def length(self) -> int:
        """Ids in a row that agreed with the source, expected edits included."""
        return self._length if self.is_copying else 0

    def start(self, source: Source, length: int, n: int) -> Guess:
        """Align with a source from here on, of which `length` ids agree; the next n ids, or as many as there are."""
        if not self.is_copying:
            self._since = _NEAR + 1  # the last edit was one of another source
        self.resumed = False
        return self._start(source, length, n)

    def _start(self, source: Source, length: int, n: int, begun: Edit | None = None, n_written: int = 0) -> Guess:
        """n_written: ids of the edit that is begun, which were written already."""
        n += n_written + MARGIN
        self._source, self._ahead, self._length = source, source.ahead(n), length
        self._expected = expected = self._replacements.expect(self._ahead, begun)
        self._at, self._difference = 1 + n_written, None
        if len(self._ahead) < 2:
            self._source = None
        return Guess(expected.ids[self._at :], expected.weighed(source.trust(n), self._at), length)

    def guess(self, n: int) -> Guess | None:
        """The next n ids of the source; after a difference, of what may be it. None where no source is known."""
        source, difference = self._source, self._difference
        if source is None:
            return None
        if difference is None:  # look ahead from the next id
            if (begun := self._expected.begun(self._at)) is not None:
                return self._start(source.moved(begun.place - 1), self._length, n, begun.edit, self._at - begun.at)
            return self._start(source.moved(self._expected.places[self._at] - 1), self._length, n)
        if not difference.rejoin or not (difference.n_same or self._length >= _KNOWN):
            return None
        return self.glance(source.moved(difference.rejoin), difference.n_same, n)

    def glance(self, source: Source, length: int, n: int) -> Guess:
        """The guess that `start` would return; the source is not followed."""
        n += MARGIN
        expected = self._replacements.expect(source.ahead(n))
        return Guess(expected.ids[1:], expected.weighed(source.trust(n), 1), length)

    def with_edits(
        self, before: int, source: Sequence[int], p: Sequence[float]
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """A copy of `source`, which comes after the id `before`, with the edits that are known; p is how likely its ids
        are.
        """
        ids = [before, *source]
        is_ahead = ids == self._ahead and self._at == 1 and self._difference is None
        expected = self._expected if is_ahead else self._replacements.expect(ids)
        if not expected.edits:
            return tuple(source), tuple(p)
        return tuple(expected.ids[1:]), tuple(expected.weighed((1.0, *p), 1))

    def observe(self, ids: Sequence[int]) -> None:
        """The answer goes on with ids."""
        at, n = 0, len(ids)
        while at < n and (source := self._source) is not None:
            if self._difference is not None:
                self._difference.write(ids[at])
                at += 1
                if len(self._difference.written) > _REACH_IDS:
                    self._source = None
                elif self._difference.n_same >= _SURE:
                    self._resume(self._difference)
            elif self._at < len(self._expected.ids):
                at += self._follow(ids[at:])
                if at < n and self._at < len(self._expected.ids):
                    self._diverge(source)
            elif (guess := self.guess(n - at)) is None or not guess.ids:
                self._source = None

    def _follow(self, ids: Sequence[int]) -> int:
        """Go on as far as these ids are the expected ones; returns how many that were."""
        at, expected = self._at, self._expected
        n = common_prefix(expected.ids[at : at + len(ids)], ids)
        self._at = stop = at + n
        self._length += n
        for known in expected.edits:
            edit = known.edit
            if at < known.end + (not edit.new) <= stop:  # that something was left out is known by the id after it
                self._replacements.saw(edit)
                self._edit, self._since, at = (edit.old, edit.new), 0, known.end
                self._before = self._ahead[known.place - 1]
        self._since += stop - at
        if self._since <= _NEAR:
            same = tuple(expected.ids[at:stop])
            self._edit = self._edit[0] + same, self._edit[1] + same
        return n

    def _diverge(self, source: Source) -> None:
        """Another id comes than the expected one. An edit that had begun is part of the difference."""
        at, first = self._at, self._expected.places[self._at]
        for edit in self._expected.edits:
            if edit.at <= self._at < max(edit.end, edit.at + 1):
                self._replacements.forget(edit.edit)
                at, first = edit.at, edit.place
        self._ahead = source.ahead(first + _REACH_IDS)
        self._difference = Difference(self._ahead, first, list(self._expected.ids[at : self._at]))
        self.left = Located(source.moved(first - 1), self._length)

    def _resume(self, difference: Difference) -> None:
        """The copy goes on: learn what was written instead of the source, and follow it."""
        ahead, rejoin, same = difference.ahead, difference.rejoin, difference.n_same
        end = rejoin + 1 - same
        old, new = tuple(ahead[difference.first : end]), tuple(difference.written[: len(difference.written) - same])
        # "load_old_config" -> "read_new_config" differs twice, with "_" between: learned as one edit, it is expected as
        # a whole with its first id, where two would be guessed one after the other
        if self._since <= _NEAR and max(map(len, self._edit)) <= LONGEST:
            old, new = self._edit[0] + old, self._edit[1] + new
        else:
            self._before = ahead[difference.first - 1]
        self._replacements.learn(self._before, old, new, ahead[end : end + 2])
        agreed = tuple(ahead[end : rejoin + 1])
        self._edit, self._since = (old + agreed, new + agreed), same
        self.resumed = True
        self._difference, self._length = None, same
        # renewed with the next id
        self._expected, self._at = Expected(ahead[rejoin : rejoin + 1], range(rejoin, rejoin + 2)), 1
