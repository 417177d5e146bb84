"""The loop on a scripted target: slots, prefix reuse, chunks, limits, stops, cancelling, failures, and the shape of
batches.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.toys import (
    DRAFT_VOCAB,
    SCRIPT,
    TARGET_VOCAB,
    Collector,
    RandomDrafter,
    ScriptedModel,
    ToyRules,
    make_engine,
    run,
)

from uad.base.console import LogLines
from uad.base.errors import ContextOverflowError, InvalidRequestError, NoKvRoomError, UnavailableError
from uad.base.events import Done
from uad.base.stats import DraftStats, Timings, Usage
from uad.base.types import (
    Ask,
    Commit,
    Draft,
    Finish,
    Origin,
    Request,
    Rows,
    SamplingParams,
    SpecPolicy,
    SpeculativeParams,
    StopKind,
)
from uad.drafts.model.model_drafter import ModelDrafter
from uad.engine.decode.layout import Least, padding, passes
from uad.engine.decode.scheduler import summary
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.protocol import Decoded, Seen
from uad.text.vocab.encode import Encoder

GREEDY = SamplingParams(temperature=0)
OFF = SpeculativeParams(enabled=False)
ENCODER = Encoder(TARGET_VOCAB)


def ids(n: int) -> tuple[int, ...]:
    return tuple((TARGET_VOCAB.tokenize(SCRIPT * (1 + n // 50)))[:n])


def request(n_prompt: int = 12, **fields) -> Request:
    return Request(**{"prompt": ids(n_prompt), "sampling": GREEDY, "speculative": OFF, "max_tokens": 8, **fields})


def drafted(target: ScriptedModel, **options):
    return make_engine(target, ModelDrafter(ScriptedModel(DRAFT_VOCAB, target.n_seq), ENCODER, ToyRules()), **options)


def test_a_prompt_is_reused_as_far_as_it_is_the_same() -> None:
    target = ScriptedModel(TARGET_VOCAB, n_seq=2)
    engine = make_engine(target)
    first = run(engine, [request(40)])[0]
    again = run(engine, [request(40)])[0]
    longer = run(engine, [request(60)])[0]
    fresh = run(engine, [request(40, cache_prompt=False)])[0]
    assert [r.done.usage.n_cached for r in (first, again, fresh)] == [0, 38, 0]
    assert 40 <= longer.done.usage.n_cached < 60
    assert first.ids == again.ids == fresh.ids


def test_slots_with_a_request_are_counted_at_every_decode() -> None:
    engine = make_engine(ScriptedModel(TARGET_VOCAB, n_seq=2))
    run(engine, [request()])
    alone = engine.totals()
    assert alone.n_busy_slots == alone.n_decodes > 0
    run(engine, [request(), request()])
    both = engine.totals()
    n_decodes = both.n_decodes - alone.n_decodes
    assert n_decodes < both.n_busy_slots - alone.n_busy_slots <= 2 * n_decodes


@pytest.mark.parametrize("n_prompt", [1, 2])
def test_a_prompt_of_one_or_two_ids_is_read_from_its_beginning(n_prompt: int) -> None:
    target = ScriptedModel(TARGET_VOCAB)
    engine = make_engine(target)
    first, again = (run(engine, [request(n_prompt)])[0] for _ in range(2))
    assert [(r.done.usage.n_prompt, r.done.usage.n_cached) for r in (first, again)] == [(n_prompt, 0)] * 2
    assert first.ids == again.ids
    assert len(first.ids) == 8


def test_a_target_that_takes_nothing_back_keeps_a_cache_that_goes_on_and_drops_any_other() -> None:
    target = ScriptedModel(TARGET_VOCAB)
    target.n_free = 0
    engine = make_engine(target)
    first = run(engine, [request(40)])[0]
    turn = Request((*ids(40), *first.ids, *ids(5)), GREEDY, OFF, max_tokens=8)
    on, again, other = (run(engine, [one])[0] for one in (turn, turn, request(30)))
    assert [r.done.usage.n_cached for r in (first, on, again, other)] == [0, 47, 0, 0]
    assert again.ids == on.ids


def test_the_slot_with_the_longest_common_prefix_is_chosen() -> None:
    engine = make_engine(ScriptedModel(TARGET_VOCAB, n_seq=2))
    other = Request(tuple(reversed(ids(30))), GREEDY, OFF, max_tokens=2)
    run(engine, [request(40), other])
    result = run(engine, [request(40)])[0]
    assert (result.done.slot, result.done.usage.n_cached) == (0, 38)


def conversation(first: int, n: int = 60, **fields) -> Request:
    """A chat prompt: a template's head that all conversations have, and text of its own."""
    return request(prompt=(*ids(12), *range(first, first + n)), max_tokens=2, **fields)


