"""The table of samplers, and what is made from it: flags, fields, answers, stages, the table in the documentation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kit.fake_runtime import FakeRuntime
from kit.server_kit import post

from uad.base.common.samplers import INFILL, SAMPLERS, SETTINGS, SamplerEntry
from uad.base.config import load_config
from uad.base.errors import ConfigError
from uad.base.types import SamplingParams
from uad.engine.sampling.noise import Position, chance, token_keys
from uad.engine.sampling.sampler import Sampler as Draw
from uad.engine.sampling.stages import SamplerStage, stages

DOCS = Path(__file__).parents[3] / "docs" / "http.md"
OFF = SamplingParams(**{name: one.off[0] for name, one in SETTINGS.items() if one.off})
ONES = {
    name: min(7, int(one.high)) if one.is_whole else (max(one.low, 0.0) + min(one.high, 2.0)) / 3
    for name, one in SETTINGS.items()
}
"""A value within bounds that is not off, for each field."""


def rows() -> Iterator[str]:
    yield "| sampler | letter | field | flag | default | from | to | what it says |"
    yield "|---|---|---|---|---|---|---|---|"
    for sampler, names in SAMPLERS.items():
        for name in names:
            one = SETTINGS[name]
            fields = ", ".join(f"`{each}`" for each in (name, *one.aliases))
            flags = ", ".join(f"`{each}`" for each in one.flags.split())
            numbers = f"{one.default:g} | {one.low:g} | {one.high:.10g}"
            letter = f"`{sampler.letter}`" if sampler.letter else "–"
            yield f"| `{sampler.name}` | {letter} | {fields} | {flags} | {numbers} | {one.help} |"


def test_the_documentation_has_the_table() -> None:
    table = "\n".join(rows())
    assert table in DOCS.read_text(encoding="utf-8"), (
        f"bring the table of samplers in docs/http.md up to date:\n{table}"
    )


def test_names_letters_and_aliases_name_one_sampler_each() -> None:
    words = [word for one in SAMPLERS for word in {one.name, one.letter, *one.aliases} if word]
    assert len(words) == len(set(words))


@pytest.mark.parametrize("name", SETTINGS)
def test_every_field_has_a_flag_and_a_request_field_and_is_told_in_the_answer(name: str) -> None:
    value, fake = ONES[name], FakeRuntime()
    status, answer = post("/completion", {"prompt": "ab", name: value}, fake)
    assert status == 200, answer
    assert fake.requests[-1].sampling == dataclasses.replace(SamplingParams(), **{name: value})
    assert answer["generation_settings"][name] == value
    for flag in SETTINGS[name].flags.split():
        assert getattr(load_config(["-m", "x.gguf", flag, str(value)], {}).sampling, name) == value


NAMED = [one for one in SAMPLERS if one.letter]


@pytest.mark.parametrize("sampler", NAMED, ids=lambda sampler: sampler.name)
def test_a_sampler_that_a_request_leaves_out_is_off(sampler: SamplerEntry) -> None:
    fake = FakeRuntime()
    kept = [one.name for one in NAMED if one != sampler]
    status, answer = post("/completion", {"prompt": "ab", "samplers": kept, **ONES, "mirostat": 0}, fake)
    assert status == 200, answer
    asked = [
        stage.sampler
        for stage in stages(fake.requests[-1].sampling, frozenset(), 64)
        if isinstance(stage, SamplerStage)
    ]
    expected = [one for one in sorted(NAMED, key=lambda one: one.draws) if one != sampler]
    if INFILL in expected:  # it compares all pairs, so the likeliest are chosen before it
        expected.insert(expected.index(INFILL), next(one for one in NAMED if one.name == "top_k"))
    assert asked == expected
    assert answer["generation_settings"]["samplers"] == kept


def asked(params: SamplingParams) -> list[str]:
    return [one.sampler.name for one in stages(params, frozenset(), 64) if isinstance(one, SamplerStage)]


def test_samplers_run_in_the_order_that_is_asked_for_and_as_often() -> None:
    for spelled in ("kpktk", ["top_k", "top-p", "TOPK", "temp", "top_k"]):
        fake = FakeRuntime()
        status, answer = post("/completion", {"prompt": "ab", "samplers": spelled}, fake)
        assert status == 200, answer
        assert asked(fake.requests[-1].sampling) == ["top_k", "top_p", "top_k", "temperature", "top_k"]
    for flag, value in (("--samplers", "top_k;top_p;top_k;temperature;top_k"), ("--sampler-seq", "kpktk")):
        assert asked(load_config(["-m", "x.gguf", flag, value], {}).sampling) == asked(fake.requests[-1].sampling)
    with pytest.raises(ConfigError, match="there is no sampler 'tfs'; those that there are: penalties, dry"):
        load_config(["-m", "x.gguf", "--samplers", "top_k;tfs"], {})


def test_mirostat_stands_alone_and_adaptive_p_is_the_last() -> None:
    on = dataclasses.replace(SamplingParams(), adaptive_target=0.5)
    assert asked(dataclasses.replace(on, samplers=("adaptive_p", "top_k", "adaptive_p"))) == ["top_k", "adaptive_p"]
    assert asked(dataclasses.replace(on, mirostat=2)) == ["temperature", "mirostat"]
    assert asked(dataclasses.replace(on, adaptive_target=-0.01, samplers=("adaptive_p",))) == []


def test_a_greedy_choice_ignores_what_follows_the_temperature() -> None:
    on = dataclasses.replace(OFF, temperature=0.0, repeat_penalty=1.2, dry_multiplier=0.8)
    assert asked(on) == ["penalties", "dry"]
    assert asked(dataclasses.replace(on, samplers=("dry", "temperature", "penalties"))) == ["dry"]
    assert asked(dataclasses.replace(on, samplers=("penalties",))) == ["penalties"], "no temperature: not greedy"
    assert asked(dataclasses.replace(on, mirostat=1)) == []
    assert asked(dataclasses.replace(on, dynatemp_range=0.5)) == ["penalties", "dry", "temperature"]


def test_min_keep_reaches_the_samplers_that_have_it() -> None:
    params = dataclasses.replace(OFF, top_p=0.5, min_p=0.1, typical_p=0.5, xtc_probability=0.5, min_keep=3)
    args = {one.sampler.name: one.args for one in stages(params, frozenset(), 64) if isinstance(one, SamplerStage)}
    assert args == {"typ_p": (0.5, 3), "top_p": (0.5, 3), "min_p": (0.1, 3), "xtc": (1.0, 0.1, 3)}


def test_the_stages_of_equal_settings_are_each_callers_own() -> None:
    params = dataclasses.replace(OFF, top_k=5, temperature=0.7)
    first = stages(params, frozenset(), 64)
    expected = list(first)
    first.clear()
    assert stages(dataclasses.replace(params), frozenset(), 64) == expected
    listed = dataclasses.replace(params, samplers=list(params.samplers), logit_bias=())  # type: ignore[arg-type]
    assert stages(listed, frozenset(), 64) == expected


def test_stages_that_are_off_are_left_out() -> None:
    assert stages(OFF, frozenset(), 64) == []
    assert (
        stages(
            dataclasses.replace(OFF, top_k=-1, top_n_sigma=0.0, repeat_last_n=0, repeat_penalty=1.5), frozenset(), 64
        )
        == []
    )


def test_a_greedy_choice_needs_the_stages_up_to_the_last_that_can_change_it() -> None:
    greedy = dataclasses.replace(OFF, temperature=0.0)
    assert stages(dataclasses.replace(greedy, top_k=5, min_p=0.1), frozenset(), 64) == []
    all_on = dataclasses.replace(greedy, top_k=5, repeat_penalty=1.2, xtc_probability=0.5)
    assert [one.sampler.name for one in stages(all_on, frozenset(), 64) if isinstance(one, SamplerStage)] == [
        "penalties",
        "top_k",
        "xtc",
    ]


class Chain:
    """Stages that do nothing but say whether XTC is among them."""

    made: list[bool]

    def __init__(self, chain: list[SamplerStage]) -> None:
        self.with_xtc = any(one.sampler.name == "xtc" for one in chain)

    def apply(self, row: np.ndarray, ids: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        return np.array([1 if self.with_xtc else 0], np.int32), np.zeros(1, np.float32)

    def accept(self, id_: int) -> None: ...
    def close(self) -> None: ...


def test_xtc_acts_as_often_as_it_is_asked_to_and_always_alike_at_one_position() -> None:
    params = dataclasses.replace(OFF, top_k=5, xtc_probability=0.3)
    row, keys = np.zeros(8, np.float32), token_keys(tuple(bytes([i]) for i in range(8)))
    places = [(seed, Position(offset)) for seed in range(40) for offset in range(50)]

    def drawn() -> list[int]:
        return [Draw(params, seed, frozenset(), 64, Chain, keys).pick(row, position) for seed, position in places]

    assert abs(np.mean(drawn()) - 0.3) < 0.04
    assert drawn() == drawn()


def test_chances_of_other_samplers_seeds_and_positions_are_others() -> None:
    all_ = {
        chance(seed, Position(offset), name) for seed in range(20) for offset in range(20) for name in ("xtc", "dry")
    }
    assert len(all_) == 800
    assert 0 < min(all_) < max(all_) < 1
