"""What cannot fit is refused before it is tokenized."""

from __future__ import annotations

import pytest
from kit.fake_runtime import FakeRuntime
from kit.toys import TARGET_VOCAB

from uad.base.config import TemplateConfig
from uad.base.errors import ContextOverflowError
from uad.http.requests.prompt_ids import encode_prompt
from uad.text.prompts import Prompts
from uad.text.vocab.encode import Encoder

TEMPLATE = "{{ messages[0].content }}"


class Watched(Encoder):
    """Remembers that it was asked."""

    asked = False

    def encode(self, data: bytes) -> list[int]:
        self.asked = True
        return super().encode(data)


def prompts(n_ctx: int | None) -> tuple[Prompts, Watched]:
    encoder = Watched(TARGET_VOCAB)
    return Prompts(TARGET_VOCAB, encoder, TemplateConfig(chat_template=TEMPLATE), None, "toy", n_ctx), encoder


def test_the_longest_piece_counts_names_of_specials_too() -> None:
    assert TARGET_VOCAB.longest == max(len("<|im_start|>"), *map(len, TARGET_VOCAB.pieces))


@pytest.mark.parametrize("text", ["a" * 4_000, "\u00e9" * 2_000, "<|im_start|>" * 400])
def test_a_chat_that_cannot_fit_is_refused_untokenized(text: str) -> None:
    asked, encoder = prompts(100)
    with pytest.raises(ContextOverflowError) as caught:
        asked.chat([{"role": "user", "content": text}], {}, False)
    assert caught.value.n_prompt_tokens > caught.value.n_ctx == 100
    assert not encoder.asked


def test_a_prefill_counts_too() -> None:
    asked, encoder = prompts(100)
    with pytest.raises(ContextOverflowError):
        asked.chat([{"role": "user", "content": "a"}], {}, False, prefill="b" * 4_000)
    assert not encoder.asked


def test_what_might_fit_is_tokenized_and_counted() -> None:
    asked, encoder = prompts(100)
    longest = TARGET_VOCAB.longest
    asked.check_length("a" * (100 * longest))
    with pytest.raises(ContextOverflowError):
        asked.check_length("a" * (100 * longest + 1))
    assert asked.chat([{"role": "user", "content": "a" * 300}], {}, False)
    assert encoder.asked


def test_without_a_context_nothing_is_too_long() -> None:
    asked, _ = prompts(None)
    asked.check_length("a" * 1_000_000)


def test_half_a_surrogate_pair_is_no_error_of_the_length() -> None:
    prompts(100)[0].check_length("\ud800")


def test_a_completion_s_prompt_is_refused_untokenized_in_mixed_prompts_too() -> None:
    for parts in (["a" * 40_000], [7, "a" * 40_000, 8]):
        engine = FakeRuntime(n_ctx=4096)
        with pytest.raises(ContextOverflowError):
            encode_prompt(engine, parts)
        assert engine.threads == set()
