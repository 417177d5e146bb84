"""The prompt cache: what is kept, what comes back, what it costs. Copies are lists, and have a clock of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from uad.engine.decode.prompt_cache import PromptCache

A, B, SYSTEM = list(range(1000, 2000)), list(range(2000, 3000)), list(range(600))
RATE = 100.0  # ids read per second
PER_ID = 1 << 10  # bytes


@dataclass
class Lists:
    """Sequences as lists. Copies of 1 KiB per id take no time unless `per_byte` says so; marks: where it can stop."""

    held: dict[int, list[int]] = field(default_factory=dict)
    marks: Sequence[int] | None = None
    fails: bool = False
    per_byte: float = 1e-10
    seconds: float = 0.0

    def clock(self) -> float:
        return self.seconds

    def size(self, seq: int) -> int:
        return PER_ID * len(self.held[seq])

    def save(self, seq: int) -> list[int]:
        self.seconds += self.per_byte * self.size(seq)
        return list(self.held[seq])

    def restore(self, seq: int, saved: list[int]) -> bool:
        self.seconds += self.per_byte * PER_ID * len(saved)
        self.held[seq] = [] if self.fails else list(saved)
        return not self.fails

    def reach_of(self, saved: list[int], n: int) -> int:
        if self.marks is None or n >= len(saved):
            return min(n, len(saved))
        return max((mark for mark in self.marks if mark <= n), default=0)


def cache(states: Lists, most: int | None = None, room: int | None = None) -> PromptCache[list[int]]:
    return PromptCache(states, most, states.clock, lambda: room)


def turn(one: PromptCache[list[int]], states: Lists, prompt: list[int], rate: float = RATE) -> int:
    """A prompt takes slot 0: how many ids it could go on from. Afterwards the slot holds the prompt."""
    held = states.held.get(0, [])
    n_kept = common(held, prompt)
    now = one.exchange(0, held, n_kept, prompt, rate)
    n = n_kept if now is None else common(now, prompt)
    assert now is None or states.held[0] == now
    states.held[0] = list(prompt)
    return n


def common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_two_conversations_in_turns_in_one_slot_are_each_read_once() -> None:
    states = Lists()
    one = cache(states)
    assert [turn(one, states, prompt) for prompt in (A, B, [*A, 1], [*B, 2], [*A, 1, 3])] == [0, 0, 1000, 1000, 1001]
    assert (one.counts.n_saved, one.counts.n_restored) == (4, 3)
    assert one.counts.n_texts == 1, "what is in a slot is not kept, too"


def test_the_beginning_of_a_stored_text_is_of_use_and_the_text_stays() -> None:
    states = Lists()
    one = cache(states)
    turn(one, states, [*SYSTEM, *A])
    turn(one, states, B)
    assert turn(one, states, [*SYSTEM, 7, 8, 9]) == 600
    turn(one, states, B)
    assert turn(one, states, [*SYSTEM, *A, 4]) == 1600


def test_where_memory_cannot_stop_anywhere_a_mark_or_the_whole_text_is_needed() -> None:
    states = Lists(marks=(512,))
    one = cache(states)
    turn(one, states, [*SYSTEM, *A])
    turn(one, states, B)
    assert turn(one, states, [*SYSTEM, 7]) == common([*SYSTEM, *A], [*SYSTEM, 7]) == 600
    assert one.counts.n_restored == 1
    assert one._texts.best([*SYSTEM, 7])[1] == 512


def test_what_is_cheaper_to_read_than_to_copy_is_not_kept() -> None:
    states = Lists()
    one = cache(states)
    turn(one, states, A, rate=1e9)
    turn(one, states, B, rate=1e9)
    assert one.counts.n_saved == 0
    slow = Lists(per_byte=1e-3)  # a second for each id: known once one copy was made
    one = cache(slow)
    for prompt in (A, B, A, B, A):
        turn(one, slow, prompt)
    assert one.counts.n_saved == 1


def test_nothing_is_kept_while_nothing_is_known_of_the_speed_of_reading() -> None:
    states = Lists()
    one = cache(states)
    turn(one, states, A, rate=0.0)
    turn(one, states, B, rate=0.0)
    assert one.counts.n_saved == 0


def test_the_least_recently_used_goes_first_and_the_limit_holds() -> None:
    states = Lists()
    one = cache(states, most=2 * PER_ID * 1000)
    texts = [list(range(i * 1000, (i + 1) * 1000)) for i in range(1, 5)]
    for text in texts:
        turn(one, states, text)
    assert one.counts.n_bytes <= 2 * PER_ID * 1000
    assert one.counts.n_dropped == 1
    assert turn(one, states, texts[1]) == 1000
    assert turn(one, states, texts[0]) == 0


def test_a_text_above_the_limit_drives_out_nobody() -> None:
    states = Lists()
    one = cache(states, most=PER_ID * 1200)
    turn(one, states, A)
    turn(one, states, list(range(5000, 7000)))
    assert one.counts.n_texts == 1
    turn(one, states, B)
    assert (one.counts.n_texts, one.counts.n_dropped) == (1, 0)


def test_no_more_is_taken_than_the_machine_has() -> None:
    states = Lists()
    one = cache(states, room=(256 << 20) + PER_ID * 100)
    turn(one, states, A)
    turn(one, states, B)
    assert one.counts.n_saved == 0


def test_memory_that_is_short_drives_nobody_out_for_nothing() -> None:
    states = Lists()
    one = cache(states)
    turn(one, states, A)
    turn(one, states, B)
    one._texts._room = lambda: 256 << 20  # what the stored text has, and no more
    states.held[0] = list(range(9000, 12000))
    turn(one, states, [1, 2, 3])
    assert (one.counts.n_texts, one.counts.n_dropped) == (1, 0)


def test_where_texts_take_turns_the_copy_is_made_ahead() -> None:
    states = Lists()
    one = cache(states)
    turn(one, states, A)
    one.keep_ahead(0, A, RATE)
    assert one.counts.n_saved == 0, "nobody has given way yet"
    turn(one, states, B)
    one.keep_ahead(0, B, RATE)
    assert one.counts.n_saved == 2
    assert turn(one, states, A) == 1000
    assert one.counts.n_saved == 2, "the copy is there"
    turn(one, states, [*A, 1])
    one.keep_ahead(0, [*A, 1], RATE)
    assert one.counts.n_saved == 2, "this conversation goes on"


def test_without_idle_slots_no_copy_is_made_ahead() -> None:
    states = Lists()
    one = PromptCache(states, None, states.clock, ahead=False)
    turn(one, states, A)
    turn(one, states, B)
    assert not one.keep_ahead(0, B, RATE)
    assert one.counts.n_saved == 1, "the one that was displaced"


def test_copies_that_are_not_needed_next_push_no_text_out() -> None:
    states = Lists()
    one = cache(states, most=PER_ID * 1500)
    turn(one, states, A)
    turn(one, states, B)
    states.held[1] = list(range(5000, 6000))
    assert not one.keep_ahead(1, states.held[1], RATE, may_drop=False)
    assert (one.counts.n_saved, one.counts.n_dropped) == (1, 0)
    assert one.keep_ahead(1, states.held[1], RATE)
    assert (one.counts.n_saved, one.counts.n_dropped) == (2, 1)


def test_a_longer_version_replaces_the_shorter_one() -> None:
    states = Lists()
    one = cache(states)
    turn(one, states, A)
    turn(one, states, B)
    turn(one, states, [*A[:500], *range(9000, 9500)])  # A stays: only its beginning was used
    turn(one, states, [*A, 1])
    assert [len(text.ids) for text in one._texts.all] == [1000, 1000]


def test_a_changed_end_is_not_put_aside_unless_it_is_long() -> None:
    states = Lists(per_byte=1e-7)
    one = cache(states)
    one._rates.copying = 1e-7
    turn(one, states, A)
    turn(one, states, [*A[:900], 1, 2, 3])
    assert one.counts.n_saved == 0
    turn(one, states, [*A[:550], 4])
    assert one.counts.n_saved == 1


def test_a_copy_that_cannot_be_put_back_is_forgotten_and_the_prompt_is_read() -> None:
    states = Lists()
    one = cache(states)
    turn(one, states, A)
    turn(one, states, B)
    states.fails = True
    assert turn(one, states, A) == 0
    assert [text.ids[0] for text in one._texts.all] == [B[0]]
    assert one.counts.n_restored == 0
