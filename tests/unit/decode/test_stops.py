"""Stops: strings that name control tokens, ids, least lengths. The same text whatever is drafted, and whether it is
streamed or not.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
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

from uad.base.types import Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.drafts.model.model_drafter import ModelDrafter
from uad.engine.decode.sequence import ends_of
from uad.engine.decode.text import Search, TextStream
from uad.text.vocab.encode import Encoder

START, END = TARGET_VOCAB.specials["<|im_start|>"], TARGET_VOCAB.specials["<|im_end|>"]
PROMPT = (START, *TARGET_VOCAB.tokenize(SCRIPT[:20]))
PLAIN, FIXED = SpeculativeParams(enabled=False), SpeculativeParams(policy=SpecPolicy.FIXED, n_max=12, p_min=0.0)


# --- the search


class Name(str):
    """A control token's name in a text."""


def by_hand(parts: list[str], stop: list[str], keeps_stop: bool) -> tuple[str, str | None]:
    """What the stream should say, by trying every end of every text: characters one by one, names as a whole."""
    atoms: list[str] = []
    for part in parts:
        atoms += [part] if isinstance(part, Name) else list(part)
    for n in range(1, len(atoms) + 1):
        shown = "".join(atom for atom in atoms[:n] if not isinstance(atom, Name))
        tails = ["".join(atoms[k:n]) for k in range(n)]
        hidden = {tail: sum(len(a) for a in atoms[k:n] if isinstance(a, Name)) for k, tail in enumerate(tails)}
        cuts = [(len(word) - hidden[word], len(word), word) for word in stop if word in tails]
        if not isinstance(atoms[n - 1], Name):
            cuts += [(len(word), len(word), word) for word in stop if shown.endswith(word)]
        if cuts:
            n_cut, _, word = max(cuts)
            return (shown if keeps_stop else shown[: len(shown) - n_cut]), word
    return "".join(atom for atom in atoms if not isinstance(atom, Name)), None


def said(parts: list[str], stop: list[str], keeps_stop: bool = False) -> tuple[str, str | None]:
    out = TextStream(stop, keeps_stop)
    texts = [out.feed_name(part) if isinstance(part, Name) else out.feed(part.encode()) for part in parts]
    return "".join([*texts, out.finish()]), out.stopped


parts = st.lists(
    st.text(alphabet="ab<>", max_size=4) | st.sampled_from([Name("<a>"), Name("<b>"), Name("<"), Name("ab")]),
    max_size=8,
)
words = st.lists(
    st.lists(st.sampled_from(["<a>", "<b>", "<", "a", "b", ">", "ab"]), min_size=1, max_size=4).map("".join), max_size=3
)


@given(parts, words, st.booleans())
@example(["x\n", Name("<a>"), "user y"], ["\n<a>user"], False)
@example(["a", Name("<a>"), "b"], ["ab"], False)
@example(["a", Name("<a>"), "<a>"], ["<a><a>b"], False)
def test_a_stop_string_is_found_where_trying_every_place_finds_it(
    parts: list[str], stop: list[str], keeps_stop: bool
) -> None:
    assert said(parts, stop, keeps_stop) == by_hand(parts, stop, keeps_stop)


def test_a_stop_string_may_name_control_tokens_and_the_text_around_them() -> None:
    name = Name("<|im_start|>")
    assert said(["Hi", name, "user"], ["<|im_start|>"]) == ("Hi", "<|im_start|>")
    assert said(["Hi\n", name, "us", "er"], ["\n<|im_start|>user"]) == ("Hi", "\n<|im_start|>user")
    assert said(["Hi\n", name, "us", "age"], ["\n<|im_start|>user"]) == ("Hi\nusage", None)
    assert said(["Hi<|im_st", "art|>"], ["<|im_start|>"]) == ("Hi", "<|im_start|>")  # typed in letters


def test_part_of_a_name_is_no_stop_string() -> None:
    """Nobody sees the names, so an answer must not end at one of their letters."""
    for word in (">", "im_start", "<|im_start|", "start|>user", "|"):
        assert said(["Hi", Name("<|im_start|>"), "user"], [word]) == ("Hiuser", None)


def test_names_never_come_out_but_the_text_of_a_kept_stop_string_does() -> None:
    assert said(["Hi\n", Name("<|im_start|>"), "user"], ["\n<|im_start|>user"], keeps_stop=True) == (
        "Hi\nuser",
        "\n<|im_start|>user",
    )
    assert said(["one two three"], ["two"], keeps_stop=True) == ("one two", "two")


def test_a_stop_string_that_may_not_stop_yet_is_text_and_one_that_begins_in_it_counts() -> None:
    out = TextStream(["abab"])
    assert (out.feed(b"xabab", may_stop=False), out.stopped) == ("xab", None)
    assert (out.feed(b"ab"), out.stopped) == ("", "abab")


