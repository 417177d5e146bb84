"""Replacements in an edited copy: where a renamed name comes up again, its new name is expected. Knows ids only.

An edit is known by the ids that it replaces and the one before or after them, which are most of a name; where
something is put in, by the ids around it or the two after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

LONGEST = 8
"""Ids that are replaced, or that replace them: a name, not a sentence."""
_LIMIT = 512
"""Edits that are remembered, two of each place; the oldest go first."""
_TRUST = (0.67, 0.8, 0.9)
"""How far the first id of an edit is believed that was seen once, twice, more often."""


class Edit(NamedTuple):
    """The ids that stand in place of key[start:stop], and how often they did."""

    key: tuple[int, ...]
    start: int
    stop: int
    new: tuple[int, ...]
    n: int = 1

    @property
    def old(self) -> tuple[int, ...]:
        """The ids that it replaces."""
        return self.key[self.start : self.stop]


class Placed(NamedTuple):
    """An edit where it is expected: the place of its first id in what is expected, and that of what it replaces in the
    source.
    """

    at: int
    place: int
    edit: Edit

    @property
    def end(self) -> int:
        """After its last id in what is expected."""
        return self.at + len(self.edit.new)


class Expected(NamedTuple):
    """How a copy of source ids is expected to read: its ids, for each of them (and the end) its place in the source,
    how far it is believed (empty: all are), and the edits in it.
    """

    ids: Sequence[int]
    places: Sequence[int]
    trust: Sequence[float] = ()
    edits: Sequence[Placed] = ()

    def begun(self, at: int) -> Placed | None:
        """The edit that is half written where ids[at] comes next; something put in or left out just now counts, since
        the id after it says nothing of it.
        """
        for edit in self.edits:
            old, new = edit.edit.old, edit.edit.new
            if edit.at - (not new) < at < edit.end + (not old or not new):
                return edit
        return None

    def weighed(self, trust: Sequence[float], start: int) -> Sequence[float]:
        """How far ids[start:] are believed, where the source's own ids are so far as `trust` says (empty: all)."""
        if not trust:
            return self.trust[start:]
        if not self.edits:
            return trust[start:]
        last = len(trust) - 1
        own = [trust[min(place, last)] for place in self.places[start:-1]]
        return [a * b for a, b in zip(own, self.trust[start:], strict=True)] if self.trust else own


class Replacements:
    """The edits of one answer."""

    def __init__(self) -> None:
        self._edits: dict[tuple[int, ...], Edit] = {}
        # of keys that begin with an id, the longest first; those of forgotten ones too
        self._lengths: dict[int, list[int]] = {}

    def expect(self, source: Sequence[int], begun: Edit | None = None) -> Expected:
        """A copy of `source`, whose first id was written already; an edit that is `begun` comes right after it."""
        if begun is None and self._lengths.keys().isdisjoint(source):
            return Expected(source, range(len(source) + 1))
        ids: list[int] = []
        places: list[int] = []
        trust: list[float] = []
        edits: list[Placed] = []
        done = 0
        for place, edit in self._edits_in(source, begun):
            edits.append(Placed(len(ids) + place - done, place, edit))
            ids += (*source[done:place], *edit.new)
            places += (*range(done, place), *[place] * len(edit.new))
            trust += [1.0] * (place - done + len(edit.new))
            if edit.new:
                trust[-len(edit.new)] = _TRUST[min(edit.n, len(_TRUST)) - 1]  # with its first id written it is made
            done = place + len(edit.old)
        if not edits:
            return Expected(source, range(len(source) + 1))
        ids += source[done:]
        places += range(done, len(source) + 1)
        trust += [1.0] * (len(source) - done)
        return Expected(ids, places, trust, edits)

    def _edits_in(self, source: Sequence[int], begun: Edit | None) -> Iterator[tuple[int, Edit]]:
        """The edits and where they begin, in order, none within another; after what was put in no other edit puts in
        more.
        """
        free = 0
        if begun is not None:
            yield 1, begun
            free = 1 + max(len(begun.old), 1)
        lengths, known, source = self._lengths, self._edits, tuple(source)
        for i in [i for i, id_ in enumerate(source) if id_ in lengths]:
            if i < free:
                continue
            for n in lengths[source[i]]:
                edit = known.get(source[i : i + n])
                if edit is None:
                    continue
                if i or edit.start:
                    yield i + edit.start, edit
                    free = i + edit.stop + (not edit.old)
                break

    def learn(self, before: int, old: tuple[int, ...], new: tuple[int, ...], following: Sequence[int]) -> None:
        """Between these ids (up to two after), `new` was written for the source's `old`.

        Where "def load(" became "def read(", the ids are def, load, (. Two keys are known then: "def load", for the
        next definition, and "load (", for the calls. Of something put in, before (a, and) after it: "a b" with x
        between is known by "a b", and by the two ids after it, since one is too common.
        """
        n = len(old)
        if old == new or max(n, len(new)) > LONGEST:
            return
        self.saw(Edit((before, *(old or following[:1])), 1, 1 + n, new))
        if len(following) > (0 if old else 1):
            self.saw(Edit((*old, *following[: 1 if old else 2]), 0, n, new))

    def saw(self, edit: Edit) -> None:
        """This edit was made, once more or for the first time."""
        key = edit.key
        known = self._edits.pop(key, None)
        lengths = self._lengths.setdefault(key[0], [])
        if len(key) not in lengths:
            lengths.append(len(key))
            lengths.sort(reverse=True)
        n = known.n + 1 if known is not None and known.new == edit.new else 1
        self._edits[key] = edit if edit.n == n else edit._replace(n=n)
        if len(self._edits) > _LIMIT:
            self.forget(next(iter(self._edits.values())))

    def forget(self, edit: Edit) -> None:
        """It was expected and not made."""
        self._edits.pop(edit.key, None)
