"""The first promise on a scripted target: drafted ids equal plain ids.

Whatever drafts, however long, at any temperature, beside any neighbours.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from kit.pairs import pairs
from kit.toys import DRAFT_VOCAB, SCRIPT, TARGET_VOCAB, RandomDrafter, ScriptedModel, ToyRules, make_engine, run

from uad.base.types import Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.drafts.model.model_drafter import ModelDrafter
from uad.engine.decode.layout import Least
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine
from uad.text.vocab.encode import Encoder

START = TARGET_VOCAB.specials["<|im_start|>"]
ENCODER = Encoder(TARGET_VOCAB)
N_TOKENS = 32


def prompts(n: int) -> list[tuple[int, ...]]:
    return [(START, *TARGET_VOCAB.tokenize((SCRIPT * 2)[: 20 + 37 * i])) for i in range(n)]


def requests(n: int, temperature: float, seed: int, speculative: SpeculativeParams, **sampling) -> list[Request]:
    params = SamplingParams(temperature=temperature, seed=seed, **sampling)
    return [Request(prompt, params, speculative, max_tokens=N_TOKENS) for prompt in prompts(n)]


TARGET = ScriptedModel(TARGET_VOCAB, n_seq=4, length=400)
ALONE = ScriptedModel(TARGET_VOCAB, n_seq=1, length=400)
DRAFT = ScriptedModel(DRAFT_VOCAB, n_seq=4, length=400, sharpness=5.0)
P_MIN = (0.0, 0.5, 0.9)
PLAIN: dict[tuple, list[int]] = {}


def plain(i: int, temperature: float, seed: int) -> list[int]:
    key = (i, temperature, seed)
    if key not in PLAIN:
        request = requests(i + 1, temperature, seed, SpeculativeParams(enabled=False))[i]
        PLAIN[key] = run(make_engine(fresh(ALONE)), [request])[0].ids
    return PLAIN[key]


def fresh(model: ScriptedModel) -> ScriptedModel:
    for seq in range(model.n_seq):
        model.clear(seq)
    return model


def drafter(kind: str, n: int, temperature: float, seed: int):
    if kind == "random":
        return RandomDrafter(seed=seed)
    if kind == "half-right":
        return RandomDrafter({i: plain(i, temperature, seed) for i in range(n)}, seed=seed)
    return ModelDrafter(
        fresh(DRAFT), ENCODER, ToyRules(), heal="unhealed" not in kind, salvage="unsalvaged" not in kind
    )


@pytest.mark.parametrize(
    ("kind", "n_sequences", "temperature"),
    pairs(["model", "model unhealed", "model unsalvaged", "random", "half-right"], [1, 4], [0.0, 0.7, 1.3]),
)
def test_drafted_equals_plain(kind: str, n_sequences: int, temperature: float) -> None:
    accepted = 0
    for n_max in (1, 2, 3, 5, 8, 16):
        p_min, seed = P_MIN[(n_max + n_sequences) % len(P_MIN)], 100 * n_max
        speculative = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=n_max, p_min=p_min)
        engine = make_engine(
            fresh(TARGET),
            drafter(kind, n_sequences, temperature, seed),
            least=Least(1 + n_max % 3, of_each=n_max % 2 == 0),
        )
        results = run(engine, requests(n_sequences, temperature, seed, speculative))
        for i, result in enumerate(results):
            assert result.ids == plain(i, temperature, seed), f"n_max {n_max}, p_min {p_min}, sequence {i}"
            assert result.done.timings.draft.n_drafted <= n_max * result.done.timings.draft.n_rounds
            accepted += result.done.timings.draft.n_accepted
    if kind != "random":
        assert accepted > 0, "nothing was ever accepted: the test would prove nothing"


SAMPLINGS: list[dict] = [
    {"repeat_penalty": 1.4, "repeat_last_n": 16},
    {"frequency_penalty": 0.6, "presence_penalty": 0.4},
    {"top_k": 3},
    {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    {"typical_p": 0.7},
    {"top_n_sigma": 0.8, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    {"xtc_probability": 0.5, "xtc_threshold": 0.02},
    {"xtc_probability": 1.0, "xtc_threshold": 0.02, "repeat_penalty": 1.2},
    {
        "logit_bias": (
            (TARGET_VOCAB.tokenize(b" the")[0], 5.0),
            (TARGET_VOCAB.tokenize(b" quick")[0], float("-inf")),
        )
    },
    {"ignore_eos": True},
    {"dry_multiplier": 0.8, "dry_allowed_length": 1, "dry_sequence_breakers": ("\n", "quick")},
    {"dynatemp_range": 0.5, "dynatemp_exponent": 1.5},
    {"mirostat": 1, "mirostat_tau": 3.0},
    {"mirostat": 2, "mirostat_tau": 3.0, "mirostat_eta": 0.4},
    {"adaptive_target": 0.3, "adaptive_decay": 0.7},
    {"min_keep": 3, "top_p": 0.1, "xtc_probability": 0.5, "xtc_threshold": 0.02},
    {
        "samplers": ("temperature", "top_k", "xtc", "penalties", "xtc"),
        "xtc_probability": 0.5,
        "repeat_penalty": 1.3,
    },
    {"samplers": ("typ_p", "dry", "top_p"), "typical_p": 0.8, "dry_multiplier": 2.0},
    {"bad_words": (TARGET_VOCAB.tokenize(b" brown fox")[:2], TARGET_VOCAB.tokenize(b" lazy"))},
    {"allowed": tuple(range(32, 300))},
]
MOVES_THE_LIKELIEST = {
    *("repeat_penalty", "frequency_penalty", "logit_bias", "ignore_eos", "dry_multiplier", "bad_words", "allowed")
}


@pytest.mark.parametrize(
    ("sampling", "temperature"),
    [
        *((sampling, 1.1) for sampling in SAMPLINGS),
        *((sampling, 0.0) for sampling in SAMPLINGS if MOVES_THE_LIKELIEST & sampling.keys()),
    ],
)
def test_drafted_equals_plain_for_every_sampler(sampling: dict, temperature: float) -> None:
    accepted = 0
    for seed, n in ((0, 1), (2, 4)):
        one = [
            requests(
                n,
                temperature,
                seed,
                SpeculativeParams(policy=SpecPolicy.FIXED, enabled=on, n_max=9, p_min=0.2),
                **sampling,
            )
            for on in (False, True)
        ]
        off = run(make_engine(fresh(TARGET)), one[0])
        on = run(make_engine(fresh(TARGET), drafter("model", n, temperature, seed)), one[1])
        assert [result.ids for result in on] == [result.ids for result in off]
        accepted += sum(result.done.timings.draft.n_accepted for result in on)
    assert accepted > 0, "nothing was ever accepted: the test would prove nothing"


@pytest.mark.parametrize("temperature", [0.0, 1.1])
def test_xtc_changes_the_text(temperature: float) -> None:
    """Else the test before would show nothing of it."""
    plain = SpeculativeParams(enabled=False)
    texts = [
        run(make_engine(fresh(TARGET)), requests(1, temperature, 1, plain, xtc_probability=p, xtc_threshold=0.02))[
            0
        ].ids
        for p in (0.0, 0.5, 1.0)
    ]
    assert texts[0] != texts[1] != texts[2] != texts[0]


def test_a_model_draft_pays_on_this_script() -> None:
    target, speculative = fresh(TARGET), SpeculativeParams(policy=SpecPolicy.FIXED, n_max=8, p_min=0.3)
    result = run(make_engine(target, drafter("model", 1, 0.0, 1)), requests(1, 0.0, 1, speculative))[0]
    stats = result.done.timings.draft
    assert stats.accept_rate > 0.5
    assert stats.n_rounds < 0.6 * N_TOKENS


def test_the_end_of_turn_is_foreseen_and_costs_no_row() -> None:
    """The draft stops there, and the target writes that id in the decode that accepts what came before."""
    prompt = prompts(1)[0]
    target, draft = ScriptedModel(TARGET_VOCAB, length=60), ScriptedModel(DRAFT_VOCAB, length=60)
    engine = make_engine(target, ModelDrafter(draft, ENCODER, ToyRules()))
    result = run(
        engine,
        [
            Request(
                prompt, SamplingParams(temperature=0), SpeculativeParams(policy=SpecPolicy.FIXED, n_max=16, p_min=0.0)
            )
        ],
    )[0]
    assert result.ids[-1] == TARGET_VOCAB.eos
    assert result.done.finish == "stop"
    last = result.deltas[-1]
    assert str(last.origins[-1]) == "target"
    assert list(target.batches[-1].values()) == [len(last.ids)], "one row for each id, the end's own among them"


@pytest.mark.parametrize("drafted", [False, True])
def test_the_sampled_distribution_is_the_targets(drafted: bool) -> None:
    """Chi-square over the first two ids of many seeds against the target's own softmax."""
    target = ScriptedModel(TARGET_VOCAB, sharpness=2.0)
    draft = ScriptedModel(DRAFT_VOCAB, sharpness=2.0)
    prompt = prompts(1)[0][:4]
    sampling = {"temperature": 1.0, "top_k": 4, "top_p": 1.0, "min_p": 0.0}
    n = 2000
    engine = make_engine(target, ModelDrafter(draft, ENCODER, ToyRules()) if drafted else None)
    speculative = SpeculativeParams(policy=SpecPolicy.FIXED, enabled=drafted, n_max=3, p_min=0.0)
    all_requests = [
        Request(prompt, SamplingParams(seed=seed, **sampling), speculative, max_tokens=2) for seed in range(n)
    ]
    counts = Counter(tuple(result.ids) for result in run(engine, all_requests, 10**6))
    expected = {(a, b): n * pa * pb for a, pa in top(target, [*prompt], 4) for b, pb in top(target, [*prompt, a], 4)}
    assert set(counts) <= set(expected)
    chi2 = sum((counts[pair] - e) ** 2 / e for pair, e in expected.items())
    assert chi2 < 37.7, f"chi-square {chi2:.1f} on 15 degrees of freedom: p < 0.001"


