"""The prompt cache in the loop, on a scripted target: what requests, drafters and the policy hear of it; and who hears
that the target is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from kit.toys import (
    SCRIPT,
    TARGET_VOCAB,
    Collector,
    RandomDrafter,
    ScriptedModel,
    SimulatedClock,
    TimedModel,
    make_engine,
    run,
)

from uad.base.errors import UadError
from uad.base.events import Failed
from uad.base.types import Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.engine.decode.engine import Engine
from uad.engine.decode.prompt_cache import PromptCache
from uad.engine.policy.auto import AutoPolicy

GREEDY, OFF = SamplingParams(temperature=0), SpeculativeParams(enabled=False)
A = tuple(TARGET_VOCAB.tokenize(SCRIPT * 4)[:200])
B = tuple(reversed(A))


class Copies:
    """Copies of a scripted model's sequences, which take no time."""

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model

    def size(self, seq: int) -> int:
        return len(self._model.kv[seq])

    def save(self, seq: int) -> list[int]:
        return list(self._model.kv[seq])

    def restore(self, seq: int, saved: list[int]) -> bool:
        self._model.kv[seq] = list(saved)
        return True

    def reach_of(self, saved: list[int], n: int) -> int:
        return min(len(saved), n)


class Told(AutoPolicy):
    """Remembers how much of a prompt the drafters know."""

    def __init__(self) -> None:
        super().__init__()
        self.n_known: list[int] = []

    def begin(self, seq: int, n_prompt: int, temperature: float = 0.0, n_cached: int = 0) -> None:
        self.n_known.append(n_cached)


def timed(n_seq: int = 1) -> tuple[TimedModel, SimulatedClock]:
    clock = SimulatedClock()
    return TimedModel(TARGET_VOCAB, clock, lambda n, _: 0.01 * n, n_seq=n_seq), clock


def engine(policy: Told | None = None) -> Engine:
    target, clock = timed()
    cache = PromptCache(Copies(target), None, clock)
    return make_engine(target, RandomDrafter(), policy=policy or Told(), clock=clock, cache=cache)


def asked(prompt: Sequence[int], speculative: SpeculativeParams = OFF, **fields: bool) -> Request:
    return Request(tuple(prompt), GREEDY, speculative, max_tokens=6, **fields)


def one(of: Engine, request: Request) -> Collector:
    return run(of, [request])[0]


def test_a_conversation_that_comes_back_is_not_read_again_and_its_text_is_the_same() -> None:
    own = engine()
    first, other, again = (one(own, asked(prompt)) for prompt in (A, B, A))
    assert [turn.done.usage.n_cached for turn in (first, other, again)] == [0, 0, len(A) - 2]
    assert again.ids == first.ids == one(engine(), asked(A)).ids
    longer = asked((*A, *again.ids, *B[:5]))
    assert one(own, asked(B)).done.usage.n_cached == len(B) - 2
    assert one(own, longer).done.usage.n_cached == len(A) + len(again.ids) - 1
    counts = own.totals().cache
    assert (counts.n_saved, counts.n_restored) == (2, 3), "a stored text that begins with what the slot holds is enough"


def test_a_server_at_rest_makes_the_copy_that_the_next_request_would_wait_for() -> None:
    own = engine()
    for prompt in (A, B):
        one(own, asked(prompt))
        own.texts.rest()
    assert own.totals().cache.n_saved == 2
    assert one(own, asked(A)).done.usage.n_cached == len(A) - 2
    assert own.totals().cache.n_saved == 2


def test_a_server_at_rest_copies_one_idle_slot_after_the_other() -> None:
    target, clock = timed(n_seq=2)
    own = make_engine(
        target, RandomDrafter(), policy=Told(), clock=clock, cache=PromptCache(Copies(target), None, clock)
    )
    for prompt in (A, B, sorted(A)):  # the third takes the place of the first
        one(own, asked(prompt))
    assert own.totals().cache.n_saved == 1
    assert [own.texts.rest(), own.texts.rest(), own.texts.rest()] == [True, True, False]
    assert own.totals().cache.n_saved == 3


def test_what_slots_hold_is_forgotten_when_the_models_go() -> None:
    own = engine()
    for prompt in (A, B):
        one(own, asked(prompt))
    own.leave()
    assert own.totals().cache.n_texts == 0
    assert [slot.n_past for slot in own.slots()] == [0]
    assert one(own, asked(A)).done.usage.n_cached == 0


def test_a_request_that_wants_no_cache_reads_all_and_what_it_displaces_is_kept() -> None:
    own = engine()
    one(own, asked(A))
    assert one(own, asked(A, cache_prompt=False)).done.usage.n_cached == 0
    one(own, asked(B, cache_prompt=False))
    assert one(own, asked(A)).done.usage.n_cached == len(A) - 2


def test_drafters_hear_only_of_what_their_own_slot_held() -> None:
    policy = Told()
    own = engine(policy)
    drafted = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=4)
    for prompt in (A, B, A):
        one(own, asked(prompt, drafted))
    assert policy.n_known == [0, 0, 0], "the target's memory came back, not theirs"


@pytest.mark.parametrize("n_rounds", [0, 1, 3])
def test_who_runs_and_who_waits_hears_that_the_target_is_lost(n_rounds: int) -> None:
    own, sinks = engine(), [Collector(), Collector()]
    for number, sink in enumerate(sinks):
        own.submit(number, replace(asked(A), max_tokens=50), sink)
    for _ in range(n_rounds):
        own.step()
    own.requests.tell_all(UadError("lost"))
    for sink in sinks:
        assert isinstance(sink.end, Failed)
        assert str(sink.end.error) == "lost"
