"""The prompt cache with a level below it: what goes down, what comes up, who waits. Copies are lists, the level a
dictionary.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from uad.base.events import CacheCounts
from uad.engine.decode.lower_level import FoundText, StoredText
from uad.engine.decode.prompt_cache import PromptCache

A, B, C = (list(range(1000 * i, 1000 * (i + 1))) for i in (1, 2, 3))
RATE = 100.0  # ids read per second
PER_ID = 1 << 10  # bytes
Text = StoredText[list[int]]


@dataclass
class Lists:
    """Sequences as lists; a copy takes no time. told: of texts that came back."""

    held: dict[int, list[int]] = field(default_factory=dict)
    told: list[list[int]] = field(default_factory=list)

    def size(self, seq: int) -> int:
        return PER_ID * len(self.held[seq])

    def save(self, seq: int) -> list[int]:
        return list(self.held[seq])

    def restore(self, seq: int, saved: list[int]) -> bool:
        self.held[seq] = list(saved)
        return True

    def reach_of(self, saved: list[int], n: int) -> int:
        return min(n, len(saved))

    def restored(self, seq: int, ids: Sequence[int], saved: list[int]) -> None:
        self.told.append(saved)


@dataclass
class Level:
    """Texts by name. A text that is asked for comes when `bring` says so; those in `broken` never do."""

    texts: dict[str, tuple[list[int], float]] = field(default_factory=dict)
    asked: dict[str, Future[Text | None]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    per_byte: float = 0.0
    n_reads: int = 0

    def find(self, prompt: Sequence[int]) -> FoundText | None:
        found = [(common(ids, prompt), name) for name, (ids, _) in self.texts.items()]
        n, name = max(found, default=(0, ""))
        return FoundText(name, n, PER_ID * len(self.texts[name][0]), self.texts[name][1]) if n else None

    def is_quicker(self, n_bytes: int, seconds: float) -> bool:
        return n_bytes * self.per_byte < seconds

    def read(self, name: str, seconds: float) -> Future[Text | None]:
        self.n_reads += 1
        self.asked[name] = Future()
        return self.asked[name]

    def bring(self) -> None:
        for name, coming in self.asked.items():
            ids = self.texts[name][0]
            if name in self.broken:
                del self.texts[name]
                coming.set_result(None)
            else:
                coming.set_result(StoredText(ids, ids, PER_ID * len(ids), from_disk=True, read_s=1.0))
        self.asked.clear()

    def wants(self, ids: Sequence[int], n_bytes: int, rate: float) -> bool:
        return rate > 0 and not any(common(held, ids) == len(ids) for held, _ in self.texts.values())

    def write(self, text: Text, rate: float, *, waits: bool = False) -> None:
        if self.wants(text.ids, text.n_bytes, rate):
            self.texts[f"{text.ids[0]}+{len(text.ids)}"] = text.ids, rate

    def counts(self) -> CacheCounts:
        return CacheCounts(n_disk_texts=len(self.texts))


def common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def cache(states: Lists, level: Level, most: int | None = None) -> PromptCache[list[int]]:
    return PromptCache(states, most, lambda: 0.0, lower=level, restored=states.restored)


def turn(one: PromptCache[list[int]], states: Lists, level: Level, prompt: list[int], rate: float = RATE) -> int:
    """A prompt takes slot 0, once its text is there: how many ids it could go on from."""
    held = states.held.get(0, [])
    if one.arrivals.waits(1, prompt, common(held, prompt), rate):
        assert one.arrivals.is_coming(1)
        level.bring()
        assert not one.arrivals.waits(1, prompt, common(held, prompt), rate)
    now = one.exchange(0, held, common(held, prompt), prompt, rate)
    n = common(held if now is None else now, prompt)
    states.held[0] = list(prompt)
    return n


def test_what_leaves_its_slot_goes_down_at_once_and_comes_back_after_a_restart() -> None:
    states, level = Lists(), Level()
    one = cache(states, level)
    turn(one, states, level, A)
    turn(one, states, level, B)
    assert list(level.texts) == ["1000+1000"]
    states.held = {}
    again = cache(states, level)
    assert turn(again, states, level, [*A, 1], rate=0.0) == 1000, "the file says how fast it was read"
    assert states.told == [A]
    assert (again.counts.n_from_disk, again.counts.n_restored, again.counts.n_disk_texts) == (1, 1, 1)
    assert again.counts.saved_seconds == 10.0 - 1.0


def test_what_memory_has_is_not_read_from_below() -> None:
    states, level = Lists(), Level()
    one = cache(states, level)
    for prompt in (A, B, A, B):
        turn(one, states, level, prompt)
    assert level.n_reads == 0
    assert (one.counts.n_restored, one.counts.n_from_disk) == (2, 0)


def test_without_memory_texts_are_below_alone() -> None:
    states, level = Lists(), Level()
    one = cache(states, level, most=0)
    assert [turn(one, states, level, prompt) for prompt in (A, B, A[:600], [*B, 1])] == [0, 0, 600, 1000]
    assert one.counts.n_texts == one.counts.n_bytes == 0
    assert one.counts.n_from_disk == 2


def test_what_falls_out_of_memory_is_below() -> None:
    states, level = Lists(), Level()
    one = cache(states, level, most=PER_ID * 1000)
    turn(one, states, level, A)
    turn(one, states, level, B)
    level.texts.clear()  # too much waited when it left its slot
    turn(one, states, level, C)
    assert sorted(level.texts) == ["1000+1000", "2000+1000"]
    assert one.counts.n_texts == 1
    level.texts.clear()
    one.clear()
    assert list(level.texts) == ["2000+1000"]


def test_at_the_end_slots_and_memory_go_down() -> None:
    states, level = Lists(), Level()
    one = cache(states, level)
    turn(one, states, level, A)
    turn(one, states, level, B)
    level.texts.clear()
    one.store_all(0.0)
    one.store(0, B)
    one.store(1, [])
    assert sorted(level.texts) == ["1000+1000", "2000+1000"]


def test_reading_that_takes_longer_than_computing_is_not_done() -> None:
    states, level = Lists(), Level(texts={"a": (A, RATE)}, per_byte=1.0)
    assert turn(cache(states, level), states, level, A) == 0
    assert level.n_reads == 0


def test_two_that_wait_for_one_text_have_it_read_once() -> None:
    states, level = Lists(), Level(texts={"a": (A, RATE)})
    one = cache(states, level)
    assert [one.arrivals.waits(number, A, 0, RATE) for number in (1, 2)] == [True, True]
    assert level.n_reads == 1
    level.bring()
    assert [one.arrivals.waits(number, A, 0, RATE) for number in (1, 2)] == [False, False]
    assert one.counts.n_texts == 1


def test_one_that_waits_no_more_leaves_nothing_behind() -> None:
    states, level = Lists(), Level(texts={"a": (A, RATE)})
    one = cache(states, level)
    assert one.arrivals.waits(1, A, 0, RATE)
    one.arrivals.gone(1)
    level.bring()
    assert not one.arrivals.is_coming(1)
    assert one.counts.n_texts == 0


def test_where_a_text_does_not_come_the_next_best_is_tried() -> None:
    states, level = Lists(), Level(texts={"a": (A, RATE), "b": (A[:500], RATE)}, broken={"a"})
    one = cache(states, level)
    assert one.arrivals.waits(1, A, 0, RATE)
    level.bring()
    assert one.arrivals.waits(1, A, 0, RATE)
    level.bring()
    assert not one.arrivals.waits(1, A, 0, RATE)
    assert one.exchange(0, [], 0, A, RATE) == A[:500]


def test_nobody_tries_for_ever() -> None:
    states = Lists()
    level = Level(texts={f"{i}": (A[: 900 + i], RATE) for i in range(9)}, broken={f"{i}" for i in range(9)})
    one = cache(states, level)
    for _ in range(4):
        assert one.arrivals.waits(1, A, 0, RATE)
        level.bring()
    assert not one.arrivals.waits(1, A, 0, RATE)
    assert level.n_reads == 4


def test_a_text_for_which_the_machine_has_no_memory_is_not_read() -> None:
    states, level = Lists(), Level(texts={"a": (A, RATE)})
    one = PromptCache(states, None, lambda: 0.0, lambda: 256 << 20, lower=level, restored=states.restored)
    assert not one.arrivals.waits(1, A, 0, RATE)
    assert level.n_reads == 0
