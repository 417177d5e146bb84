"""Which slot serves which request, and what each slot's KV still holds for the next one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from uad.base.common.sequences import common_prefix
from uad.base.events import SlotInfo
from uad.base.types import Request
from uad.base.types.images import whole_images
from uad.engine.decode.prompt_cache import PromptCache
from uad.engine.decode.sequence import Running
from uad.engine.decode.target import Target

UNREAD = 2  # ids of a prompt: some kernels give a single row other bits than several


@dataclass(slots=True)
class Slot:
    """`cached` are the ids in the target's KV while no request runs here. `used` orders slots by last use."""

    id: int
    running: Running | None = None
    cached: list[int] = field(default_factory=list)
    used: int = 0


class Slots:
    """The slots of a target, one sequence of its KV each, and the requests that run there."""

    def __init__(self, target: Target) -> None:
        self.all = [Slot(i) for i in range(target.n_seq)]
        self._target = target
        self._clock = 0

    @property
    def running(self) -> list[Running]:
        """The running requests, in the order of slots."""
        return [slot.running for slot in self.all if slot.running is not None]

    @property
    def has_free(self) -> bool:
        """Whether a request could start. From any thread."""
        return any(slot.running is None for slot in self.all)

    def describe(self) -> tuple[SlotInfo, ...]:
        """The activity and contents of each slot."""
        return tuple(_describe(slot) for slot in self.all)

    def use(self, slot: Slot) -> None:
        """The slot is the one that was used last."""
        self._clock += 1
        slot.used = self._clock

    def release(self, running: Running) -> None:
        """The slot is free; what its KV holds stays for the next prompt."""
        slot = self.all[running.slot]
        if running.n_seen:  # of an image in the middle
            running.n_past = self._target.take_back(slot.id, running.n_past)
        slot.running = None
        slot.cached = running.ids[: running.n_past]