def test_a_conversation_is_not_overwritten_by_one_with_the_same_head_while_a_slot_is_empty() -> None:
    engine = make_engine(ScriptedModel(TARGET_VOCAB, n_seq=2))
    one, other, again = (run(engine, [conversation(first)])[0].done for first in (0, 100, 0))
    assert (one.slot, other.slot, other.usage.n_cached) == (0, 1, 0)
    assert (again.slot, again.usage.n_cached) == (0, 70)
    newcomer = run(engine, [conversation(30)])[0].done
    assert (newcomer.slot, newcomer.usage.n_cached) == (1, 12), (
        "the longest unused slot is taken, with what it has of use"
    )


def test_a_long_conversation_is_given_up_neither_for_a_short_prompt_nor_for_one_that_wants_no_cache() -> None:
    engine = make_engine(ScriptedModel(TARGET_VOCAB, n_seq=2))
    run(engine, [conversation(0, 150)])
    assert run(engine, [conversation(200, 3)])[0].done.slot == 1
    assert run(engine, [conversation(0, 150)])[0].done.slot == 0
    assert run(engine, [conversation(0, 150, cache_prompt=False)])[0].done.slot == 1
    assert run(engine, [conversation(0, 150)])[0].done.usage.n_cached == 160


def test_an_asked_slot_is_given_and_a_missing_one_refused() -> None:
    engine = make_engine(ScriptedModel(TARGET_VOCAB, n_seq=3))
    assert run(engine, [request(slot=2)])[0].done.slot == 2
    with pytest.raises(InvalidRequestError, match="slots are 0 to 2"):
        engine.requests.check(request(slot=3))


def test_more_requests_than_slots_wait_their_turn_and_get_the_same_text() -> None:
    target = ScriptedModel(TARGET_VOCAB, n_seq=2)
    many = [request(5 + 3 * i, cache_prompt=i % 2 == 0) for i in range(7)]
    alone = [run(make_engine(ScriptedModel(TARGET_VOCAB)), [one])[0].ids for one in many]
    assert [r.ids for r in run(make_engine(target), many)] == alone
    assert [r.ids for r in run(drafted(ScriptedModel(TARGET_VOCAB, n_seq=2)), many)] == alone


def test_a_long_prompt_is_read_in_chunks_while_others_go_on() -> None:
    target = ScriptedModel(TARGET_VOCAB, n_seq=2, n_batch=64)
    engine = make_engine(target)
    writer, reader = Collector(), Collector()
    engine.submit(1, request(5, max_tokens=200), writer)
    for _ in range(3):
        engine.step()
    engine.submit(2, request(300), reader)
    before = len(writer.ids)
    while not reader.ids:
        engine.step()
    assert sum(1 in batch for batch in target.batches) >= 300 // 64
    assert len(writer.ids) - before >= 300 // 64, "the running stream stood still while the prompt was read"


@pytest.mark.parametrize(("n_seq", "n_batch", "least"), [(1, 2, 1), (4, 4, 1), (1, 9, 8), (2, 16, 8), (3, 24, 8)])
def test_the_smallest_batches_that_are_taken_are_enough(n_seq: int, n_batch: int, least: int) -> None:
    for of_each in (False, True):
        model = ModelDrafter(ScriptedModel(DRAFT_VOCAB, n_seq, n_batch=n_batch), ENCODER, ToyRules())
        target = ScriptedModel(TARGET_VOCAB, n_seq, n_batch=n_batch)
        engine = make_engine(target, model, least=Least(least, of_each))
        many = [
            request(5 + 9 * i, speculative=SpeculativeParams(policy=SpecPolicy.FIXED), max_tokens=20)
            for i in range(2 * n_seq)
        ]
        assert [r.done.usage.n_predicted for r in run(engine, many)] == [20] * len(many)


