"""Every kind of memory that llama.cpp has, on tiny random models: the same text with and without drafts, and prompts
that go on.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from kit.models import DRAFTS, TARGET, Waiter, finish
from kit.tiny_models import NAMES, Kind, make
from numpy.typing import NDArray

from uad.base.config import Config, DraftingConfig, ModelConfig
from uad.base.types import Origin, Request, Rows, SamplingParams, SpecPolicy, SpeculativeParams
from uad.llama.context import Context
from uad.llama.memory import TAIL_IDS, Way
from uad.llama.model import Model
from uad.runtime.runtime import Runtime
from uad.runtime.target import open_target

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("learned_once")]
OFF = SpeculativeParams(enabled=False)
PROMPTS = (
    "the river and the stone, the river and the lantern, the river and the",
    '{"name": "walnut", "price": 12}, {"name": "',
    "def add(a, b):\n",
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


def config(
    target: Path, draft: Path | None, slots: int = 1, types: tuple[str, ...] = (Origin.MODEL,), **target_fields
) -> Config:
    return Config(
        target=ModelConfig(target, n_ctx=512 * slots, n_threads=1, **target_fields),
        draft=ModelConfig(draft, n_threads=1) if draft is not None else None,
        n_parallel=slots,
        drafting=DraftingConfig(exact=True, types=types),
    )


def requests(runtime: Runtime, temperature: float, speculative: SpeculativeParams, **fields) -> list[Request]:
    sampling = SamplingParams(temperature=temperature, seed=7)
    return [
        Request(tuple(runtime.text.tokenize(prompt)), sampling, speculative, max_tokens=32, **fields)
        for prompt in PROMPTS
    ]


@pytest.fixture(scope="module")
def bundled() -> list[list[int]]:
    """What the bundled target writes alone."""
    with Runtime.open(config(TARGET, None)) as runtime:
        return texts(runtime, 0.0, OFF)[0]


def texts(runtime: Runtime, temperature: float, speculative: SpeculativeParams) -> tuple[list[list[int]], int]:
    """The ids of every answer, and how many ids were drafted."""
    results = finish(runtime, requests(runtime, temperature, speculative, cache_prompt=False))
    return [one.ids for one in results], sum(one.done.timings.draft.n_drafted for one in results)


def is_exact(runtime: Runtime) -> bool:
    return not any("has no effect" in note for note in runtime.info.notes)


@pytest.mark.parametrize("name", NAMES)
def test_the_text_is_that_of_the_target_alone(name: str, folder: Path) -> None:
    path = make(name, folder)
    with Runtime.open(config(path, None)) as runtime:
        plain = {temperature: texts(runtime, temperature, OFF)[0] for temperature in (0.0, 0.8)}
        exact = is_exact(runtime)
    for draft, types in ((path, (Origin.MODEL, Origin.SUFFIX)), (DRAFTS["zephyr"], (Origin.MODEL,))):
        for slots in (1, 3):
            with Runtime.open(config(path, draft, slots, types)) as runtime:
                for one, (temperature, n_max) in product(types, ((0.0, 12), (0.8, 3))):
                    fixed = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=n_max, p_min=0.0, types=(one,))
                    found, n_drafted = texts(runtime, temperature, fixed)
                    assert n_drafted or one is Origin.SUFFIX
                    if exact:
                        assert found == plain[temperature], (
                            f"{one} {draft.name}, {slots} slots, temperature {temperature}, n_max {n_max}"
                        )


@pytest.mark.parametrize("name", NAMES)
def test_alone_it_writes_the_same_text_in_four_slots_as_in_one(name: str, folder: Path) -> None:
    """Nothing drafts: only the shapes of the passes differ."""
    found = []
    for slots in (1, 4):
        with Runtime.open(config(make(name, folder), None, slots)) as runtime:
            assert is_exact(runtime)
            some = [replace(one, max_tokens=64) for one in requests(runtime, 0.0, OFF, cache_prompt=False)]
            found.append([one.ids for one in finish(runtime, [*some, replace(some[0], prompt=some[0].prompt * 2)])])
    assert found[0] == found[1]


@pytest.mark.parametrize("fields", [{}, {"flash_attn": "off"}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_passes_that_are_found_to_be_large_enough_give_the_same_bits(name: str, fields: dict, folder: Path) -> None:
    """Of 1 to 4 sequences with up to 12 rows each, all with texts of their own."""
    own = config(make(name, folder), None, 4, n_snapshots=8, **fields)
    texts = np.random.default_rng(1).integers(0, 500, (4, 24)).tolist()
    with ExitStack() as stack:
        target = open_target(own, stack, lambda what, share: None)
        context, least = target.context, target.least
        wanted = [logits_in_passes(context, texts[i : i + 1], 12)[0] for i in range(4)]
        for n_seq, n in product((1, 2, 3, 4), (1, 2, 3, 4, 6, 8, 12)):
            if least.holds(n_seq, n, context.n_ubatch):
                found = logits_in_passes(context, texts[:n_seq], n)
                assert all(map(np.array_equal, found, wanted)), f"{n_seq} sequences, {n} rows"
        assert least.rows <= 2 or not context.rows_are_apart


def logits_in_passes(context: Context, texts: list[list[int]], n: int) -> NDArray[np.float32]:
    """Logits [sequence, id, n_vocab] of texts that are read beside each other, n ids of each in a pass."""
    out = []
    for at in range(0, len(texts[0]), n):
        context.decode([Rows(seq, at, text[at : at + n], n) for seq, text in enumerate(texts)])
        out.append(context.logits().reshape(len(texts), n, -1).copy())
    for seq in range(len(texts)):
        context.clear(seq)
    return np.concatenate(out, 1)


@pytest.mark.parametrize("name", NAMES)
def test_as_a_draft_it_is_read_on_from_where_it_was_right(name: str, folder: Path, bundled: list[list[int]]) -> None:
    with Runtime.open(config(TARGET, make(name, folder), 2)) as runtime:
        for n_max in (1, 6):
            found, n_drafted = texts(runtime, 0.0, SpeculativeParams(policy=SpecPolicy.FIXED, n_max=n_max, p_min=0.0))
            assert found == bundled
            assert n_drafted


@pytest.mark.parametrize(
    "fields", [{"type_k": "q8_0", "type_v": "q8_0"}, {"flash_attn": "off"}, {"n_ubatch": 16}], ids=str
)
@pytest.mark.parametrize("name", NAMES)
def test_other_caches_other_attention_and_small_passes(name: str, fields: dict, folder: Path) -> None:
    path = make(name, folder)
    with Runtime.open(config(path, None, **fields)) as runtime:
        plain, exact = texts(runtime, 0.0, OFF)[0], is_exact(runtime)
    with Runtime.open(config(path, path, 2, **fields)) as runtime:
        found, n_drafted = texts(runtime, 0.0, SpeculativeParams(policy=SpecPolicy.FIXED, n_max=10, p_min=0.0))
        assert n_drafted
        assert not exact or found == plain


@pytest.mark.parametrize("name", NAMES)
def test_the_next_turn_goes_on_from_a_copy_or_from_the_difference(name: str, folder: Path) -> None:
    path = make(name, folder)
    with Runtime.open(config(path, path)) as runtime:
        first = requests(runtime, 0.0, SpeculativeParams(policy=SpecPolicy.FIXED, n_max=4, p_min=0.0))[0]
        first = replace(first, prompt=first.prompt * 6)
        finish(runtime, [first])
        second = replace(first, prompt=(*first.prompt, *first.prompt[:40]))
        (again,) = finish(runtime, [second])
        assert again.done.usage.n_cached >= len(first.prompt) - 2 * TAIL_IDS
        (fresh,) = finish(runtime, [replace(second, cache_prompt=False)])
        if is_exact(runtime):
            assert again.ids == fresh.ids


def test_what_each_kind_of_memory_does_is_found_at_start(folder: Path) -> None:
    expected = {Kind.SNAPSHOTS: Way.SNAPSHOTS, Kind.HYBRID: Way.CHECKPOINTS, Kind.RECURRENT: Way.CHECKPOINTS}
    for name, kind in NAMES.items():
        own = ModelConfig(make(name, folder), n_ctx=512, n_threads=1, n_snapshots=8)
        with Model(own) as model, Context(model, own, 1) as context:
            assert context.memory.way is expected.get(kind, Way.POSITIONS), name


@pytest.mark.parametrize("name", NAMES)
def test_a_full_context_and_a_client_that_leaves(name: str, folder: Path) -> None:
    """The answer ends where the slot's context does; a request that is given up in mid-answer leaves a slot that serves
    the next one.
    """
    path = make(name, folder)
    speculative = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=6, p_min=0.0)
    with Runtime.open(config(path, path)) as runtime:
        whole = replace(requests(runtime, 0.0, speculative)[0], max_tokens=None)
        (first,) = finish(runtime, [whole])
        assert first.done.usage.n_prompt + first.done.usage.n_predicted <= 512
        left = Waiter()
        runtime.cancel(runtime.submit(replace(whole, prompt=whole.prompt * 3), left))
        (again,) = finish(runtime, [whole])
        if is_exact(runtime):
            assert again.ids == first.ids
