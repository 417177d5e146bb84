"""Two draft models beside each other, each with a vocabulary and a chat template of its own: texts stay the target's,
and everything says which of them wrote what.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from kit.grammar_kit import choice, regex, schema
from kit.models import DRAFTS, TARGET, WORDS, chat_prompts, finish

from uad.base.config import Config, load_config
from uad.base.types import Constraint, Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.runtime.plan import plan
from uad.runtime.runtime import Runtime
from uad.tools.cli.inspect import inspect_pair

pytestmark = pytest.mark.model
BOTH = (DRAFTS["zephyr"], DRAFTS["gemma"])
CONSTRAINTS: Sequence[Constraint | None] = (
    *(None,) * 5,
    regex("[A-Z][a-z ]{4,60}[.]"),
    choice("The river was wide.", "The river was narrow."),
    schema({"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}}),
)
TYPES: Sequence[tuple[Origin, ...]] = (
    (),
    (Origin.MODEL,),
    (Origin.MODEL_2,),
    (Origin.MODEL_2, Origin.SUFFIX),
    (Origin.MODEL, Origin.MODEL_2, Origin.SUFFIX),
)


def config(*drafts: Path, slots: int = 1, words: Sequence[str] = ()) -> Config:
    flags = [word for draft in drafts for word in ("--draft", str(draft))]
    usual = ("-np", str(slots), "-c", str(1024 * slots), "-t", "1", "--exact", "--cache-ram", "64")
    return load_config(["--model", str(TARGET), *flags, *usual, *words], {})


def random_requests(runtime: Runtime, n: int, seed: int) -> list[Request]:
    """Conversations that go on, are edited in the middle and are cut, with any sampling, constraint and policy."""
    rng, prompts, turns = random.Random(seed), chat_prompts(40), list[dict[str, str]]()
    out = []
    while len(out) < n:
        match rng.choice(("more", "more", "edit", "cut", "new")):
            case "edit" if turns:
                turns[rng.randrange(len(turns))]["content"] += f" And {rng.choice(WORDS)}!"
            case "cut" if len(turns) > 2:
                del turns[rng.randrange(0, len(turns) - 1, 2) :]
            case "new":
                turns = []
        if len(turns) > 6:
            turns = turns[4:]
        if not turns or turns[-1]["role"] == "assistant":
            turns.append({"role": "user", "content": rng.choice(prompts)})
        temperature, seed_ = rng.choice((0.0, 0.0, 0.7, 1.2)), rng.randrange(1000)
        speculative = SpeculativeParams(
            policy=rng.choice((SpecPolicy.FIXED, SpecPolicy.FIXED, SpecPolicy.AUTO)),
            n_max=rng.choice((3, 8, 16)),
            p_min=rng.choice((0.0, 0.3)),
            types=rng.choice(TYPES),
        )
        request = Request(
            tuple(runtime.text.chat([dict(turn) for turn in turns], {})),
            SamplingParams(temperature=temperature, top_k=rng.choice((0, 20)), seed=seed_),
            speculative,
            rng.choice((8, 24, 48)),
        )
        constraint = rng.choice(CONSTRAINTS)
        out.append(request if constraint is None else replace(request, constraint=constraint))
        turns.append({"role": "assistant", "content": f"The {rng.choice(WORDS)} is {rng.choice(WORDS)}."})
    return out


def texts_differ(n: int, seed: int, slots: int = 4) -> tuple[list[int], dict[Origin, int]]:
    """The requests whose text is not that of the target alone, and how many ids of each draft were accepted."""
    with Runtime.open(config(slots=slots)) as runtime:
        requests = random_requests(runtime, n, seed)
        off = SpeculativeParams(enabled=False)
        alone = finish(runtime, [replace(one, speculative=off) for one in requests], 600)
    with Runtime.open(config(*BOTH, slots=slots)) as runtime:
        drafted = finish(runtime, requests, 600)
        accepted = {stats.origin: stats.n_accepted for stats in runtime.snapshot().drafters}
    return [i for i in range(n) if drafted[i].ids != alone[i].ids], accepted


def test_texts_are_those_of_the_target_alone() -> None:
    wrong, accepted = texts_differ(32, 1)
    assert not wrong
    assert min(accepted[Origin.MODEL], accepted[Origin.MODEL_2]) > 20, accepted


def test_a_request_may_name_one_of_them() -> None:
    with Runtime.open(config(*BOTH)) as runtime:
        assert [Path(model.path) for model in runtime.info.drafts.values()] == [*BOTH]
        assert runtime.info.drafters[-2:] == (Origin.MODEL, Origin.MODEL_2)
        notes = "\n".join(runtime.info.notes)
        assert "draft-simple: draft-zephyr.gguf" in notes
        assert "draft-simple-2: draft-gemma.gguf" in notes
        ids = tuple(runtime.text.chat([{"role": "user", "content": chat_prompts(2)[1]}], {}))
        for types, writer in (((), Origin.MODEL), ((Origin.MODEL_2,), Origin.MODEL_2)):
            speculative = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=8, p_min=0.3, types=types)
            (answer,) = finish(runtime, [Request(ids, SamplingParams(temperature=0.0), speculative, 40)])
            assert set(answer.done.timings.draft.by) == {writer}
            assert answer.done.timings.draft.by[writer].n_accepted > 5


def test_the_plan_sums_both() -> None:
    one, two = (plan(config(*drafts)).memory for drafts in (BOTH[:1], BOTH))
    assert one is not None
    assert two is not None
    more = {part.name: part.n_bytes for part in two.parts if part.name.startswith("draft 2")}
    assert set(more) == {"draft 2 weights", "draft 2 KV cache", "draft 2 buffers"}
    assert sum(part.n_bytes for part in two.parts) == sum(part.n_bytes for part in one.parts) + sum(more.values())


def test_inspect_has_sections_of_each() -> None:
    headings = [heading for heading, _ in inspect_pair(config(*BOTH))]
    assert headings.count("Draft") == headings.count("Rules") == 2