@pytest.mark.parametrize("n_batch", [64, 65, 256])
def test_no_pass_of_a_prompt_has_a_single_row(n_batch: int) -> None:
    target = ScriptedModel(TARGET_VOCAB, n_seq=2, n_ctx=2048, n_batch=n_batch)
    engine = make_engine(target)
    for n in (2, 3, 63, 64, 65, 66, 127, 128, 129, 130, 193, 257):
        both = [request(n, max_tokens=1), Request(tuple(reversed(ids(n))), GREEDY, OFF, max_tokens=1)]
        run(engine, both + both)
    assert min(n for batch in target.batches for _, n in passes(batch, target.n_ubatch)) == 2


@pytest.mark.parametrize("speculative", [OFF, SpeculativeParams(policy=SpecPolicy.FIXED, n_max=12, p_min=0.0)])
def test_the_context_is_filled_to_the_last_place_and_not_beyond(speculative: SpeculativeParams) -> None:
    target = ScriptedModel(TARGET_VOCAB, n_ctx=64)
    for exact in (False, True):
        engine = drafted(ScriptedModel(TARGET_VOCAB, n_ctx=64), least=Least(1 + exact))
        result = run(engine, [request(20, max_tokens=None, speculative=speculative)])[0]
        assert len(result.ids) == 64 - 20 - exact
        assert (str(result.done.finish), str(result.done.stop_kind), result.done.truncated) == ("length", "limit", True)
    with pytest.raises(ContextOverflowError) as caught:
        make_engine(target).requests.check(request(64))
    assert (caught.value.n_prompt_tokens, caught.value.n_ctx) == (64, 64)


def test_max_tokens_is_exact_for_every_draft_length() -> None:
    for n in range(1, 14):
        result = run(
            drafted(ScriptedModel(TARGET_VOCAB)),
            [request(max_tokens=n, speculative=SpeculativeParams(policy=SpecPolicy.FIXED, n_max=16, p_min=0.0))],
        )[0]
        assert (len(result.ids), str(result.done.finish), result.done.truncated) == (n, "length", False)
        assert result.done.usage.n_predicted == n


def test_max_tokens_0_fills_the_cache_and_writes_nothing() -> None:
    engine = drafted(ScriptedModel(TARGET_VOCAB))
    result = run(engine, [request(30, max_tokens=0, speculative=SpeculativeParams())])[0]
    assert (result.ids, result.text, str(result.done.finish), result.done.usage.n_predicted) == ([], "", "length", 0)
    assert run(engine, [request(40)])[0].done.usage.n_cached == 30


def test_a_stop_string_inside_an_accepted_run_cuts_text_and_ids() -> None:
    plain = run(make_engine(ScriptedModel(TARGET_VOCAB)), [request(max_tokens=60)])[0]
    word = plain.text[20:29]
    for speculative in (OFF, SpeculativeParams(policy=SpecPolicy.FIXED, n_max=16, p_min=0.0)):
        result = run(
            drafted(ScriptedModel(TARGET_VOCAB)), [request(max_tokens=60, stop=(word,), speculative=speculative)]
        )[0]
        assert result.text == plain.text[: plain.text.index(word)]
        assert (str(result.done.stop_kind), result.done.stopping_word) == ("word", word)
        assert result.ids == plain.ids[: len(result.ids)]
        assert len(result.ids) < len(plain.ids)
        assert result.done.timings.draft.n_accepted == sum(
            origin is not Origin.TARGET for delta in result.deltas for origin in delta.origins
        )


def test_the_cache_after_a_stop_in_mid_run_is_what_the_kv_holds() -> None:
    plain = run(make_engine(ScriptedModel(TARGET_VOCAB)), [request(max_tokens=60)])[0]
    target = ScriptedModel(TARGET_VOCAB)
    engine = drafted(target)
    run(
        engine,
        [
            request(
                max_tokens=60,
                stop=(plain.text[20:29],),
                speculative=SpeculativeParams(policy=SpecPolicy.FIXED, n_max=16, p_min=0.0),
            )
        ],
    )
    slot = engine.requests._slots.all[0]
    assert slot.cached == target.kv[0]


