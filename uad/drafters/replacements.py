"""What a copy that is edited replaces: a renamed name comes back, and is expected with its new name. Knows ids only.

An edit is known by the ids that it replaces and the one before or behind them, which are most of a name; where something is put in, by the
ids around it or the two behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LONGEST = 8
"""Ids that are replaced, or that replace them: a name, not a sentence."""
_LIMIT = 512
"""Edits that are remembered, two of each place; the oldest go first."""
_TRUST = (0.67, 0.8, 0.9)
"""How far an edit is believed that was seen once, twice, more often."""

_Key = tuple[int, ...]


class Edit(NamedTuple):
    """What stands instead of key[start:stop], and how often it did."""

    key: _Key
    start: int
    stop: int
    new: tuple[int, ...]
    n: int = 1

    @property
    def old(self) -> tuple[int, ...]:
        """What it replaces."""
        return self.key[self.start : self.stop]


class Expected(NamedTuple):
    """How a copy of source ids is expected to read: its ids, for each of them (and the end) its place in the source, how far it is believed
    (empty: all are), and the edits with the place in `ids` where they begin."""

    ids: Sequence[int]
    places: Sequence[int]
    trust: Sequence[float] = ()
    edits: Sequence[tuple[int, Edit]] = ()

    def after(self, rest: tuple[int, ...]) -> Expected:
        """The same where, behind its first id, the rest of an edit is still to be written."""
        n, trust = len(rest), self.trust or (1.0,) * len(self.ids)
        return Expected(
            (*self.ids[:1], *rest, *self.ids[1:]),
            (*self.places[:1], *[1] * n, *self.places[1:]),
            (*trust[:1], *[_TRUST[-1]] * n, *trust[1:]),
            [(start + n, edit) for start, edit in self.edits],
        )

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
        self._edits: dict[_Key, Edit] = {}
        self._keys: dict[int, list[_Key]] = {}  # by their first id, the longest first

    def expect(self, source: Sequence[int], settled: int = 0) -> Expected:
        """A copy of `source`, whose first id was written already; up to the id at `settled` there is no edit."""
        keys = self._keys
        places_of_keys = [i for i, id_ in enumerate(source) if id_ in keys] if keys else ()
        ids: list[int] = []
        places: list[int] = []
        trust: list[float] = []
        edits: list[tuple[int, Edit]] = []
        done, free = 0, settled  # of the source; from where on there may be edits
        for i in places_of_keys:
            edit = self._edit_at(source, i) if i >= free else None
            if edit is None or (i == settled and not edit.start):
                continue
            start, stop, new = i + edit.start, i + edit.stop, edit.new
            ids += (*source[done:start], *new)
            places += (*range(done, start), *[start] * len(new))
            trust += (*[1.0] * (start - done), *[_TRUST[min(edit.n, len(_TRUST)) - 1]] * len(new))
            edits.append((len(ids) - len(new), edit))
            done = stop
            free = stop + (start == stop)  # behind what was put in no other edit puts in more
        if not edits:
            return Expected(source, range(len(source) + 1))
        ids += source[done:]
        places += range(done, len(source) + 1)
        trust += [1.0] * (len(source) - done)
        return Expected(ids, places, trust, edits)

    def _edit_at(self, source: Sequence[int], i: int) -> Edit | None:
        for key in self._keys.get(source[i], ()):
            if tuple(source[i : i + len(key)]) == key:
                return self._edits[key]
        return None

    def learn(self, before: int, old: tuple[int, ...], new: tuple[int, ...], behind: Sequence[int]) -> None:
        """Between these ids (up to two behind), `new` was written for the source's `old`."""
        n = len(old)
        if max(n, len(new)) > LONGEST:
            return
        self.saw(Edit((before, *(old or behind[:1])), 1, 1 + n, new))
        if len(behind) > (0 if old else 1):
            self.saw(Edit((*old, *behind[: 1 if old else 2]), 0, n, new))

    def saw(self, edit: Edit) -> None:
        """This edit was made, once more or for the first time."""
        known = self._edits.pop(edit.key, None)
        if known is None:
            keys = self._keys.setdefault(edit.key[0], [])
            keys.append(edit.key)
            keys.sort(key=len, reverse=True)
        self._edits[edit.key] = edit._replace(n=known.n + 1 if known is not None and known.new == edit.new else 1)
        if len(self._edits) > _LIMIT:
            self.forget(next(iter(self._edits.values())))

    def forget(self, edit: Edit) -> None:
        """It was expected and not made."""
        if self._edits.pop(edit.key, None) is not None:
            self._keys[edit.key[0]].remove(edit.key)
            if not self._keys[edit.key[0]]:
                del self._keys[edit.key[0]]
