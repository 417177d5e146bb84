"""Which prompt is read in a round, and how many ids of it: readers take turns. Knows no model; the clock is its only
input beside counts.

A request that reads alone gets passes of the size that is fastest on the machine. A new request interrupts them, as
long as what is lost by that stays a small part of what is read. Otherwise a round reads for a bounded time, since a new
request waits for its end. Beside running streams that time is short, but for what a piece needs so as not to be slow:
two cores that read 90 ids a second read 22 rows in a quarter of a second, at three quarters of their speed. The first
half of that time is for prompts that can be finished in it, the shortest first.
The rest, half of it at least, goes to one of the others: to the oldest if some were finished, else in turns to the
oldest and to the one with least left. So a short prompt never waits for a long one, the oldest reads for half of the
time at least, and a long prompt loses only what others really read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Protocol, TypeVar

from uad.base.types import Clock

_STALL_S = 0.25  # how long a round's reading may keep running streams waiting
_ROUND_S = 0.85  # how long it may last where no answer is being written
SOON_S = 0.4  # a pass that ends so soon is not interrupted
_PASS_S = 1.5  # what one takes that may be interrupted, where it has more than the fewest rows
# rows of such a pass at least: on CPUs prompts are read at 0.98 of full speed with this many (0.96 with 128, 0.74 with
# 60)
_FULL_IDS = 256
# beside running streams a piece has this many ids (0.94 of full speed), if it takes no longer than _BESIDE_S: with the
# streams' own step they wait for a second. Two cores that read a 1.5B in Q8_0 at 72 rows a second take 0.89 s.
_FULL_BESIDE_IDS, _BESIDE_S = 64, 0.9
# rows from which on attention has its kernel for prompts there, whose bits do not depend on how many there are
_GRAIN_ROWS = 64
_MOST_LOST = 0.1  # share of the time of reading
_FEWEST_IDS = 16  # ids that a piece has at least: fewer cost nearly as much time
_NEWEST = 0.3  # share of the newest piece in the rate


class Reader(Protocol):
    """A sequence that reads its prompt. rate: ids per second, lately; 0: not known."""

    rate: float

    @property
    def number(self) -> int:
        """The request's number; larger for those that came later."""
        ...

    @property
    def n_unread(self) -> int:
        """Ids of the prompt that are still to be decoded."""
        ...


R = TypeVar("R", bound=Reader)


