"""An answer that copies a source, with edits: where in the source it is, and how it goes on behind a difference. Knows ids only.

A copy is followed as `diff` would, id by id: behind a difference the last ids of the answer are looked for among the next ones of the
source. So it goes on where a look-up needs as many equal ids as its key has, keeps its place among lines that are alike, and expects again
what was replaced once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

from uad.drafters.history import BELIEFS, copy
from uad.drafters.replacements import LONGEST, Edit, Expected, Placed, Replacements
from uad.types import Draft, Origin
from uad.vocab.prefix import common_prefix

_REACH = 16
"""Ids behind a difference, of the source and of the answer, in which they may meet again."""
_SURE = 2
"""Ids that must agree there."""
_KNOWN = 8
"""Ids of a source that were copied, for it to be resumed where none agrees yet."""
MARGIN = 2 * LONGEST + 2
"""Ids looked at beyond those that are asked for: edits may take some away, and are only known as a whole."""
_NEAR = 3
"""Edits with no more ids between them are one: a name that was changed at both ends."""
_STRETCHES = 8
"""Copied word for word, of which the ends are remembered: more than are in a round."""
_RESUMED = 4
"""Ids that a copy resumed behind a difference counts as, beside those that agree."""
_MOST_AGREED = len(BELIEFS) // 2
"""Longer copies are not surer."""


class Source(Protocol):
    """A place in a text that is copied: an id, and what follows it."""

    def ahead(self, n: int) -> Sequence[int]:
        """This id and at most n that follow; may be empty."""
        ...

    def trust(self, n: int) -> Sequence[float]:
        """How far each of these is believed, beside what the copy is; empty where that is the same for all."""
        ...

    def moved(self, n: int) -> Source:
        """The place n ids further on, of those that `ahead` told."""
        ...


class TextSource(NamedTuple):
    """A place in the answer's own text; a copy that reaches the end goes on with what it has written itself."""

    text: list[int]
    place: int

    def ahead(self, n: int) -> list[int]:
        ids = self.text[self.place : self.place + n + 1]
        n_missing = n + 1 - len(ids)
        return ids + copy(ids, 1, n_missing) if n_missing and len(ids) > 1 else ids

    def trust(self, n: int) -> Sequence[float]:
        return ()

    def moved(self, n: int) -> Self:
        return type(self)(self.text, self.place + n)


class Guess(NamedTuple):
    """How the answer is expected to go on, how far each id is believed (empty: all are), and how many ids before agreed in a row."""

    ids: Sequence[int]
    trust: Sequence[float]
    length: int

    def draft(self, n: int, origin: Origin, n_match: int) -> Draft:
        """Its first n ids. A copy that was resumed, and agrees in fewer ids than a look-up of n_match needs, has a kind of its own."""
        ids, length, kind = tuple(self.ids[:n]), min(self.length, _MOST_AGREED), str(origin)
        if length < n_match:
            length, kind = length + _RESUMED, f"{kind}/resumed"
        p = BELIEFS[length : length + len(ids)]
        return Draft(ids, tuple([a * b for a, b in zip(p, self.trust, strict=False)]) if self.trust else p, origin, kind=kind)


class Copied(NamedTuple):
    """ids[start:stop] are a source's own, whose place is that of the last of them."""

    source: Source
    start: int
    stop: int