class SlotTexts:
    """The texts that free slots hold: which of them a request goes on from, what leaves for the prompt cache, and what
    comes back from there.

    cache: of texts that leave their slots. rate: ids of prompts that are read per second, lately.
    """

    def __init__(self, slots: Slots, target: Target, cache: PromptCache[Any] | None, rate: Callable[[], float]) -> None:
        self._slots = slots
        self._target = target
        self._cache = cache
        self._rate = rate
        self.arrivals = cache.arrivals if cache is not None else None

    # --- for a request that starts

    def choose(self, request: Request) -> Slot | None:
        """A free slot: the wanted one; else, of those that can continue or hold all of the prompt, the one that holds
        most of it; else an empty one, or the longest unused.

        A slot can continue where the request keeps at least half of what it holds: every chat prompt begins with the
        template's head, and must not take another conversation's slot because of that.
        """
        # All chats begin with the same 30 ids. Slot 0 holds another chat of 900 ids, slot 1 the last turn of this one,
        # 400 ids, slot 2 a chat of 50. A prompt of 450 ids keeps 30, 400 and 30 of these. Slots 1 and 2 keep half or
        # more, and slot 1 holds most. Another new chat of 450 ids keeps 30 of each. It takes slot 2, of which 30 are
        # more than half; and without slot 2 the longest unused.
        free = [slot for slot in self._slots.all if slot.running is None and request.slot in (-1, slot.id)]
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

    def kept(self, slot: Slot, request: Request) -> int:
        """How many of the slot's ids the request can go on from; some of its prompt is always left to be read, and all
        of it where its probabilities are asked for.
        """
        if not request.cache_prompt or request.prompt_probs:
            return 0
        n = max(min(common_prefix(slot.cached, request.prompt), len(request.prompt) - UNREAD), 0)
        n = whole_images(request.placed, n)
        return self._target.reach(slot.id, n) if n else 0

    def waits(self, slot: Slot, number: int, request: Request) -> bool:
        """Whether a request that could start here waits for what is read of its prompt from a disk. See
        `Arrivals.waits`.
        """
        if self.arrivals is None or not request.cache_prompt or request.prompt_probs:
            return False
        return self.arrivals.waits(number, request.prompt[:-UNREAD], self.kept(slot, request), self._rate())

    def prepare(self, slot: Slot, request: Request) -> tuple[int, int]:
        """Let the slot's KV hold as much of a prompt as it can: what it holds leaves for the prompt cache, where
        something there helps more. Returns how many ids of the prompt it holds then, and how many of them drafters may
        know: those that it held before, or also those that came back where they hear of that.
        """
        n_kept = n_known = self.kept(slot, request)
        if self._cache is not None and not request.prompt_probs:
            prompt = request.prompt[:-UNREAD] if request.cache_prompt else ()
            held = self._cache.exchange(slot.id, slot.cached, n_known, prompt, self._rate())
            if held is not None:
                slot.cached = held
                n_kept = self.kept(slot, request)
                n_known = n_kept if self._cache.tells_drafters else n_known
        if not n_kept:
            self._target.clear(slot.id)
        elif n_kept < len(slot.cached):
            n_kept = self._target.take_back(slot.id, n_kept)
        return n_kept, n_known

    # --- while nothing starts

    def rest(self) -> bool:
        """To be called while nothing runs or waits, and no request is expected at this moment: what the next ones might
        have to wait for is done now, a piece of it. Returns whether there may be more.
        """
        if self._cache is None:
            return False
        rate = self._rate()
        # the first is the one that a text of another conversation would get; copies of those after it push none out
        for i, slot in enumerate(sorted(self._slots.all, key=_first_to_give_way)):
            if slot.cached and self._cache.keep_ahead(slot.id, slot.cached, rate, may_drop=i == 0):
                return True
        return False

    def spare(self) -> tuple[int, int] | None:
        """A sequence, and after how many of its positions passes may be tried while nothing runs, without harm: an
        empty one, else the shortest, where ids are taken back by position. None if neither will do.
        """
        slot = min(self._slots.all, key=lambda slot: len(slot.cached))
        n_held = len(slot.cached)
        return (slot.id, n_held) if not n_held or not self._target.tail else None

    def store(self) -> None:
        """Write the contents of slots and of the prompt cache to its level on the disk, if it has one. Running requests
        are written as they are between two rounds.
        """
        if self._cache is None:
            return
        self._cache.store_all(self._rate())
        for slot in sorted(self._slots.all, key=lambda slot: slot.used):
            running = slot.running
            held = slot.cached if running is None else running.ids[: running.n_past]
            self._cache.store(slot.id, held)

    def forget(self) -> None:
        """Nothing that slots hold serves later prompts, since the target computes other values now. Only while
        idle.
        """
        if self._cache is not None:
            self._cache.clear()
        for slot in self._slots.all:
            self.erase(slot.id)

    # --- of one slot

    def held(self, id_: int) -> list[int] | None:
        """The ids that a slot holds; None while a request runs there."""
        slot = self._slots.all[id_]
        return slot.cached if slot.running is None else None

    def erase(self, id_: int) -> None:
        """Forget what a free slot holds."""
        self._slots.all[id_].cached.clear()
        self._target.clear(id_)

    def replace(self, id_: int, ids: list[int], put: Callable[[], bool]) -> bool:
        """Let a free slot hold these ids, which `put` puts into the target's memory; what it held leaves for the prompt
        cache. False: that failed, and the slot is empty.
        """
        slot = self._slots.all[id_]
        if self._cache is not None:
            self._cache.exchange(id_, slot.cached, 0, (), self._rate())
        slot.cached = []
        if put():
            slot.cached = ids
            self._slots.use(slot)
        return bool(slot.cached)


def _first_to_give_way(slot: Slot) -> tuple[bool, int, int]:
    """An empty slot, else the longest unused."""
    return bool(slot.cached), slot.used, slot.id


def _describe(slot: Slot) -> SlotInfo:
    running = slot.running
    if running is None:
        return SlotInfo(slot.id, None, len(slot.cached), False)
    answer = running.answer
    counts = running.n_prompt, running.n_cached, answer.n, max(answer.n_most - answer.n, 0)
    return SlotInfo(slot.id, running.number, running.n_past, True, *counts)