def test_cancelling_frees_the_slot_at_once_and_no_event_follows() -> None:
    engine = drafted(ScriptedModel(TARGET_VOCAB))
    running, waiting, third = Collector(), Collector(), Collector()
    engine.submit(1, request(max_tokens=300, speculative=SpeculativeParams()), running)
    engine.submit(2, request(max_tokens=3), waiting)
    engine.submit(3, request(max_tokens=3), third)
    engine.step()
    engine.cancel(1)
    engine.cancel(2)
    assert not engine.slots()[0].is_processing
    seen = len(running.ids)
    for _ in range(10):
        engine.step()
    assert (len(running.ids), running.end, waiting.end) == (seen, None, None)
    assert len(third.ids) == 3


def test_no_kv_room_fails_the_requests_of_the_batch_only() -> None:
    target = ScriptedModel(TARGET_VOCAB)
    engine = make_engine(target)
    sink = Collector()
    engine.submit(1, request(), sink)
    engine.step()
    target.decode = lambda rows, may_stop=False: (_ for _ in ()).throw(NoKvRoomError("no room"))  # type: ignore[method-assign]
    engine.step()
    assert isinstance(sink.failed.error, NoKvRoomError)
    del target.decode
    assert len(run(engine, [request()])[0].ids) == 8


def test_fail_all_tells_running_and_waiting() -> None:
    engine = make_engine(ScriptedModel(TARGET_VOCAB))
    sinks = [Collector(), Collector()]
    for number, sink in enumerate(sinks):
        engine.submit(number, request(), sink)
    engine.step()
    engine.requests.fail_all(UnavailableError("down"))
    assert all(isinstance(sink.failed.error, UnavailableError) for sink in sinks)
    assert engine.is_idle


def test_empty_prompt_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="empty"):
        make_engine(ScriptedModel(TARGET_VOCAB)).requests.check(Request(()))


def test_log_probabilities_are_the_targets_also_for_accepted_ids() -> None:
    one = request(max_tokens=20, logprobs=True, n_probs=3)
    plain = run(make_engine(ScriptedModel(TARGET_VOCAB)), [one])[0]
    spec = Request(
        one.prompt, GREEDY, SpeculativeParams(policy=SpecPolicy.FIXED, n_max=8, p_min=0.0), 20, logprobs=True, n_probs=3
    )
    fast = run(drafted(ScriptedModel(TARGET_VOCAB)), [spec])[0]
    flat = [[prob for delta in result.deltas for prob in delta.probs] for result in (plain, fast)]
    assert fast.done.timings.draft.n_accepted > 0
    assert flat[0] == flat[1]
    assert [prob.id for prob in flat[0]] == plain.ids
    assert all(len(prob.top) == 3 and prob.top[0].logprob == prob.logprob <= 0 for prob in flat[0])


def test_the_log_line_says_what_happened(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "uad.request"):
        run(drafted(ScriptedModel(TARGET_VOCAB)), [request(max_tokens=30, speculative=SpeculativeParams(p_min=0.2))])
        run(make_engine(ScriptedModel(TARGET_VOCAB)), [request()])
    lines = [record.getMessage() for record in caplog.records]
    pattern = (
        r"request 1: read \d+ tokens in \d+ ms, wrote 30 in [\d.]+ m?s, [\d.,]+ tokens/s \(stopped at the token limit\)"
    )
    assert re.fullmatch(pattern + r"; drafted \d+, accepted \d+ \(\d+ %\)", lines[0])
    assert "drafted" not in lines[1]


def test_the_rest_of_what_drafts_did_is_logged_for_developers(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "uad.request"):
        run(drafted(ScriptedModel(TARGET_VOCAB)), [request(max_tokens=30, speculative=SpeculativeParams(p_min=0.2))])
        run(make_engine(ScriptedModel(TARGET_VOCAB)), [request()])
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    for word in ("accepted per draft", "healed", "salvaged", "translation"):
        assert word in line


@pytest.mark.parametrize(
    ("timings", "line"),
    [
        (
            Timings(190.4, 2910.0, 234, 1000, 120, DraftStats(9, 9, 96, 71)),
            "read 234 tokens (and 1,000 from the cache) in 190 ms, wrote 120 in 2.9 s, 40.9 tokens/s; drafted 96, "
            "accepted 71 (74 %), saved about 1.4 s",
        ),
        (Timings(61_000.0, 0.0, 12_345, 0, 1), "read 12,345 tokens in 61 s, wrote 1 in 0 ms"),
        (Timings(1.0, 197_700.0, 1, 0, 2), "read 1 token in 1 ms, wrote 2 in 198 s, 0.00506 tokens/s"),
    ],
)
def test_the_log_line_has_numbers_as_people_write_them(timings: Timings, line: str) -> None:
    done = Done(3, Finish.STOP, StopKind.EOS, Usage(1, 0, 1, 0), timings)
    assert summary(done, 1400.0) == f"request 3: {line}"
    assert "saved" not in summary(done, 40.0)
    assert "saved" not in summary(done, -900.0)