class Following:
    """Of one answer, of `n` ids up to now. `resumed`: what agrees does so since a difference, not since a look-up.

    What is `ahead` begins with the source's id before the next one. Behind a difference, `_differs` is where in it that began (0: there is
    none), `_meets` the last id up to which the source may be written (0: not known), with `_same` ids before it that agree.
    """

    def __init__(self) -> None:
        self.n = 0
        self.resumed = False
        self._replacements = Replacements()
        self._source: Source | None = None
        self._ahead: Sequence[int] = ()
        self._expected = Expected((), range(1))
        self._at = 1  # the next id of what is expected
        self._length = 0
        self._differs = 0
        self._written: list[int] = []
        self._meets = 0
        self._same = 0
        self._edit: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # the last one, source and answer, with what followed
        self._since = _NEAR + 1  # ids that did
        self._before = 0  # the source's id before it
        self._own = 0  # from there on the answer's ids are the source's own
        self._copied: deque[Copied] = deque(maxlen=_STRETCHES)  # in ids of the answer

    @property
    def copies(self) -> bool:
        """Whether a source is known that the answer has not left."""
        return self._source is not None and not self._differs

    @property
    def amid(self) -> bool:
        """Whether an expected edit is half written."""
        return self.copies and self._edit_at() is not None

    @property
    def source(self) -> Source | None:
        """The place of the last id, where the answer copies; None amid an edit, too."""
        if self._source is None or self._differs or self._edit_at() is not None:
            return None
        return self._source.moved(self._expected.places[self._at] - 1)

    @property
    def length(self) -> int:
        """Ids in a row that agreed with the source, expected edits included."""
        return self._length if self.copies else 0

    def copied(self, size: int) -> list[Copied]:
        """What was copied word for word since this was asked before, in a text of `size` ids up to now; of much, the newest."""
        if self.copies:
            amid = self._edit_at()
            self._copied_to(self._at if amid is None else amid.at)
        first = size - self.n
        found = [Copied(source, first + start, first + stop) for source, start, stop in self._copied]
        self._copied.clear()
        return found

    def start(self, source: Source, length: int, n: int) -> Guess:
        """Follow a copy from here on, of which `length` ids agree; the next n ids, or as many as there are."""
        own = self.n - length
        if not self.copies:
            self._since = _NEAR + 1  # the last edit was one of another source
            self._own = own
        self._own = max(self._own, own)  # what agrees with a source that is followed may be edited
        self.resumed = False
        return self._start(source, length, n)

    def _start(self, source: Source, length: int, n: int, begun: Edit | None = None, n_written: int = 0) -> Guess:
        """n_written: ids of the edit that is begun, which were written already."""
        n += n_written + MARGIN
        self._source, self._ahead, self._length = source, source.ahead(n), length
        self._expected = expected = self._replacements.expect(self._ahead, begun)
        self._at, self._differs = 1 + n_written, 0
        if len(self._ahead) < 2:
            self._source = None
        return Guess(expected.ids[self._at :], expected.weighed(source.trust(n), self._at), length)

    def _edit_at(self) -> Placed | None:
        """The edit that is half written; something put in or left out just now counts, since the id behind it tells nothing of it."""
        at = self._at
        for one in self._expected.edits:
            old, new = one.edit.old, one.edit.new
            if one.at - (not new) < at < one.end + (not old or not new):
                return one
        return None

    def go_on(self, n: int) -> Guess | None:
        """The next n ids of what is followed; behind a difference, of what may be it."""
        source = self._source
        if source is None:
            return None
        if self._differs:
            if not self._meets or not (self._same or self._length >= _KNOWN):
                return None
            place = source.moved(self._meets)
            expected = self._replacements.expect(place.ahead(n + MARGIN))
            return Guess(expected.ids[1:], expected.weighed(place.trust(n + MARGIN), 1), self._same)
        return self._renew(source, n)

    def _renew(self, source: Source, n: int) -> Guess:
        """Look ahead from the next id."""
        if (amid := self._edit_at()) is not None:
            return self._start(source.moved(amid.place - 1), self._length, n, amid.edit, self._at - amid.at)
        return self._start(source.moved(self._expected.places[self._at] - 1), self._length, n)

    def edited(self, before: int, source: Sequence[int], p: Sequence[float]) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """A copy of `source`, which comes after the id `before`, with the edits that are known; p is how likely its ids are."""
        expected = self._replacements.expect((before, *source))
        if not expected.edits:
            return tuple(source), tuple(p)
        return tuple(expected.ids[1:]), tuple(expected.weighed((1.0, *p), 1))

    def judge(self, ids: Sequence[int]) -> None:
        """The answer goes on with ids."""
        n = self.n + len(ids)
        self._judge(ids)
        self.n = n  # those behind a source that was given up, too

    def _judge(self, ids: Sequence[int]) -> None:
        at, n = 0, len(ids)
        while at < n:
            source = self._source
            if source is None:
                return
            if self._differs:
                self._search(ids[at])
                at += 1
            elif self._at < len(self._expected.ids):
                at += self._follow(ids[at:])
            elif not self._renew(source, n - at).ids:
                self._source = None

    def _follow(self, ids: Sequence[int]) -> int:
        """Go on as far as these ids are the expected ones, and one further if it is another; returns how many that were."""
        at, expected = self._at, self._expected.ids
        n = common_prefix(expected[at : at + len(ids)], ids)
        self.n += n
        self._at += n
        self._length += n
        self._passed(at)
        if n == len(ids) or self._at >= len(expected):
            return n
        self._differ(ids[n])
        return n + 1

    def _passed(self, at: int) -> None:
        """What was expected from there on was written."""
        stop = self._at
        for one in self._expected.edits:
            edit = one.edit
            if at < one.end + (not edit.new) <= stop:  # that something was left out is known by the id behind it
                self._replacements.saw(edit)
                self._edit, self._since, at = (edit.old, edit.new), 0, one.end
                self._before = self._ahead[one.place - 1]
                self._copied_to(one.at)
                self._own = self._place(one.end)
        self._since += stop - at
        if self._since <= _NEAR:
            same = tuple(self._expected.ids[at:stop])
            self._edit = self._edit[0] + same, self._edit[1] + same

    def _place(self, at: int) -> int:
        """Where in the answer an expected id is."""
        return self.n - self._at + at

    def _copied_to(self, at: int) -> None:
        if self._source is not None and (stop := self._place(at)) > self._own:
            self._copied.append(Copied(self._source.moved(self._expected.places[at] - 1), self._own, stop))

    def _differ(self, id_: int) -> None:
        """Another id came than the expected one. An edit that had begun is part of the difference."""
        at = self._at
        self._differs = self._expected.places[at]
        for one in self._expected.edits:
            if one.at <= self._at < max(one.end, one.at + 1):
                self._replacements.forget(one.edit)
                at, self._differs = one.at, one.place
        self._written = list(self._expected.ids[at : self._at])
        self._copied_to(at)
        if self._source is not None:
            self._ahead = self._source.ahead(self._differs + _REACH)
        self._search(id_)

    def _search(self, id_: int) -> None:
        """One more id behind a difference: look for the source's place where most of the last ids agree, and the fewest were put in or left
        out. Where too few agree to be sure, those are likeliest that were replaced one by one."""
        written, ahead, first = self._written, self._ahead, self._differs
        written.append(id_)
        self.n += 1
        n_written = len(written)
        if n_written > _REACH:
            self._source = None
            return
        alone = first if n_written == 1 and first < len(ahead) else 0
        self._meets, self._same, fewest = alone, 0, 0
        for place in range(first, min(first + _REACH, len(ahead))):
            if ahead[place] != id_:
                continue
            end = place - first + 1
            same, most = 1, min(end, n_written)
            while same < most and ahead[place - same] == written[-1 - same]:
                same += 1
            if same < _SURE and end != n_written:
                continue
            odd = abs(end - n_written)
            if same > self._same or (same == self._same and odd < fewest):
                self._meets, self._same, fewest = place, same, odd
        if self._same >= _SURE:
            self._meet()

    def _meet(self) -> None:
        """The copy goes on: learn what was written instead of the source, and follow it."""
        ahead, meets, same = self._ahead, self._meets, self._same
        end = meets + 1 - same
        old, new = tuple(ahead[self._differs : end]), tuple(self._written[: len(self._written) - same])
        if self._since <= _NEAR and max(map(len, self._edit)) <= LONGEST:
            old, new = self._edit[0] + old, self._edit[1] + new
        else:
            self._before = ahead[self._differs - 1]
        self._replacements.learn(self._before, old, new, ahead[end : end + 2])
        agreed = tuple(ahead[end : meets + 1])
        self._edit, self._since = (old + agreed, new + agreed), same
        self.resumed = True
        self._differs, self._length, self._own = 0, same, self.n - same
        self._expected, self._at = Expected(ahead[meets : meets + 1], range(meets, meets + 2)), 1  # renewed with the next id
