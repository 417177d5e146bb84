"""From draft bytes to target ids: nothing lost, nothing invented, and what an ideal drafter proposes is accepted."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache, reduce
from operator import add

import crossing
import ideal
import pytest
import translate
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.vocab_kit import BUNDLED, GENERATING, TEXTS, encoder, path_of, vocab

from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable, partial_length
from uad.text.vocab.translate import Translator

PAIRS = [(target, draft) for target in GENERATING for draft in GENERATING if target != draft]
ISSUE = [pair for pair in PAIRS if "aquila" not in pair]
"""The 240 ordered pairs of the vocabularies that the promise names."""
SOME = ISSUE[::7]
"""Each vocabulary is the target of some and the draft of others."""


@cache
def side(name: str, kind: str) -> ideal.Side:
    return ideal.Side.of(encoder(name), TEXTS[kind])


def places(seed: str, n: int) -> list[tuple[str, int, int]]:
    """(text, start, end) anywhere, also inside characters."""
    rng = random.Random(seed)
    found = []
    for _ in range(n):
        kind = rng.choice(sorted(TEXTS))
        start = rng.randrange(len(TEXTS[kind]) - 80)
        found.append((kind, start, start + rng.randrange(1, 60)))
    return found


@pytest.mark.model
@pytest.mark.parametrize("target", GENERATING)
def test_bytes_in_are_bytes_out_for_every_pair(target: str) -> None:
    table = vocab(target)
    for draft in (name for name in GENERATING if name != target):
        translator = Translator(encoder(target), encoder(draft))
        for kind, start, end in places(target + draft, 10):
            text = TEXTS[kind]
            committed = encoder(target).encode(text[max(start - 200, 0) : start])
            data = encoder(draft).vocab.join(encoder(draft).encode(text[start:end]))
            assert data == text[start:end]
            assert table.join(translator.translate(committed, data, complete=True).ids) == data
            found = translator.translate(committed, data)
            assert data.startswith(table.join(found.ids))
            assert list(found.trust) == sorted(found.trust, reverse=True)
            assert all(0 < trust <= 1 for trust in found.trust)


@pytest.mark.model
@pytest.mark.parametrize("pair", [("target-chatml", "draft-gemma"), ("draft-gemma", "target-chatml")])
def test_any_bytes_after_any_ids(pair: tuple[str, str]) -> None:
    target, draft = encoder(pair[0]), encoder(pair[1])
    translator = Translator(target, draft)

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.integers(0, target.vocab.n_vocab - 1), max_size=6), st.binary(max_size=20), st.booleans())
    def run(committed: list[int], data: bytes, complete: bool) -> None:
        out = target.vocab.join(translator.translate(committed, data, complete).ids)
        assert out == data if complete else data.startswith(out)

    run()


@pytest.mark.model
@pytest.mark.slow
def test_an_ideal_drafter_is_accepted() -> None:
    losses = []
    for target, draft in SOME:
        runs = [
            ideal.run(side(target, kind), side(draft, kind), TEXTS[kind], 100, f"{target} {draft} {kind}")
            for kind in TEXTS
        ]
        losses.append((target, draft, reduce(add, runs)))
    shares = [loss.ours.share for _, _, loss in losses]
    assert sum(shares) / len(shares) >= 0.995
    # 200 rounds tell a share to within one in a hundred; lab/translation-pairs.md has 640, and 0.987
    assert min(shares) >= 0.975
    total = reduce(add, (loss for _, _, loss in losses))
    assert total.ours.per_drafted > total.naive.per_drafted
    assert total.all.per_drafted > 1.03 * total.naive.per_drafted
    for target, draft, loss in losses:
        assert loss.ours.per_used > 0.99 * loss.naive.per_used, (target, draft)
        assert loss.ours.per_drafted > 0.9 * loss.naive.per_drafted, (target, draft)
        # 200 rounds: one byte may be bad luck
        assert loss.all.per_drafted >= 0.999 * loss.naive.per_drafted, (target, draft)


@pytest.mark.model
@pytest.mark.parametrize(
    ("target", "draft"), [("qwen2", "gpt-2"), ("command-r", "gpt-2"), ("gpt-2", "llama-spm"), ("falcon", "phi-3")]
)
def test_the_worst_pairs_of_the_naive_method(target: str, draft: str) -> None:
    loss = reduce(add, (ideal.run(side(target, kind), side(draft, kind), TEXTS[kind], 150, "worst") for kind in TEXTS))
    assert loss.naive.share < 0.95
    assert loss.ours.share > 0.98
    assert loss.all.per_drafted > loss.naive.per_drafted


def translator(target: str = "qwen2", draft: str = "llama-bpe") -> tuple[Translator, Encoder]:
    return Translator(encoder(target), encoder(draft)), encoder(target)


@pytest.mark.model
def test_the_seam_is_cut_in_view_of_what_is_committed() -> None:
    cross, target = translator("llama-bpe", "gpt-2")
    whole = target.encode(b"x = foo(1234567)\n")
    for k in range(1, len(whole)):
        committed, rest = whole[:k], target.vocab.join(whole[k:])
        assert list(cross.translate(committed, rest, complete=True).ids) == whole[k:]


@pytest.mark.model
def test_ids_that_the_target_would_not_have_written_do_not_matter() -> None:
    cross, target = translator()
    odd = [id_ for byte in b" intere" for id_ in target.encode(bytes([byte]))]
    assert target.vocab.join(cross.translate(odd, b"sting news", complete=True).ids) == b"sting news"


@pytest.mark.model
def test_nothing_before_a_special_matters() -> None:
    cross, target = translator()
    special = next(iter(target.vocab.special_ids))
    data = b"sting news today"
    assert cross.translate([*target.encode(b" intere"), special], data).ids == cross.translate([special], data).ids


@pytest.mark.model
def test_half_a_character_is_kept_back_or_cut_as_bytes() -> None:
    cross, target = translator("qwen2", "llama-spm")
    committed = target.encode(b"Guten Tag, ")
    ids = cross.translate(committed, "schöne Gr".encode() + "ü".encode()[:1]).trusted()
    assert "schöne Gr".encode().startswith(target.vocab.join(ids))
    assert len(ids) > 0
    rare = Translator(encoder("gpt-2"), encoder("llama-spm"))  # no token for the character: its first bytes are sure
    greek = "ἀρχὴ 𝔸".encode()
    ids = rare.translate(encoder("gpt-2").encode(b"x "), greek[:-1]).trusted()
    assert len(vocab("gpt-2").join(ids)) > len(greek[:-4])


@pytest.mark.parametrize(
    ("data", "n"),
    [(b"", 0), (b"a", 0), (b"\xc3", 1), (b"\xc3\xa9", 0), (b"a\xe4\xb8", 2), (b"\xf0\x9f\x98", 3), (b"\x80" * 5, 0)],
)
def test_only_a_character_that_is_not_whole_is_partial(data: bytes, n: int) -> None:
    assert partial_length(data) == n


def test_a_translation_ends_before_a_byte_that_has_no_token() -> None:
    table = VocabTable("made", (b"a", b"b"), {}, lambda data: [b"ab".index(byte) for byte in data if byte in b"ab"])
    cross = Translator(Encoder(table))
    assert cross.translate([], b"ab\x01b", complete=True).ids == (0, 1)
    assert cross.translate([0], b"\x01b", complete=True).ids == ()


@pytest.mark.model
def test_white_space_leaves_one_for_the_next_word() -> None:
    cross, target = translator("gpt-2", "llama-bpe")
    committed = target.encode(b"def f():")
    ids = cross.translate(committed, b"\n   ").trusted()
    whole = target.encode(b"def f():\n    return x")
    assert ids == whole[len(committed) : len(committed) + len(ids)]
    assert target.vocab.join(ids) == b"\n   "


@pytest.mark.model
def test_the_end_of_a_turn_is_not_doubted() -> None:
    cross, target = translator("qwen2", "gpt-2")
    committed = target.encode(b"That is most inter")
    assert target.vocab.join(cross.translate(committed, b"est", complete=True).trusted()) == b"est"
    assert min(cross.translate(committed, b"esti").trust, default=0.0) < 1.0


@pytest.mark.model
def test_without_the_drafts_vocabulary_all_is_trusted() -> None:
    cross = Translator(encoder("qwen2"))
    found = cross.translate([], b" a most inter")
    assert vocab("qwen2").join(found.ids) == b" a most inter"
    assert set(found.trust) == {1.0}
    assert cross.translate([], b"").ids == ()


@pytest.mark.model
def test_a_rounds_work_does_not_depend_on_thecontext_of() -> None:
    n_bytes = {}
    for n_ctx in (1024, 16384):
        counted = Counted()
        target, draft = (Encoder(counted.table(name)) for name in ("target-chatml", "draft-gemma"))
        context = crossing.context_of(draft, TEXTS["code"], n_ctx)
        rounds = crossing.Rounds(Translator(target, draft), target, draft, context, TEXTS["mixed"])
        counted.n_bytes = 0
        rounds.median_us(60)
        n_bytes[n_ctx] = counted.n_bytes
    assert n_bytes[1024] == n_bytes[16384] > 0


class Counted:
    """Vocabularies that count the bytes their tokenizers are given."""

    def __init__(self) -> None:
        self.n_bytes = 0

    def table(self, name: str):
        tokenize = vocab(name).tokenize

        def counting(data: bytes) -> list[int]:
            self.n_bytes += len(data)
            return tokenize(data)

        return replace(vocab(name), tokenize=counting)


def test_bundled_vocabularies_take_part() -> None:
    for target in BUNDLED:
        for draft in BUNDLED:
            found = Translator(encoder(target), encoder(draft)).translate([], b"def f(x):\n    return x", complete=True)
            assert vocab(target).join(found.ids) == b"def f(x):\n    return x"


@pytest.mark.model
def test_losses_and_costs_of_a_pair_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    translate.main([*(str(path_of(name)) for name in BUNDLED[:2]), "--contexts", "64", "--rounds", "5"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["naive", "trusted ids", "every id", "after 64", "after 64, naive"]


@pytest.mark.model
def test_a_round_makes_as_many_calls_behind_any_context() -> None:
    target, draft = Encoder(vocab("qwen2")), Encoder(vocab("llama-bpe"))
    seen, text = (
        b"".join(half) for half in zip(*((t[: len(t) // 2], t[len(t) // 2 :]) for t in TEXTS.values()), strict=True)
    )
    calls = [crossing.calls(target, draft, seen, text, n_ctx, 60) for n_ctx in (1024, 4096, 16384)]
    assert calls[0] > 300
    assert max(calls) < 1.02 * min(calls)


@pytest.mark.model
def test_doubtful_ids_are_offered_with_little_trust() -> None:
    cross, target = translator("gemma-4", "falcon")
    committed = target.encode("Она живёт".encode())
    found = cross.translate(committed, " в Екатери".encode() + "н".encode()[:1])
    assert target.vocab.join(found.ids) == " в Екатери".encode()
    assert found.trust[-1] < 0.5 < found.trust[0]