@pytest.mark.parametrize("n", [1000, 4000])
def test_the_work_is_proportional_to_the_text_however_alike_the_stop_strings_are(
    monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    """Counted in shorter beginnings tried, per character and stop string."""
    tried = 0
    whole = Search._shorter

    def counted(self: Search, n: int) -> int:
        nonlocal tried
        tried += 1
        return whole(self, n)

    monkeypatch.setattr(Search, "_shorter", counted)
    stop = ["=" * n + str(i) for i in range(4)]
    out = TextStream(stop)
    texts = [out.feed(b"====") for _ in range(n // 2)]
    assert "".join([*texts, out.finish()]) == "=" * (n // 2 * 4)
    assert tried <= len(stop) * n // 2 * 4


# --- the loop


class Marking(ScriptedModel):
    """Writes the script with a control token behind every full stop and line end; the end of turn is likely behind
    `length` bytes.
    """

    def _compute(self, kv: list[int]) -> np.ndarray:
        row = super()._compute(kv)
        if len(kv) > len(PROMPT) and self.vocab.pieces[kv[-1]][-1:] in (b".", b"\n"):
            row[START] += 60
        return row


def request(
    speculative: SpeculativeParams, temperature: float = 0.0, seed: int = 3, ignore_eos: bool = False, **fields
) -> Request:
    sampling = SamplingParams(temperature=temperature, seed=seed, ignore_eos=ignore_eos)
    return Request(PROMPT, sampling, speculative, **{"max_tokens": 60, **fields})


def answer(asked: Request, drafter=None, length: int = 10**9) -> Collector:
    return run(make_engine(Marking(TARGET_VOCAB, length=length), drafter), [asked])[0]


def drafters(truth: list[int]) -> list:
    """One that knows what comes, past every stop; one that is often wrong; and a model."""
    draft = ScriptedModel(DRAFT_VOCAB)
    ideal = RandomDrafter({0: truth}, seed=1)
    ideal.rng.randint = lambda a, b: b  # type: ignore[method-assign]
    return [ideal, RandomDrafter({0: truth}, seed=2), ModelDrafter(draft, Encoder(TARGET_VOCAB), ToyRules())]


LAZY = TARGET_VOCAB.tokenize(b" lazy")[0]
STOPS = {
    "a name": {"stop": ("<|im_start|>",)},
    "text, a name, text": {"stop": ("\n<|im_start|>count",)},
    "the second name": {"stop": ("<|im_start|>\n<|im_start|>\n<|im_start|>",)},
    "text": {"stop": ("lazy d",)},
    "text, kept": {"stop": ("lazy d",), "include_stop": True},
    "a name, kept": {"stop": ("s.<|im_start|>\n",), "include_stop": True},
    "an id": {"stop_token_ids": (LAZY,)},
    "an id, kept": {"stop_token_ids": (LAZY,), "include_stop": True},
    "a control id": {"stop_token_ids": (START,)},
    "an id after a while": {"stop_token_ids": (START,), "min_tokens": 25},
    "a name after a while": {"stop": ("<|im_start|>",), "min_tokens": 25},
    "the end after a while": {"length": 60, "min_tokens": 40},
    "the end, named": {"length": 60, "stop": ("<|im_end|>",)},
    "the end, named, else ignored": {"length": 60, "ignore_eos": True, "stop": ("<|im_end|>",)},
    "the end's id, else ignored": {"length": 60, "ignore_eos": True, "stop_token_ids": (END,)},
    "the end ignored, and named behind text that never comes": {
        "length": 60,
        "ignore_eos": True,
        "stop": ("never<|im_end|>",),
    },
}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", STOPS)
def test_drafted_equals_plain_under_every_stop(name: str, temperature: float) -> None:
    fields = dict(STOPS[name])
    length = fields.pop("length", 10**9)
    n_accepted = 0
    for seed in range(2):
        truth = answer(request(PLAIN, temperature, seed), length=length).ids
        plain = answer(request(PLAIN, temperature, seed, **fields), length=length)
        for drafter in drafters(truth):
            drafted = answer(request(FIXED, temperature, seed, **fields), drafter, length)
            assert (drafted.ids, drafted.text) == (plain.ids, plain.text)
            assert (drafted.done.stop_kind, drafted.done.stopping_word) == (
                plain.done.stop_kind,
                plain.done.stopping_word,
            )
            assert "<|im_" not in drafted.text
            n_accepted += drafted.done.timings.draft.n_accepted
    assert n_accepted > 0, "nothing was ever accepted: the test would prove nothing"


def ended(fields: dict) -> tuple[str, str, str]:
    fields = dict(fields)
    result = answer(
        request(PLAIN, **{k: v for k, v in fields.items() if k != "length"}), length=fields.get("length", 10**9)
    )
    return result.text, str(result.done.stop_kind), result.done.stopping_word


def test_each_stop_ends_the_answer_where_it_says_and_says_why() -> None:
    fox = SCRIPT[20:].decode()
    assert ended(STOPS["a name"]) == (fox[: fox.index("\n")], "word", "<|im_start|>")
    assert ended(STOPS["text, a name, text"]) == (fox[: fox.index("\ncount")], "word", "\n<|im_start|>count")
    assert ended(STOPS["a name, kept"]) == (fox[: fox.index("\n    ") + 1], "word", "s.<|im_start|>\n")
    assert ended(STOPS["an id"]) == (fox[: fox.index(" lazy")], "word", " lazy")
    assert ended(STOPS["an id, kept"]) == (fox[: fox.index(" lazy") + 5], "word", " lazy")
    assert ended(STOPS["text, kept"]) == (fox[: fox.index("lazy d") + 6], "word", "lazy d")
    assert ended(STOPS["a control id"]) == (fox[: fox.index("\n")], "word", "<|im_start|>")
    assert ended(STOPS["the end, named"])[1:] == ("eos", "<|im_end|>")
    assert ended(STOPS["the end, named, else ignored"])[1:] == ("word", "<|im_end|>")
    assert ended(STOPS["the end's id, else ignored"])[1:] == ("word", "<|im_end|>")
    assert ended({"length": 60})[1:] == ("eos", "")
    assert ended({"length": 60, "ignore_eos": True})[1:] == ("limit", "")


@pytest.mark.parametrize("n", [0, 1, 5, 25])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_no_answer_ends_before_its_least_length(n: int, temperature: float) -> None:
    for fields in ({}, {"stop": (" ", "e")}, {"stop_token_ids": tuple(range(256))}):
        result = answer(request(PLAIN, temperature, min_tokens=n, **fields), length=0)
        assert len(result.ids) >= max(n, 1)
        assert END not in result.ids[:n]
        if "stop_token_ids" in fields:
            assert not set(result.ids[:n]) & set(range(256))
    at_once = answer(request(PLAIN, temperature, min_tokens=n), length=0)
    assert len(at_once.ids) == n + 1
    assert at_once.ids[-1] == END


def test_the_cache_behind_a_stop_id_in_mid_draft_is_what_the_kv_holds() -> None:
    """The same slot goes on from it: ScriptedModel checks every position."""
    truth = answer(request(PLAIN)).ids
    engine = make_engine(Marking(TARGET_VOCAB), drafters(truth)[0])
    first = run(engine, [request(FIXED, stop_token_ids=(LAZY,))])[0]
    longer = Request((*PROMPT, *first.ids), SamplingParams(temperature=0), FIXED, max_tokens=20)
    again = run(engine, [longer])[0]
    assert again.ids == truth[len(first.ids) : len(first.ids) + 20]
    assert again.done.usage.n_cached > 0


def test_ends_by_what_is_asked() -> None:
    ignored = request(PLAIN, ignore_eos=True)
    assert (ends_of(ignored, TARGET_VOCAB).ids, ends_of(ignored, TARGET_VOCAB).never) == (frozenset(), {END})
    late = ends_of(request(PLAIN, stop_token_ids=(1,), min_tokens=2), TARGET_VOCAB)
    assert (late.ids, late.never, late.late) == ({1, END}, frozenset(), {1, END})
    assert ends_of(request(PLAIN), TARGET_VOCAB).late == frozenset()


@pytest.mark.parametrize("word", ["lazy d", "\n<|im_start|>count", "<|im_start|>"])
def test_pieces_of_any_size_make_the_same_text(word: str) -> None:
    """Rounds of one id, and rounds of many: what a stream sends adds up to the whole answer."""
    truth = answer(request(PLAIN)).ids
    results = [answer(request(FIXED, stop=(word,)), drafter) for drafter in drafters(truth)]
    for result in results:
        assert "".join(delta.text for delta in result.deltas) + result.done.text == result.text
    assert len({result.text for result in results}) == 1
    assert len({len(result.deltas) for result in results}) > 1
    for a, b in itertools.pairwise(results):
        assert a.ids == b.ids


@pytest.mark.parametrize("stop", [{"stop": ("lazy d",)}, {"stop_token_ids": (LAZY,)}], ids=["a text", "an id"])
def test_a_stop_counts_behind_the_least_number_of_ids(stop: dict) -> None:
    n = len(answer(request(PLAIN, **stop)).ids)
    assert len(answer(request(PLAIN, **stop, min_tokens=n - 1)).ids) == n
    assert len(answer(request(PLAIN, **stop, min_tokens=n)).ids) > n