class Prefill:
    """Cuts prompts into pieces, one decode each.

    n_ubatch: rows of a pass over the weights; most: ids of one piece. Each reader has a rate of its own, since it falls
    with the depth; a newcomer begins with the one seen last.
    """

    def __init__(self, n_ubatch: int, most: int, clock: Clock) -> None:
        self._n_ubatch = n_ubatch
        self._grain = _GRAIN_ROWS if n_ubatch >= 2 * _GRAIN_ROWS else 1
        self._most = most
        self._clock = clock
        self._last_rate = 0.0
        self._is_firsts_turn = False
        self._read_s = self._lost_s = 0.0

    def pieces(self, readers: Callable[[], Sequence[R]], others_write: bool, can_stop: bool) -> Iterator[tuple[R, int]]:
        """A reader, and how many ids of it are to be decoded now, until the round has read for long enough. `readers`
        are asked for again after each piece. can_stop: a decode that takes longer may be interrupted.
        """
        began = self._clock()
        seconds = _STALL_S if others_write else _ROUND_S
        some = readers()
        if can_stop and len(some) == 1 and not others_write and self._lost_s <= _MOST_LOST * self._read_s:
            yield some[0], self._length(some[0].n_unread, self._alone(some[0]))
            return
        while (left := seconds / 2 - (self._clock() - began)) > 0 and (
            short := self._shortest(readers(), left)
        ) is not None:
            self._is_firsts_turn = True
            yield short, self._length(short.n_unread, short.n_unread)
        key = _came_first if self._is_firsts_turn else _least_left
        self._is_firsts_turn = not self._is_firsts_turn
        if (reader := min(readers(), key=key, default=None)) is not None:
            left = max(seconds - (self._clock() - began), seconds / 2)
            yield reader, self._length(reader.n_unread, self._room(reader, left, others_write))

    @property
    def rate(self) -> float:
        """Ids per second that a newcomer is expected to read; 0: nothing is known."""
        return self._last_rate

    def took(self, reader: Reader, n: int, seconds: float) -> None:
        """Record that a piece of n ids of this reader took `seconds`."""
        self._read_s += seconds
        if n >= _FEWEST_IDS and seconds > 0:
            rate = n / seconds
            self._last_rate = reader.rate = reader.rate + _NEWEST * (rate - reader.rate) if reader.rate else rate

    def lost(self, seconds: float) -> None:
        """Record that a decode was interrupted after `seconds`."""
        self._lost_s += seconds

    def may_stop(self, reader: Reader, n: int) -> bool:
        """Whether new requests may interrupt a piece of n ids: it takes long, could be shorter, and not too much was
        lost so far. So every prompt comes to its end, however many others come.
        """
        may_lose = self._lost_s <= max(_MOST_LOST * self._read_s, _ROUND_S)
        return n > _FEWEST_IDS and self.seconds(reader, n) > _ROUND_S and may_lose

    def seconds(self, reader: Reader, n: int) -> float:
        """Seconds that a piece of n ids of this reader is expected to take; infinite if nothing is known."""
        rate = reader.rate or self._last_rate
        return n / rate if rate else inf

    def _shortest(self, readers: Sequence[R], seconds: float) -> R | None:
        """The reader with least left, if that can be read in `seconds`."""
        reader = min(readers, key=_least_left, default=None)
        if reader is None or reader.n_unread > min(self._ids(reader, seconds), self._most):
            return None
        return reader

    def _alone(self, reader: Reader) -> int:
        """Ids of a piece that may be interrupted."""
        if not (reader.rate or self._last_rate):
            return self._n_ubatch
        return max(self._ids(reader, _ROUND_S), min(self._ids(reader, _PASS_S), self._n_ubatch), _FULL_IDS)

    def _room(self, reader: Reader, seconds: float, others_write: bool) -> int:
        """Ids that fit into `seconds`. The first piece of all is a full pass, since its speed is not yet known. After
        too many interruptions it is a small one, which is not to be interrupted.
        """
        if not (reader.rate or self._last_rate) and not others_write:
            return self._n_ubatch if self._lost_s <= _ROUND_S else max(self._grain, _FEWEST_IDS)
        n = self._ids(reader, seconds)
        return max(n, min(self._ids(reader, _BESIDE_S), _FULL_BESIDE_IDS)) if others_write else n

    def _ids(self, reader: Reader, seconds: float) -> int:
        """How many ids the reader reads in `seconds`, as far as is known."""
        return max(_FEWEST_IDS, int((reader.rate or self._last_rate) * seconds))

    def _length(self, n_unread: int, room: int) -> int:
        """Ids of a piece: passes of the kernel for prompts where room allows, here and in what is left, so that their
        bits do not depend on speed; and no pass of a single row, neither here nor in what is left.
        """
        n_ubatch, grain = self._n_ubatch, self._grain
        n = min(n_unread, room, self._most)
        if n > n_ubatch:
            n -= n % n_ubatch
        elif grain <= n < n_unread:
            n -= n % grain
        if grain <= n < n_unread < n + grain:
            n = n_unread if n_unread <= min(n_ubatch, self._most) else max(n - grain, grain)
        while n > 2 and (n % n_ubatch == 1 or n_unread - n == 1):
            n -= 1
        return n


def _least_left(reader: Reader) -> tuple[int, int]:
    return reader.n_unread, reader.number


def _came_first(reader: Reader) -> int:
    return reader.number
