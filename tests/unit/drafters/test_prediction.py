"""The drafter of predictions: the target's own cut of what remains, beliefs and kinds, the end of a request."""

from __future__ import annotations

import pytest
from kit.toys import SCRIPT, TARGET_END, TARGET_VOCAB

from uad.base.types import Ask, Commit, Draft, Origin
from uad.drafts.lookup import prediction
from uad.drafts.lookup.history import BELIEFS
from uad.engine.drafter import Predicted
from uad.text.vocab.encode import Encoder

ENCODER = Encoder(TARGET_VOCAB)
START = TARGET_VOCAB.specials["<|im_start|>"]


def drafter(text: bytes = SCRIPT, prompt: tuple[int, ...] = (START,), n_max: int = 64) -> prediction.PredictionDrafter:
    one = prediction.drafter(ENCODER, n_max)
    one.begin(0, prompt)
    one.predict(0, text)
    return one


def draft(one: prediction.PredictionDrafter, n_max: int = 64) -> Draft:
    (found,) = one.propose([Ask(0, n_max)])
    assert len(found.ids) == len(found.p) <= n_max
    assert all(0 < p < 1 for p in found.p)
    assert found.origin is Origin.PREDICTION
    return found


def write(one: prediction.PredictionDrafter, text: bytes) -> None:
    one.observe(Commit(0, tuple(ENCODER.encode(text))))


def test_it_is_told_of_predictions() -> None:
    assert isinstance(drafter(), Predicted)


def test_what_remains_is_cut_as_the_target_cuts_the_whole() -> None:
    ids = ENCODER.encode(SCRIPT)
    for n in range(len(ids) - 1):
        one = drafter()
        one.observe(Commit(0, tuple(ids[:n])))
        found = draft(one)
        assert found.ids == tuple(ids[n : n + len(found.ids)])
        assert len(found.ids) >= min(12, len(ids) - n - 2)


@pytest.mark.parametrize("n_bytes", range(1, 12))
def test_a_word_that_the_answer_cut_elsewhere_is_healed(n_bytes: int) -> None:
    """The answer has written single bytes of a word: what is left of it is cut by itself, and then all is as ever."""
    one = drafter()
    one.observe(Commit(0, tuple(SCRIPT[:n_bytes])))
    found = draft(one)
    assert SCRIPT[n_bytes:].startswith(TARGET_VOCAB.join(found.ids))
    assert found.ids[-4:] == tuple(ENCODER.encode(SCRIPT))[-4:] or len(found.ids) > 4


def test_the_end_of_the_prompt_decides_how_the_first_word_is_cut() -> None:
    one = drafter(b"mps over", (START, *ENCODER.encode(b"fox ju")))
    assert TARGET_VOCAB.join(draft(one).ids) == b"mps over"
    assert drafter(b"mps over", (*ENCODER.encode(b"fox ju"), START)).propose([Ask(0, 8)])[0].ids[:1] != ()


def test_drafts_are_longer_where_more_agreed() -> None:
    one = drafter(SCRIPT * 4)
    lengths = []
    for _ in range(3):
        found = draft(one)
        lengths.append(len(found.ids))
        one.observe(Commit(0, found.ids, len(found.ids), len(found.ids)))
    assert lengths[0] < lengths[1] <= lengths[2]
    assert lengths[2] > 30
    assert found.kind == "prediction"
    assert found.p[0] > 0.9


def test_what_was_followed_is_believed_more_than_a_copy_of_that_length() -> None:
    one = drafter(SCRIPT * 4)
    for id_ in ENCODER.encode(SCRIPT)[:6]:
        guessed = draft(one)
        one.observe(Commit(0, (id_,)))
    found = draft(one)
    assert (guessed.kind, found.kind) == ("prediction", "prediction")
    assert found.p[0] > BELIEFS[2 * 6]
    assert list(found.p) == sorted(found.p)


def test_kinds_say_what_is_known_of_a_place() -> None:
    one = drafter()
    assert draft(one).kind == "prediction/guessed"
    write(one, SCRIPT[:20])
    assert draft(one).kind == "prediction"
    write(one, b" something")
    write(one, b" jumps over the")
    resumed = draft(one)
    assert resumed.kind == "prediction/resumed"
    assert b" jumps over the" + TARGET_VOCAB.join(resumed.ids) in SCRIPT


def test_no_more_than_wanted_is_drafted() -> None:
    assert len(draft(drafter(n_max=3)).ids) == 3
    assert len(draft(drafter(), n_max=2).ids) == 2
    assert draft(drafter(n_max=0)).ids == ()
    assert draft(drafter(b"")).ids == ()


def test_bytes_that_are_no_text_are_drafted_as_far_as_they_have_tokens() -> None:
    assert TARGET_VOCAB.join(draft(drafter(b"\xff\xfe quick \x80")).ids).startswith(b"\xff\xfe quick")


def test_a_prediction_ends_with_its_answer() -> None:
    one = drafter()
    write(one, SCRIPT[:10])
    assert one.memory >= len(SCRIPT)
    one.end(0)
    assert one.memory == 0
    one.begin(0, (START,))
    assert draft(one).ids == ()
    one.observe(Commit(0, (TARGET_END,)))
    one.end(0)
    one.begin(0, (START,))
    one.predict(0, SCRIPT)
    assert draft(one).ids
