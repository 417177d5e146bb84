"""Which request runs in which slot, and what each slot's KV still holds for the next one. Knows no model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from uad.common.sequences import common_prefix
from uad.decode.sequence import Running
from uad.types import Request

UNREAD = 2  # ids of a prompt: some kernels give a single row other bits than several


@dataclass(slots=True)
class Slot:
    """`cached` are the ids in the target's KV while no request runs here. `used` orders slots by last use."""

    id: int
    running: Running | None = None
    cached: list[int] = field(default_factory=list)
    used: int = 0


class Slots:
    """A fixed number of slots. reach: how many of the first n ids of what a slot's KV holds can be kept (slot, n)."""

    def __init__(self, n: int, reach: Callable[[int, int], int]) -> None:
        self.all = [Slot(i) for i in range(n)]
        self._reach = reach
        self._clock = 0

    def running(self) -> list[Running]:
        """What runs, in the order of slots."""
        return [slot.running for slot in self.all if slot.running is not None]

    @property
    def has_free(self) -> bool:
        """Whether a request could start."""
        return any(slot.running is None for slot in self.all)

    def choose(self, request: Request) -> Slot | None:
        """A free slot: the wanted one; else, of those that can continue or hold all of the prompt, the one that holds
        most of it; else an empty one, or the longest unused.

        A slot can continue where the request keeps at least half of what it holds: every chat prompt begins with the
        template's head, and must not take another conversation's slot because of that.
        """
        free = [slot for slot in self.all if slot.running is None and request.slot in (-1, slot.id)]
        kept = {slot.id: self.kept(slot, request) for slot in free}
        most = len(request.prompt) - UNREAD
        fit = [
            slot
            for slot in free
            if slot.cached and (2 * kept[slot.id] >= len(slot.cached) or kept[slot.id] == most > 0)
        ]
        if fit:
            return max(fit, key=lambda slot: (kept[slot.id], -len(slot.cached), -slot.used))
        return min(free, key=_first_to_give_way, default=None)

    def next_to_give_way(self) -> Slot:
        """The slot that a text of another conversation would get, if all are free."""
        return min(self.all, key=_first_to_give_way)

    def kept(self, slot: Slot, request: Request) -> int:
        """How many of the slot's ids the request can go on from; some of its prompt is always left to be read, and all
        of it where its probabilities are asked for.
        """
        if not request.cache_prompt or request.prompt_probs:
            return 0
        n = max(min(common_prefix(slot.cached, request.prompt), len(request.prompt) - UNREAD), 0)
        return self._reach(slot.id, n) if n else 0

    def occupy(self, slot: Slot, running: Running) -> None:
        """The slot is taken."""
        self._clock += 1
        slot.running = running
        slot.used = self._clock

    def release(self, running: Running) -> None:
        """The slot is free; what its KV holds stays for the next prompt."""
        slot = self.all[running.slot]
        slot.running = None
        slot.cached = running.ids[: running.n_past]


def _first_to_give_way(slot: Slot) -> tuple[bool, int, int]:
    """An empty slot, else the longest unused."""
    return bool(slot.cached), slot.used, slot.id
