"""Drafts that are drawn with the target's noise: exact where draft and target are one, right across cuts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.chain import NumpyChain
from kit.toys import DRAFT_VOCAB, KEYS, TARGET_VOCAB, toy_vocab

from uad.base.types import GREEDY, SamplingParams
from uad.drafts.model.choosing import LIKELIEST
from uad.drafts.model.coupling import Continuation, Coupling
from uad.engine.sampling.noise import Position, gumbel
from uad.engine.sampling.sampler import Sampler
from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable

NOTHING = -1


def pair(target: VocabTable, draft: VocabTable) -> Coupling:
    specials = dict(zip(draft.specials.values(), target.specials.values(), strict=False))
    return Coupling(Encoder(target), Encoder(draft), lambda id_: (specials[id_],) if id_ in specials else ())


def few(words: list[bytes]) -> VocabTable:
    """A vocabulary of these words and one special, tokenized by the longest match; what it lacks is lost."""

    def tokenize(data: bytes) -> list[int]:
        out = []
        while data:
            fit = [i for i, word in enumerate(words) if data.startswith(word)]
            longest = max(fit, key=lambda i: len(words[i]), default=None)
            out += [] if longest is None else [longest]
            data = data[1 if longest is None else len(words[longest]) :]
        return out

    end = len(words)
    return VocabTable("few", (*words, b""), {"<end>": end}, tokenize, eos=end, eog=frozenset({end}))


def random_row(seed: int, n: int, width: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(n) * width).astype(np.float32)


@pytest.mark.parametrize(
    ("temperature", "more"),
    [
        *((temperature, {}) for temperature in (0.3, 0.8, 1.0, 1.6)),
        (1.6, {"top_k": 5}),
        (1.0, {"top_p": 0.7}),
        (0.8, {"min_p": 0.2, "top_p": 1.0}),
        (1.6, {"top_k": 40, "top_p": 0.9, "min_p": 0.01}),
    ],
)
def test_a_draft_that_is_the_target_draws_what_the_target_draws(temperature: float, more: dict) -> None:
    vocab = TARGET_VOCAB
    text = b"The quick brown fox jumps over it"
    wrote = vocab.tokenize(text)
    for seed in range(60):
        params = SamplingParams(temperature=temperature, seed=seed, **more)
        sampler = Sampler(params, seed, vocab.eog, 512, lambda stages: NumpyChain(vocab.n_vocab, stages), KEYS)
        chooser = pair(vocab, vocab).chooser(params, n_prompt=3)
        chooser.observe([1, 2, 3, *wrote[:2]])
        chooser.start(b"")
        position = Position()
        for id_ in wrote[:2]:
            position = position.after(len(vocab.pieces[id_]))
        for id_ in wrote[2:]:
            row = random_row(1000 * seed + id_, vocab.n_vocab)
            row[vocab.eos] += 2.0
            assert chooser.choose(row)[0] == sampler.pick(row, position)
            chooser.wrote(vocab.pieces[id_])
            position = position.after(len(vocab.pieces[id_]))
        sampler.close()


def test_a_piece_is_as_lucky_as_the_id_that_it_begins() -> None:
    target, draft = few([b"ab", b"cd", b"a", b"b", b"c", b"d"]), few([b"a", b"b", b"c", b"d"])
    one = pair(target, draft)
    keys = one._keys
    drawn = set()
    for seed in range(200):
        continuations = [Continuation(b"a", NOTHING, np.log(0.5)), Continuation(b"c", NOTHING, np.log(0.5))]
        ours = one.choose(seed, Position(7), continuations)[0]
        assert ours == int((gumbel(seed, Position(7), keys[[0, 1]])).argmax()), "the noise of ab and cd"
        drawn.add(ours)
    assert drawn == {0, 1}


def test_an_id_that_holds_several_is_drawn_one_by_one() -> None:
    target, draft = few([b"ab", b"cd", b"x"]), few([b"abcd", b"abx", b"x", b"ab", b"cd"])
    one = pair(target, draft)
    p = np.array([0.45, 0.25, 0.3])
    for seed in range(200):
        first = np.log([p[0] + p[1], p[2]]) + gumbel(seed, Position(), one._keys[[0, 2]])
        second = np.log(p[:2]) + gumbel(seed, Position(2), one._keys[[1, 2]])
        ours, share = one.choose(
            seed,
            Position(),
            [Continuation(data, NOTHING, x) for data, x in zip((b"abcd", b"abx", b"x"), np.log(p), strict=True)],
        )
        assert ours == (2 if first.argmax() else int(second.argmax()))
        expected = (
            np.exp(first.max())
            / np.exp(first).sum()
            * (1 if ours == 2 else np.exp(second.max()) / np.exp(second).sum())
        )
        assert share == pytest.approx(expected)


def test_the_end_is_drawn_with_the_noise_of_the_targets_end() -> None:
    target, draft = few([b"ab", b"c"]), few([b"a", b"b", b"c"])
    one = pair(target, draft)
    ends = 0
    for seed in range(100):
        continuations = one.continuations(b"", [2, draft.eos], list(np.log([0.5, 0.5])))
        ours = one.choose(seed, Position(5), continuations)[0]
        assert ours == int(gumbel(seed, Position(5), one._keys[[1, target.eos]]).argmax())
        behind = one.continuations(b"ab", [2, draft.eos], list(np.log([0.5, 0.5])))  # ab is complete in both cases
        assert one.choose(seed, Position(3), behind)[0] == ours
        ends += ours
    assert 0 < ends < 100


def test_what_is_begun_is_known_behind_complete_ids() -> None:
    one = pair(few([b"ab", b"abc", b"x", b"y"]), few([b"a", b"b", b"c", b"x", b"y"]))
    assert one.settle(Position(3), b"ab") == (Position(3), b"ab")
    assert one.settle(Position(3), b"abx") == (Position(5), b"x")
    assert one.settle(Position(3), b"abcxy") == (Position(7), b"y")
    assert one.settle(Position(3), b"") == (Position(3), b"")


@given(
    st.lists(st.binary(max_size=12), min_size=1, max_size=8, unique=True), st.binary(max_size=4), st.integers(0, 2**32)
)
def test_any_bytes_are_drawn_among(words: list[bytes], begun: bytes, seed: int) -> None:
    one = pair(TARGET_VOCAB, DRAFT_VOCAB)
    at, begun = one.settle(Position(1), begun)
    continuations = [
        Continuation(begun + word, NOTHING if k % 2 else TARGET_VOCAB.eos, -float(k)) for k, word in enumerate(words)
    ]
    k, share = one.choose(seed, at, continuations)
    assert 0 <= k < len(continuations)
    assert 0 < share <= 1


@given(st.binary(max_size=40))
def test_positions_never_lose_a_byte(data: bytes) -> None:
    at, begun = pair(TARGET_VOCAB, DRAFT_VOCAB).settle(Position(), data)
    assert at.offset + len(begun) == len(data)
    assert data.endswith(begun)


def test_a_vocabulary_that_lacks_a_byte_ends_nowhere() -> None:
    one = pair(few([b"a", b"ab"]), few([b"a", b"z"]))
    assert one.settle(Position(), b"az") == (Position(2), b"")
    continuations = [Continuation(data, NOTHING, log_p) for data, log_p in ((b"az", -1.0), (b"z", -1.0), (b"a", -2.0))]
    assert one.choose(1, Position(), continuations)[0] in range(3)


def test_what_is_not_drawn_is_the_likeliest() -> None:
    one = pair(TARGET_VOCAB, DRAFT_VOCAB)
    assert one.chooser(GREEDY, 0) is LIKELIEST
    assert one.chooser(SamplingParams(temperature=1.0, seed=None), 0) is LIKELIEST
    assert one.chooser(SamplingParams(temperature=0.1, seed=1), 0) is not LIKELIEST


def test_beliefs_are_probabilities_and_fall_with_doubt() -> None:
    vocab = toy_vocab("some", "ab|cd", ("<end>",), ("<end>",))
    one = pair(vocab, vocab).chooser(SamplingParams(temperature=1.0, seed=3), 0)
    sure, flat = np.zeros(vocab.n_vocab, np.float32), np.zeros(vocab.n_vocab, np.float32)
    sure[5] = 20.0
    assert one.choose(sure) == (5, pytest.approx(1.0, abs=1e-3))
    assert one.choose(flat)[1] < 0.5