def top(target: ScriptedModel, kv: list[int], k: int) -> list[tuple[int, float]]:
    row = target._compute(kv).astype(float)
    ids = np.argsort(-row)[:k]
    p = np.exp(row[ids]) / np.exp(row[ids]).sum()
    return list(zip(ids.tolist(), p.tolist(), strict=True))


def test_the_same_seed_gives_the_same_text_and_others_differ() -> None:
    texts = {
        seed: run(make_engine(fresh(TARGET)), requests(1, 1.3, seed, SpeculativeParams(enabled=False)))[0].text
        for seed in (1, 2, 1)
    }
    again = run(make_engine(fresh(TARGET)), requests(1, 1.3, 1, SpeculativeParams(enabled=False)))[0].text
    assert texts[1] == again
    assert texts[1] != texts[2]


@pytest.mark.parametrize(
    ("least", "slots", "temperature"), pairs([Least(), Least(8), Least(4, of_each=True)], [1, 2, 4], [0.0, 1.3])
)
def test_the_automatic_policy_never_changes_the_text(least: Least, slots: int, temperature: float) -> None:
    """Whatever it believes of the machine: every curve leads to other lengths, levels and dummies."""
    auto = SpeculativeParams(n_max=16)
    for steps in (0.1, 1.0, (5.0, 9.0, 3.0)):
        target, draft = ScriptedModel(TARGET_VOCAB, slots), ScriptedModel(DRAFT_VOCAB, slots, sharpness=9.0)
        cost = (lambda n, s=steps: 10 + s * n) if isinstance(steps, float) else (lambda n, s=steps: 10 + s[n % 3])
        samples = [CostSample(n, 0, cost(n)) for n in range(1, 65)]
        machine = Machine(CostCurve(samples), n_ubatch=target.n_ubatch, least=least.rows, of_each=least.of_each)
        engine = make_engine(target, ModelDrafter(draft, ENCODER, ToyRules()), least, AutoPolicy(machine))
        results = run(engine, requests(2 * slots, temperature, 5, auto))
        plain = run(
            make_engine(ScriptedModel(TARGET_VOCAB, slots)),
            requests(2 * slots, temperature, 5, SpeculativeParams(enabled=False)),
        )
        assert [result.ids for result in results] == [result.ids for result in plain]
        assert any(len(set(batch.values())) == 1 and max(batch.values()) > 1 for batch in target.batches)
