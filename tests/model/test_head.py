"""Heads for multi-token prediction on tiny models: the same text with them as without, and guesses that are right where
the head knows how its trunk goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.head_models import FAMILIES, Lesson, Part, make_with_head
from kit.learned import exactness_once
from kit.models import DRAFTS, finish
from kit.pace import best_of
from kit.tiny_models import make

from uad.base.config import Config, DraftingConfig, ModelConfig
from uad.base.errors import ConfigError
from uad.base.types import Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.engine.policy.cost import CostCurve, CostSample
from uad.llama.footprint import Footprint
from uad.llama.hidden import HiddenRows
from uad.runtime.costs import profile
from uad.runtime.runtime import Runtime
from uad.tools.cli.inspect import inspect_pair
from uad.tools.cli.profile import measure_profiles

pytestmark = pytest.mark.model
HEAD = (str(Origin.HEAD),)
OFF = SpeculativeParams(enabled=False)
FIXED = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=4, p_min=0.0)
PROMPTS = (
    "the river and the stone, the river and the lantern, the river and the",
    '{"name": "walnut", "price": 12}, {"name": "',
    "x",
)
N = 24
_CURVE = tuple(CostSample(n, 0, 10.0 + 0.1 * n) for n in (1, 2, 4, 8, 16))


@pytest.fixture(scope="module", autouse=True)
def learned_once() -> Iterator[None]:
    """Curves are those of `prices`, or measured."""
    with exactness_once():
        yield


@pytest.fixture(autouse=True)
def prices(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Nothing is measured at start but where a test is about that: rows cost what they cost on a GPU."""
    if "measured" not in request.node.name:
        monkeypatch.setattr(profile, "quick", lambda context, sizes, seconds: _CURVE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("heads")


def config(
    target: Path, slots: int = 1, types: tuple[str, ...] = HEAD, draft: Path | None = None, **drafting
) -> Config:
    return Config(
        target=ModelConfig(target, n_ctx=512 * slots, n_threads=1),
        draft=ModelConfig(draft, n_threads=1) if draft is not None else None,
        n_parallel=slots,
        drafting=DraftingConfig(types=types, **{"exact": True} | drafting),
    )


def write(
    runtime: Runtime, speculative: SpeculativeParams = FIXED, temperature: float = 0.0, prompts=PROMPTS, **fields
) -> tuple[list[list[int]], int, int]:
    """The ids of every answer, and how many ids were drafted and accepted."""
    sampling = SamplingParams(temperature=temperature, seed=7)
    fields = {"cache_prompt": False} | fields
    requests = [
        Request(tuple(runtime.text.tokenize(prompt)), sampling, speculative, max_tokens=N, **fields)
        for prompt in prompts
    ]
    results = finish(runtime, requests)
    stats = [one.done.timings.draft for one in results]
    return [one.ids for one in results], sum(one.n_drafted for one in stats), sum(one.n_accepted for one in stats)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("lesson", list(Lesson))
def test_the_text_is_that_of_the_target_alone(family: str, lesson: Lesson, folder: Path) -> None:
    path = make_with_head(family, folder, lesson)
    with Runtime.open(config(make_with_head(family, folder, lesson), types=())) as runtime:
        plain = {temperature: write(runtime, OFF, temperature)[0] for temperature in (0.0, 0.8)}
    shares = {}
    for slots in (1, 4):
        with Runtime.open(config(path, slots)) as runtime:
            for temperature in (0.0, 0.8):
                ids, n_drafted, n_accepted = write(runtime, FIXED, temperature)
                assert ids == plain[temperature], f"{slots} slots, temperature {temperature}"
                assert n_drafted > N
                shares[slots, temperature] = n_accepted / n_drafted
            assert all(one.n_failures == 0 for one in runtime.snapshot().drafters)
    if lesson is Lesson.NOTHING:
        assert max(shares.values()) < 0.05
    elif lesson is Lesson.TOKEN:
        assert set(shares.values()) == {1.0}, "with the target's own noise it draws what the target draws"
    else:
        assert shares[1, 0.0] == shares[4, 0.0] == 1.0
        assert shares[1, 0.8] > 0.7, "it foretells where the target takes the likeliest id"


def test_hidden_rows_that_are_off_by_one_foretell_nothing(
    family: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = HiddenRows.get

    def shifted(self: HiddenRows, seq: int, start: int, end: int):
        return (
            usual(self, seq, max(start - 1, 0), end - 1) if end - start < 8 and start else usual(self, seq, start, end)
        )

    monkeypatch.setattr(HiddenRows, "get", shifted)
    with Runtime.open(config(make_with_head(family, folder, Lesson.HIDDEN))) as runtime:
        _, n_drafted, n_accepted = write(runtime)
        assert n_drafted > N
        assert n_accepted < 0.1 * n_drafted


def test_a_head_may_have_a_file_of_its_own(family: str, folder: Path) -> None:
    trunk, head = (make_with_head(family, folder, Lesson.HIDDEN, part) for part in (Part.TRUNK, Part.HEAD))
    with Runtime.open(config(trunk, draft=head)) as runtime:
        _, n_drafted, n_accepted = write(runtime)
        assert n_accepted == n_drafted > N
    types = (str(Origin.MODEL), str(Origin.SUFFIX))
    with Runtime.open(config(trunk, types=types, draft=head)) as runtime:
        assert set(runtime.info.drafters) == {Origin.PREDICTION, Origin.HEAD, Origin.SUFFIX}
        assert any("holds a head alone: it drafts as draft-mtp" in note for note in runtime.info.notes)


def test_a_long_prompt_is_read_from_its_last_ids_and_a_second_turn_goes_on(family: str, folder: Path) -> None:
    path = make_with_head(family, folder, Lesson.HIDDEN)
    long = PROMPTS[0] * 6
    with Runtime.open(config(path, window=16)) as runtime:
        ids, n_drafted, n_accepted = write(runtime, prompts=[long], cache_prompt=True)
        assert n_accepted == n_drafted > N // 2
        turn = long + runtime.text.detokenize(ids[0]).decode()
        write(runtime, OFF, prompts=["z" + turn], cache_prompt=True)  # other rows in the same slot, which nobody keeps
        for prompt in (turn, turn + " and", turn + PROMPTS[1] * 4):
            _, n_drafted, n_accepted = write(runtime, prompts=[prompt], cache_prompt=True)
            assert n_accepted == n_drafted > N // 2, prompt


def test_head_model_and_text_may_draft_together(family: str, folder: Path) -> None:
    path = make_with_head(family, folder, Lesson.TOKEN)
    types = (str(Origin.MODEL), str(Origin.HEAD), str(Origin.SUFFIX))
    with Runtime.open(config(path, types=types, draft=DRAFTS["zephyr"])) as runtime:
        assert runtime.info.drafters == (Origin.PREDICTION, Origin.SUFFIX, Origin.HEAD, Origin.MODEL)
        plain = write(runtime, OFF)[0]
        for speculative in (FIXED, SpeculativeParams()):
            assert write(runtime, speculative)[0] == plain
        assert all(one.n_failures == 0 for one in runtime.snapshot().drafters)


def test_what_is_no_head_is_named(folder: Path) -> None:
    headless, both = make("qwen35", folder), make_with_head("qwen35", folder)
    trunk, head = (make_with_head("qwen35", folder, part=part) for part in (Part.TRUNK, Part.HEAD))
    claim = make_with_head("deepseek2", folder, part=Part.CLAIM)
    for target, draft, types, reason in (
        (headless, None, HEAD, f"target {headless}: no head for multi-token prediction in it"),
        (claim, None, HEAD, "give its head as --model-draft FILE, or use suffix"),
        (both, headless, HEAD, f"draft {headless}: no head for multi-token prediction in it"),
        (trunk, head, (*HEAD, str(Origin.MODEL)), "a head alone cannot draft as draft-simple"),
        (make("llama", folder), head, HEAD, "a head of another vocabulary"),
        (head, None, HEAD, f"target {head}: it holds a head for multi-token prediction alone"),
        (head, None, ("suffix",), f"target {head}: it holds a head for multi-token prediction alone"),
    ):
        with pytest.raises(ConfigError, match=re.escape(reason)):
            Runtime.open(config(target, draft=draft, types=types))


def test_a_head_that_nobody_asked_for_is_mentioned(folder: Path) -> None:
    with Runtime.open(config(make_with_head("qwen35", folder), types=("suffix",))) as runtime:
        assert any("--spec-type draft-mtp drafts with it" in note for note in runtime.info.notes)


def test_inspect_tells_whether_a_file_has_a_head(folder: Path) -> None:
    target, draft = make_with_head("deepseek2", folder), make("llama", folder)
    sections = dict(inspect_pair(config(target, draft=draft)))
    assert dict(sections["Target"])["head"] == "one (deepseek2): --spec-type draft-mtp drafts with it"
    assert dict(sections["Draft"])["head"] == "none"


def test_its_memory_is_reckoned_and_its_price_measured(folder: Path) -> None:
    path = make_with_head("qwen35", folder)

    def prices() -> tuple[float, float]:
        with Runtime.open(config(path, slots=2)) as runtime:
            policies = runtime._parts.policies
            assert policies is not None
            machine = policies.last.known.machine
            return machine.steps(Origin.HEAD).ms(2), machine.target.ms(2)

    head_ms, target_ms = best_of(5, prices, lambda found: found[0] < found[1])
    assert 0 < head_ms < target_ms
    with Footprint(ModelConfig(path, with_head=True), "head", 2) as footprint:
        trunk, head = footprint.of(4096), footprint.of(4096, is_head=True)
    assert 0 < head.kv < trunk.kv, "one layer of keys and values, no state"


@pytest.mark.parametrize("in_its_own_file", [False, True])
def test_the_server_finds_the_curve_that_profile_stored(
    in_its_own_file: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured_again(context: object, sizes: object, seconds: float) -> None:
        pytest.fail(f"no stored curve was found for {context}")

    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(profile, "quick", measured_again)
    parts = (Part.TRUNK, Part.HEAD) if in_its_own_file else (Part.BOTH,)
    target, *own = (make_with_head("qwen35", folder, part=part) for part in parts)
    settings = config(target, slots=2, draft=own[0] if own else None)
    curves = {one.role: one for one in measure_profiles(settings, 3, (0, 8), lambda what, share: None)}
    assert list(curves) == ["target", "head"]
    with Runtime.open(settings) as runtime:
        policies = runtime._parts.policies
        assert policies is not None
        assert policies.last.known.machine.steps(Origin.HEAD).ms(2) == pytest.approx(
            CostCurve(curves["head"].samples).ms(2), abs=1e-4
        )
        assert not any("measured quickly" in note for note in runtime.info.notes)