def test_a_request_that_is_cancelled_leaves_a_line(caplog: pytest.LogCaptureFixture) -> None:
    engine = make_engine(ScriptedModel(TARGET_VOCAB))
    with caplog.at_level(logging.INFO, "uad.request"):
        for number in (1, 2):
            engine.submit(number, request(max_tokens=90, name=f"mine-{number}"), lambda _: None)
        for _ in range(3):
            engine.step()
        for number in (1, 2, 3):
            engine.cancel(number, "client left")
    lines = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(r"request 1: client left; read (\d+) of \1 tokens, wrote [1-9]\d*", lines[0])
    assert re.fullmatch(r"request 2: client left; read 0 of \d+ tokens, wrote 0", lines[1])
    assert len(lines) == 2


def test_the_log_line_has_the_name_of_its_request_and_no_zeros(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.setFormatter(LogLines(is_dated=False))
    with caplog.at_level(logging.INFO, "uad.request"):
        drafter = ModelDrafter(ScriptedModel(DRAFT_VOCAB), ENCODER, ToyRules(), heal=False, salvage=False)
        asked = request(max_tokens=9, name="mine", speculative=SpeculativeParams(p_min=0.2))
        run(make_engine(ScriptedModel(TARGET_VOCAB), drafter), [asked])
    assert caplog.text.startswith("INFO  [mine] request 1: read ")
    assert "healed" not in caplog.text
    assert "cache" not in caplog.text


def test_salvage_keeps_guesses_that_only_the_cuts_refused() -> None:
    """The toy vocabularies cut differently, so that some first mismatch is a matter of cuts only."""
    salvaged = {}
    for on in (True, False):
        drafter = ModelDrafter(ScriptedModel(DRAFT_VOCAB, sharpness=12), ENCODER, ToyRules(), salvage=on)
        engine = make_engine(ScriptedModel(TARGET_VOCAB, sharpness=12), drafter)
        result = run(
            engine,
            [request(10, max_tokens=150, speculative=SpeculativeParams(policy=SpecPolicy.FIXED, n_max=5, p_min=0.0))],
        )[0]
        salvaged[on] = result.done.timings.draft
    assert salvaged[False].n_salvaged == 0
    assert salvaged[True].n_salvaged > 0
    assert salvaged[True].n_rounds <= salvaged[False].n_rounds


def test_a_draft_with_a_small_context_drafts_on_from_a_window(caplog: pytest.LogCaptureFixture) -> None:
    draft = ScriptedModel(DRAFT_VOCAB, n_ctx=96, n_batch=32)
    target = ScriptedModel(TARGET_VOCAB, n_ctx=1000)
    engine = make_engine(target, ModelDrafter(draft, ENCODER, ToyRules()))
    with caplog.at_level(logging.INFO, "uad.draft"):
        one = request(150, max_tokens=200, speculative=SpeculativeParams(policy=SpecPolicy.FIXED, n_max=6, p_min=0.0))
        result = run(engine, [one])[0]
    assert (
        result.ids == run(make_engine(ScriptedModel(TARGET_VOCAB, n_ctx=1000)), [request(150, max_tokens=200)])[0].ids
    )
    assert result.done.timings.draft.n_drafted > 20
    assert sum("context of 96 tokens is full" in record.getMessage() for record in caplog.records) == 1


def test_a_draft_reads_a_long_prompt_in_pieces_of_its_own_batch() -> None:
    draft = ScriptedModel(DRAFT_VOCAB, n_ctx=4096, n_batch=32)
    engine = make_engine(ScriptedModel(TARGET_VOCAB, n_ctx=2048, n_batch=512), ModelDrafter(draft, ENCODER, ToyRules()))
    result = run(
        engine,
        [request(1500, max_tokens=150, speculative=SpeculativeParams(policy=SpecPolicy.FIXED, n_max=6, p_min=0.0))],
    )[0]
    assert max(sum(batch.values()) for batch in draft.batches) <= 32
    assert result.done.timings.draft.n_accepted > 0


def test_a_draft_reads_no_more_at_once_than_it_is_asked_to() -> None:
    draft = ScriptedModel(DRAFT_VOCAB, n_ctx=4096, n_batch=512)
    drafter = ModelDrafter(draft, ENCODER, ToyRules())
    drafter.begin(0, request(900).prompt)
    drafts = [drafter.propose([Ask(0, 4, n_read=100)])[0] for _ in range(30)]
    sizes = [sum(batch.values()) for batch in draft.batches]
    assert max(sizes) == 100
    assert sizes[0] == 100
    assert not drafts[0].ids
    assert drafts[-1].ids


# --- the shape of batches


@given(st.dictionaries(st.integers(0, 5), st.integers(1, 20), min_size=1), st.integers(2, 32))
def test_passes_hold_every_row_once_within_the_limit(counts: dict[int, int], n_ubatch: int) -> None:
    told: dict[int, int] = {}
    for group, n in passes(counts, n_ubatch):
        assert 0 < len(group) * n <= max(n_ubatch, len(group))
        assert list(group) == list(range(group[0], group[0] + len(group)))
        for seq in group:
            told[seq] = told.get(seq, 0) + n
    assert told == counts


@given(
    st.dictionaries(st.integers(0, 5), st.integers(1, 20), min_size=1),
    st.integers(48, 64),
    st.sampled_from([1, 2, 4, 8]),
    st.booleans(),
)
def test_padding_leaves_no_pass_too_small(counts: dict[int, int], n_ubatch: int, least: int, of_each: bool) -> None:
    extra = padding(counts, n_ubatch, Least(least, of_each))
    padded = {seq: n + extra[seq] for seq, n in counts.items()}
    assert all((n if of_each else len(group) * n) >= least for group, n in passes(padded, n_ubatch))
    assert all(0 <= n < least for n in extra.values())
    assert least > 1 or not any(extra.values())


@pytest.mark.parametrize("n_seq", [1, 3])
@pytest.mark.parametrize("least", [Least(2), Least(8), Least(2, of_each=True), Least(8, of_each=True)])
def test_no_pass_is_smaller_than_asked(n_seq: int, least: Least) -> None:
    target = ScriptedModel(TARGET_VOCAB, n_seq=n_seq)
    some = [
        request(
            4 + 9 * i, max_tokens=30 + i, speculative=SpeculativeParams(policy=SpecPolicy.FIXED, n_max=3 + i, p_min=0.4)
        )
        for i in range(5)
    ]
    run(drafted(target, least=least), some)
    shapes = [shape for batch in target.batches for shape in passes(batch, target.n_ubatch)]
    assert shapes
    assert all((n if least.of_each else len(group) * n) >= least.rows for group, n in shapes)


@pytest.mark.parametrize("least", [Least(8), Least(8, of_each=True)], ids=["of all", "of each"])
@pytest.mark.parametrize("n_ubatch", [12, 20])
def test_no_pass_is_smaller_than_asked_where_one_has_no_room_for_all_slots(least: Least, n_ubatch: int) -> None:
    target = ScriptedModel(TARGET_VOCAB, n_seq=5)
    target.n_ubatch = target.n_alike = n_ubatch
    engine = make_engine(target, least=least)
    results = run(engine, [request(4 + 9 * i, max_tokens=20, speculative=OFF) for i in range(5)])
    assert [len(result.ids) for result in results] == [20] * 5
    shapes = [shape for batch in target.batches for shape in passes(batch, target.n_ubatch)]
    assert any(len(group) > 1 for group, _ in shapes) or n_ubatch < 16
    assert all((n if least.of_each else len(group) * n) >= least.rows for group, n in shapes)


def test_rows_are_checked_by_the_scripted_target_itself() -> None:
    target = ScriptedModel(TARGET_VOCAB)
    with pytest.raises(AssertionError, match="rows at 3"):
        target.decode([Rows(0, 3, (1,), 1)])


def test_time_for_drafts_is_that_of_requests_that_draft() -> None:
    """A request without drafts pays for none, though it shares every round with one that drafts."""
    some = [
        request(30, max_tokens=40, speculative=OFF),
        request(60, max_tokens=40, speculative=SpeculativeParams(policy=SpecPolicy.FIXED)),
    ]
    plain, drafting = run(drafted(ScriptedModel(TARGET_VOCAB, n_seq=2)), some)
    assert plain.done.timings.draft.draft_ms == 0
    assert drafting.done.timings.draft.draft_ms > 0


class Copies(RandomDrafter):
    """Goes on behind the end of the answer, as a copy of an earlier turn does."""

    def _draft(self, ask: Ask) -> Draft:
        ids = (*self.truth[ask.seq][self.at[ask.seq] :], TARGET_VOCAB.eos, *range(20))
        return Draft(ids[: ask.n_max], (0.9,) * min(len(ids), ask.n_max))


def test_nothing_is_submitted_from_the_end_of_the_answer_on() -> None:
    asked = request(12, max_tokens=200, speculative=SpeculativeParams(policy=SpecPolicy.FIXED, n_max=16))
    plain = run(make_engine(ScriptedModel(TARGET_VOCAB, length=60)), [replace(asked, speculative=OFF)])[0]
    target = ScriptedModel(TARGET_VOCAB, length=60)
    copied = run(make_engine(target, Copies({0: list(plain.ids[:-1])})), [asked])[0]
    assert copied.ids == plain.ids
    assert copied.ids[-1] == TARGET_VOCAB.eos
    stats = copied.done.timings.draft
    assert stats.n_drafted == stats.n_accepted == len(plain.ids) - stats.n_rounds


class Heard(AutoPolicy):
    """The fixed policy, and what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.decodes: list[list[tuple[int, int]]] = []
        self.temperatures: list[float] = []

    def begin(self, seq: int, n_prompt: int, temperature: float = 0.0, n_cached: int = 0) -> None:
        self.temperatures.append(temperature)

    def observe(self, seen: Seen) -> None:
        if isinstance(seen, Decoded):
            assert seen.seconds > 0
            self.decodes.append(list(seen.passes))
        super().observe(seen)


class Listener(Copies):
    """Remembers what it is told, and that it is told everything before it is asked."""

    def __init__(self, truth: dict[int, list[int]]) -> None:
        super().__init__(truth)
        self.told: dict[int, list[tuple[int, ...]]] = {seq: [] for seq in truth}
        self.ended: dict[int, int] = {}

    def observe(self, commit: Commit) -> None:
        super().observe(commit)
        self.told[commit.seq].append(commit.ids)

    def end(self, seq: int) -> None:
        self.ended[seq] = self.at[seq]
        super().end(seq)


@pytest.mark.parametrize("n_max", [0, 4])
def test_drafters_hear_of_every_id(n_max: int) -> None:
    asked = [
        request(n, max_tokens=40, speculative=SpeculativeParams(policy=SpecPolicy.FIXED, n_max=n_max)) for n in (12, 30)
    ]
    plain = run(make_engine(ScriptedModel(TARGET_VOCAB, n_seq=2)), [replace(one, speculative=OFF) for one in asked])
    listener = Listener({seq: list(one.ids) for seq, one in enumerate(plain)})
    for seq, one in enumerate(run(make_engine(ScriptedModel(TARGET_VOCAB, n_seq=2), listener), asked)):
        assert one.ids == plain[seq].ids
        assert [id_ for ids_ in listener.told[seq] for id_ in ids_] == list(one.ids)
        assert listener.ended[seq] == len(one.ids)


def test_the_policy_hears_at_what_temperature_a_text_is_sampled() -> None:
    policy = Heard()
    engine = make_engine(ScriptedModel(TARGET_VOCAB, n_seq=2), Copies({0: [], 1: []}), policy=policy)
    asked = request(12, max_tokens=4, speculative=SpeculativeParams())
    run(engine, [replace(asked, sampling=SamplingParams(temperature=t, seed=1)) for t in (0.0, 0.7)])
    assert policy.temperatures == [0.0, 0.7]


def test_the_policy_hears_of_every_decode_with_its_passes() -> None:
    """Single rows are what drafts are compared with; two texts of different lengths share some of the passes."""
    policy = Heard()
    engine = make_engine(ScriptedModel(TARGET_VOCAB, n_seq=2), Copies({0: [], 1: []}), policy=policy)
    run(engine, [request(12, max_tokens=20), request(30, max_tokens=40)])
    n_both, n_alone = policy.decodes.count([(2, 1)]), policy.decodes.count([(1, 1)])
    assert 17 <= n_both <= 20
    assert 17 <= n_alone <= 24
