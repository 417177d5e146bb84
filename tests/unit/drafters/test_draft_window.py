"""What the draft model reads of a prompt, and when: nothing before the first token, a window of its end, in a second
turn what is new.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.toys import DRAFT_END as END
from kit.toys import DRAFT_VOCAB, SCRIPT, TARGET_VOCAB, Collector, ScriptedModel, ToyRules, make_engine, run

from uad.base.types import Ask, Commit, Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.drafts.model.model_drafter import ModelDrafter
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine
from uad.text.vocab.encode import Encoder

ENCODER = Encoder(TARGET_VOCAB)
IDS = tuple(TARGET_VOCAB.tokenize(SCRIPT * 40))
FIXED = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=6, p_min=0.0)


def parts(window: int, n_ctx: int = 4096) -> tuple[ScriptedModel, ModelDrafter]:
    draft = ScriptedModel(DRAFT_VOCAB, n_ctx=n_ctx, n_batch=2048)
    return draft, ModelDrafter(draft, ENCODER, ToyRules(), window=window)


def n_read(draft: ScriptedModel) -> int:
    """Rows of all its decodes so far."""
    return sum(sum(batch.values()) for batch in draft.batches)


def asked(prompt: tuple[int, ...], max_tokens: int, speculative: SpeculativeParams = FIXED) -> Request:
    return Request(prompt, SamplingParams(temperature=0), speculative, max_tokens)


def test_the_draft_reads_nothing_before_the_first_token() -> None:
    draft, drafter = parts(0)
    engine = make_engine(ScriptedModel(TARGET_VOCAB, n_ctx=4096), drafter)
    sink = Collector()
    engine.submit(1, asked(IDS[:900], 40), sink)
    while not sink.ids:
        engine.step()
    assert draft.n_decodes == 0
    while not engine.is_idle:
        engine.step()
    assert n_read(draft) > 500
    assert sink.done.timings.draft.n_accepted > 0


@pytest.mark.parametrize("window", [50, 300])
def test_of_a_long_prompt_it_reads_the_end(window: int) -> None:
    draft, drafter = parts(window)
    plain = run(make_engine(ScriptedModel(TARGET_VOCAB, n_ctx=4096)), [asked(IDS[:900], 60)])[0]
    drafted = run(make_engine(ScriptedModel(TARGET_VOCAB, n_ctx=4096), drafter), [asked(IDS[:900], 60)])[0]
    assert drafted.ids == plain.ids
    assert sum(draft.batches[0].values()) == min(window, 256)
    kv = DRAFT_VOCAB.join(draft.kv[0])
    whole = TARGET_VOCAB.join([*IDS[:900], *drafted.ids])
    at = whole.rfind(kv[:-20])
    assert at > 0
    assert len(whole) - at - len(kv) < 40


def test_a_second_turn_reads_only_what_is_new() -> None:
    for window in (0, 300):
        draft, drafter = parts(window)
        engine = make_engine(ScriptedModel(TARGET_VOCAB, n_ctx=4096), drafter)
        first = run(engine, [asked(IDS[:900], 60)])[0]
        before = n_read(draft)
        turn = (*IDS[:900], *first.ids, *IDS[200:240])
        sink = Collector()
        engine.submit(2, asked(turn, 2), sink)
        while not engine.is_idle:
            engine.step()
        assert sink.done.usage.n_cached >= 950
        assert 20 < n_read(draft) - before < 110, window


@given(
    st.lists(st.tuples(st.integers(1, 200), st.integers(0, 8), st.integers(0, 90)), min_size=1, max_size=25),
    st.integers(16, 120),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_its_kv_holds_the_end_of_the_text_whatever_is_written_and_asked(
    steps: list[tuple[int, int, int]], window: int, bos: bool
) -> None:
    """The scripted context checks each decode's place; what it holds must be the draft's own ids of a part of the
    text.
    """
    vocab = replace(DRAFT_VOCAB, add_bos=bos, bos=END)
    draft = ScriptedModel(vocab, n_ctx=400, n_batch=2048)
    drafter = ModelDrafter(draft, ENCODER, ToyRules(), window=window)
    text = list(IDS[:7])
    drafter.begin(0, tuple(text))
    for n_written, n_max, n_asked in steps:
        more = IDS[len(text) % 1000 : len(text) % 1000 + n_written]
        text += more
        drafter.observe(Commit(0, tuple(more)))
        (one,) = drafter.propose([Ask(0, n_max, n_read=n_asked)])
        assert one.n_read <= max(n_asked, window) or not n_asked
        mirror = drafter._cache.sequences[0].mirror
        held = [*([END] if bos and mirror.skip else []), *mirror.ids[mirror.skip : mirror.n_kv]]
        assert mirror.n_kv == mirror.skip or draft.kv[0][: len(held)] == held


@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(1, 400), st.integers(0, 2)), min_size=2, max_size=6),
    st.integers(16, 120),
)
@settings(max_examples=60, deadline=None)
def test_its_kv_is_known_over_many_texts(texts: list[tuple[int, int, int]], window: int) -> None:
    """Texts that share any beginning with the one before, drafted for or not: what its KV holds is never taken for
    something else.
    """
    draft, drafter = parts(window, n_ctx=400)
    before: list[int] = []
    for n_kept, n_new, n_asks in texts:
        before = [*before[:n_kept], *IDS[n_new : 2 * n_new]]
        drafter.begin(0, tuple(before))
        for _ in range(n_asks):
            drafter.propose([Ask(0, 4)])
            mirror = drafter._cache.sequences[0].mirror
            held = mirror.ids[mirror.skip : mirror.n_kv]
            assert draft.kv[0][: len(held)] == held
        drafter.end(0)


def test_an_answer_too_short_to_pay_for_reading_gets_no_draft() -> None:
    """Decodes take 0.1 s here, reading an id of the draft 5 ms: 900 ids are worth 45 of the target's, a window of 100
    five.
    """
    costs = CostCurve([CostSample(n, 0, 100.0 + n) for n in range(1, 50)])

    def reads(window: int, n_tokens: int) -> bool:
        policy = AutoPolicy(Machine(costs, {Origin.MODEL: CostCurve([CostSample(1, 0, 10.0)])}), window=window)
        draft, drafter = parts(window)
        run(
            make_engine(ScriptedModel(TARGET_VOCAB, n_ctx=4096), drafter, policy=policy),
            [asked(IDS[:900], n_tokens, SpeculativeParams())],
        )
        return draft.n_decodes > 0

    assert [reads(0, 16), reads(100, 16), reads(0, 600), reads(100, 200)] == [False, False, True, True]
