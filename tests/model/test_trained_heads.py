"""Heads that were trained apart from the bundled target: the texts are those of the target alone, and the proposals
those of a plain computation.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from kit.head_reference import Reference
from kit.models import DRAFTS, HEADS, TARGET, chat_prompts, chat_requests, finish, settled
from kit.tiny_models import make, make_adapter
from kit.trained_heads import SHAPES, make_trained_head

from uad.base.config import Config, DraftingConfig, LoraConfig, ModelConfig
from uad.base.errors import ConfigError
from uad.base.types import (
    Constraint,
    ConstraintKind,
    Origin,
    Request,
    Rows,
    SamplingParams,
    SpecPolicy,
    SpeculativeParams,
)
from uad.drafts.model.head import HeadDrafter
from uad.llama.context import Context
from uad.llama.hidden import HiddenRows, Tap
from uad.llama.model import Model
from uad.runtime.runtime import Runtime
from uad.tools.cli.inspect import inspect_pair

pytestmark = pytest.mark.model
OFF = SpeculativeParams(enabled=False)
FIXED = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=4, p_min=0.0)
N = 48
CLOSE = 0.25  # logits by which kernels may differ from float32


def config(head: Path | None, slots: int = 1, types: tuple[str, ...] | None = None, **drafting) -> Config:
    usual = () if head is None else ("draft-simple",)
    return Config(
        target=ModelConfig(TARGET, n_ctx=1024 * slots, n_threads=1),
        draft=None if head is None else ModelConfig(head, n_threads=1),
        n_parallel=slots,
        drafting=DraftingConfig(types=usual if types is None else types, **{"exact": True} | drafting),
    )


def requests(runtime: Runtime, n: int, seed: int = 0, speculative: SpeculativeParams = FIXED) -> list[Request]:
    """Random requests: greedy and sampled ones, answers to continue, constraints."""
    rng, made = random.Random(seed), []
    for i, prompt in enumerate(chat_prompts(n)):
        temperature = rng.choice([0.0, 0.0, 0.6, 1.0])
        constraint = Constraint(ConstraintKind.REGEX, "[a-z ,.]{20,60}") if rng.random() < 0.15 else None
        plain = Request((), SamplingParams(temperature=temperature, seed=i), speculative, max_tokens=N)
        made += chat_requests(runtime, [prompt], replace(plain, constraint=constraint))
    return made


def ids_of(runtime: Runtime, wanted: Sequence[Request]) -> list[list[int]]:
    return [one.ids for one in finish(runtime, wanted)]


def counts(runtime: Runtime) -> tuple[int, int]:
    """Ids drafted and accepted by the head."""
    (stats,) = (one for one in runtime.snapshot().drafters if one.origin in (Origin.EAGLE3, Origin.DFLASH))
    return stats.n_drafted, stats.n_accepted


@pytest.fixture(scope="module")
def plain() -> Iterator[list[list[int]]]:
    """The answers of the target alone."""
    with Runtime.open(config(None)) as runtime:
        yield ids_of(runtime, requests(runtime, 60, speculative=OFF))


@pytest.fixture(params=sorted(HEADS))
def head(request: pytest.FixtureRequest) -> Path:
    return HEADS[request.param]


@pytest.mark.parametrize("slots", [1, 4])
def test_the_texts_are_those_of_the_target_alone(head: Path, slots: int, plain: list[list[int]]) -> None:
    with Runtime.open(config(head, slots)) as runtime:
        assert ids_of(runtime, requests(runtime, len(plain))) == plain
        n_drafted, n_accepted = counts(runtime)
        assert n_drafted > 1000
        assert n_accepted > 0.3 * n_drafted
        assert ids_of(runtime, requests(runtime, len(plain), speculative=SpeculativeParams())) == plain


def test_edited_histories_have_the_texts_of_a_fresh_start(head: Path) -> None:
    """Turns that go on, that change an earlier id, and texts that come back into a slot that had another one."""
    with Runtime.open(config(head, 2)) as runtime, Runtime.open(config(None)) as alone:
        rng, texts = random.Random(1), [list(one.prompt) for one in requests(runtime, 4)]
        for _ in range(12):
            text = rng.choice(texts)
            wanted = Request(tuple(text), SamplingParams(temperature=0.0), FIXED, max_tokens=24)
            ids = ids_of(runtime, [wanted])
            assert ids == ids_of(alone, [replace(wanted, speculative=OFF, cache_prompt=False)])
            text += ids[0]
            if rng.random() < 0.5:
                text[rng.randrange(8, len(text))] = rng.randrange(300, 3000)
        n_drafted, n_accepted = counts(runtime)
        assert n_accepted > 0.2 * n_drafted > 0


def test_proposals_are_those_of_a_plain_computation(head: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[int], tuple[int, ...]]] = []
    usual = HeadDrafter.propose

    def noted(self: HeadDrafter, asks, pace=None):
        drafts = usual(self, asks, pace)
        seen.extend((list(self._texts[ask.seq].ids), draft.ids) for ask, draft in zip(asks, drafts, strict=True))
        return drafts

    monkeypatch.setattr(HeadDrafter, "propose", noted)
    with Runtime.open(config(head)) as runtime:
        finish(runtime, [replace(one, sampling=SamplingParams(temperature=0.0)) for one in requests(runtime, 3)[:3]])
        eog = runtime._parts.target.model.vocab.eog
    reference, n_same, n = Reference(TARGET, head), 0, 0
    assert len(seen) > 20
    for ids, proposed in seen[::3]:
        expected = reference.proposal(ids, len(proposed))
        for id_, (best, logits) in zip(proposed, expected, strict=True):
            assert logits[id_] >= logits[best] - CLOSE
            n, n_same = n + 1, n_same + (id_ == best)
            if id_ != best:
                break  # from here on the two go on from different ids
        assert len(proposed) == 4 or proposed[-1] in eog
    assert n_same > 0.97 * n


@pytest.mark.parametrize(
    ("family", "shape"),
    [("llama", shape) for shape in SHAPES]
    + [(family, shape) for family in ("qwen3moe", "lfm2", "qwen35") for shape in ("eagle3", "dspark")],
)
def test_any_shape_on_any_memory_keeps_the_text(family: str, shape: str, tmp_path: Path) -> None:
    target = make(family, tmp_path)
    head = make_trained_head(target, SHAPES[shape], tmp_path)
    kind = "draft-dspark" if SHAPES[shape].has_markov else f"draft-{SHAPES[shape].arch}"
    wanted = [
        Request(tuple(range(20, 30 + 3 * i)), SamplingParams(temperature=temperature, seed=i), FIXED, max_tokens=24)
        for i in range(6)
        for temperature in (0.0, 0.8)
    ]
    own = config(head, 4, types=(kind,))
    own = replace(own, target=replace(own.target, path=target))
    with Runtime.open(replace(own, draft=None, drafting=replace(own.drafting, types=()))) as runtime:
        plain = ids_of(runtime, [replace(one, speculative=OFF) for one in wanted])
    with Runtime.open(own) as runtime:
        assert ids_of(runtime, wanted) == plain
        (stats,) = (one for one in runtime.snapshot().drafters if one.origin == kind)
        assert stats.n_drafted > 50


def test_an_adapter_of_the_target_keeps_the_text(tmp_path: Path) -> None:
    target = make("llama", tmp_path)
    adapter = LoraConfig(make_adapter(target, tmp_path / "adapter.gguf"), 1.0)
    head = make_trained_head(target, SHAPES["eagle3"], tmp_path)
    wanted = [Request(tuple(range(20, 40)), SamplingParams(temperature=0.0), FIXED, max_tokens=24)]
    own = config(head, types=("draft-eagle3",))
    own = replace(own, target=replace(own.target, path=target, loras=(adapter,)))
    with Runtime.open(replace(own, draft=None, drafting=replace(own.drafting, types=()))) as runtime:
        plain = ids_of(runtime, [replace(one, speculative=OFF) for one in wanted])
    with Runtime.open(own) as runtime:
        assert ids_of(runtime, wanted) == plain
        assert counts(runtime)[0] > 10
        runtime.set_adapters((0.0,))
        assert ids_of(runtime, wanted) != plain


def test_a_head_that_was_chosen_and_is_of_another_target_costs_a_line(tmp_path: Path) -> None:
    target = make("llama", tmp_path)
    own = replace(config(HEADS["eagle3"]), target=ModelConfig(target, n_ctx=512), draft_from=(HEADS["eagle3"],))
    with Runtime.open(own) as runtime:
        assert Origin.EAGLE3 not in runtime.info.drafters
    with Runtime.open(replace(config(HEADS["eagle3"]), draft_from=(HEADS["eagle3"], DRAFTS["zephyr"]))) as runtime:
        assert Origin.EAGLE3 in runtime.info.drafters
        assert Origin.MODEL not in runtime.info.drafters


def test_keeping_layers_changes_no_bit_of_the_target() -> None:
    ids = list(range(300, 420))
    with Model(ModelConfig(TARGET), "target") as model:
        context = Context(model, ModelConfig(TARGET, n_ctx=512, n_threads=1), 2, "target")
        with context:
            bits = []
            for source in (None, HiddenRows(context.handle, 2, Tap(model.info.n_embd, (1, 3, 5)), 64)):
                context.hidden = source
                if source is not None:
                    source.expect(0, 0)
                for rows in ([Rows(0, 0, ids, 1), Rows(1, 0, ids[:40], 3)], [Rows(0, len(ids), (7,), 1)]):
                    context.decode(rows)
                    bits.append(context.logits().tobytes())
                context.clear(0)
                context.clear(1)
            assert source is not None
            assert source.span(0) == (len(ids) + 1 - 64, len(ids) + 1)
    assert bits[:2] == bits[2:]


def test_a_head_drafts_again_after_sleep(head: Path) -> None:
    with Runtime.open(config(head)) as runtime:
        wanted = requests(runtime, 4)
        before, first = ids_of(runtime, wanted), counts(runtime)
        runtime.fall_asleep()
        settled(runtime)
        assert runtime.sleep.is_asleep
        assert ids_of(runtime, wanted) == before
        second = counts(runtime)
    assert [b - a for a, b in zip(first, second, strict=True)] == list(first)


def test_what_does_not_belong_together_is_named(tmp_path: Path) -> None:
    eagle = HEADS["eagle3"]
    other = make("llama", tmp_path)
    for target, draft, types, reason in (
        (other, eagle, ("draft-simple",), "a head of EAGLE-3 of another target: its target's rows have 256 numbers"),
        (make("gemma3", tmp_path), eagle, ("draft-eagle3",), "does not hand out the layers of targets of the arch"),
        (TARGET, None, ("draft-eagle3",), "--spec-type draft-eagle3 needs a head of EAGLE-3 made for the target"),
        (TARGET, DRAFTS["zephyr"], ("draft-eagle3",), "no head of EAGLE-3 in it"),
        (TARGET, eagle, ("draft-dflash",), "it holds a head of EAGLE-3, which --spec-type draft-eagle3 drafts with"),
        (TARGET, eagle, ("draft-mtp", "draft-eagle3"), "are heads, of which one drafts at a time"),
        (TARGET, eagle, ("draft-simple", "draft-eagle3"), "a head alone cannot draft as draft-simple"),
        (eagle, None, (), "it holds a head of EAGLE-3 alone, which writes no text by itself"),
    ):
        wanted = config(draft, types=types)
        with pytest.raises(ConfigError, match=reason):
            Runtime.open(replace(wanted, target=replace(wanted.target, path=target)))


def test_a_head_beside_suffix(plain: list[list[int]]) -> None:
    with Runtime.open(config(HEADS["eagle3"], types=("draft-simple", "suffix"))) as runtime:
        assert set(runtime.info.drafters) == {Origin.PREDICTION, Origin.EAGLE3, Origin.SUFFIX}
        assert any("holds a head alone: it drafts as draft-eagle3" in note for note in runtime.info.notes)
        assert ids_of(runtime, requests(runtime, 20)) == plain[:20]


def test_inspect_tells_whether_they_belong_together(head: Path, tmp_path: Path) -> None:
    sections = dict(inspect_pair(config(head)))
    rows = dict(sections["Head"])
    assert rows["belongs to this target"] == "yes"
    assert rows["layers that it reads"] == "1, 3, 5 of 6"
    other = replace(config(head), target=ModelConfig(make("llama", tmp_path)))
    assert "its target's rows have 256 numbers" in dict(dict(inspect_pair(other))["Head"])["belongs to this target"]
