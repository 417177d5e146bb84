"""Every kind of memory that llama.cpp has, on tiny random models: the same text with and without drafts, and prompts
that go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import permutations, product
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
from uad.runtime.plan import plan
from uad.runtime.runtime import Runtime
from uad.runtime.target import open_target

pytestmark = pytest.mark.model
WAYS = ((0.0, 12), (0.8, 3))
"""Temperatures, and how many ids are drafted then."""
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


@dataclass(frozen=True)
class Alone:
    """What a model writes with nothing that drafts, in one slot."""

    plain: dict[float, list[list[int]]]
    long: list[list[int]]
    """Of greedy answers that are twice as long, one of them to a prompt that is."""
    is_exact: bool


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def alone(name: str, folder: Path) -> Alone:
    with Runtime.open(config(make(name, folder), None)) as runtime:
        plain = {temperature: texts(runtime, temperature, OFF)[0] for temperature in (0.0, 0.8)}
        return Alone(plain, long_texts(runtime), is_exact(runtime))


@pytest.fixture(scope="module")
def itself(name: str, folder: Path) -> Iterator[Runtime]:
    """The model with itself as its draft."""
    path = make(name, folder)
    with Runtime.open(config(path, path, 1, (Origin.MODEL, Origin.SUFFIX))) as runtime:
        yield runtime


def long_texts(runtime: Runtime) -> list[list[int]]:
    some = [replace(one, max_tokens=64) for one in requests(runtime, 0.0, OFF, cache_prompt=False)]
    return [one.ids for one in finish(runtime, [*some, replace(some[0], prompt=some[0].prompt * 2)])]


def fixed(n_max: int, origin: Origin = Origin.MODEL) -> SpeculativeParams:
    return SpeculativeParams(policy=SpecPolicy.FIXED, n_max=n_max, p_min=0.0, types=(origin,))


@pytest.mark.parametrize(
    ("origin", "way"), [(Origin.MODEL, WAYS[0]), (Origin.MODEL, WAYS[1]), (Origin.SUFFIX, WAYS[0])]
)
def test_the_text_is_that_of_the_target_alone(
    origin: Origin, way: tuple[float, int], itself: Runtime, alone: Alone
) -> None:
    temperature, n_max = way
    found, n_drafted = texts(itself, temperature, fixed(n_max, origin))
    assert n_drafted or origin is Origin.SUFFIX
    if alone.is_exact:
        assert found == alone.plain[temperature]


def test_a_draft_with_another_vocabulary_changes_nothing_in_three_slots(name: str, folder: Path, alone: Alone) -> None:
    with Runtime.open(config(make(name, folder), DRAFTS["zephyr"], 3)) as runtime:
        temperature, n_max = WAYS[[*NAMES].index(name) % 2]
        found, n_drafted = texts(runtime, temperature, fixed(n_max))
        assert n_drafted
        if alone.is_exact:
            assert found == alone.plain[temperature]


def test_alone_it_writes_the_same_text_in_four_slots_as_in_one(name: str, folder: Path, alone: Alone) -> None:
    """Nothing drafts: only the shapes of the passes differ."""
    assert alone.is_exact
    with Runtime.open(config(make(name, folder), None, 4)) as runtime:
        assert is_exact(runtime)
        assert long_texts(runtime) == alone.long


@pytest.mark.parametrize("fields", [{}, {"flash_attn": "off"}], ids=str)
def test_passes_that_are_found_to_be_large_enough_give_the_same_bits(name: str, fields: dict, folder: Path) -> None:
    """Of 1 to 4 sequences with up to 12 rows each, all with texts of their own."""
    own = config(make(name, folder), None, 4, (Origin.SUFFIX,), **fields)
    texts = np.random.default_rng(1).integers(0, 500, (4, 24)).tolist()
    with ExitStack() as stack:
        target = open_target(plan(own), stack, lambda what, share: None)
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


def test_as_a_draft_it_is_read_on_from_where_it_was_right(name: str, folder: Path, bundled: list[list[int]]) -> None:
    with Runtime.open(config(TARGET, make(name, folder), 2)) as runtime:
        for n_max in (1, 6):
            found, n_drafted = texts(runtime, 0.0, fixed(n_max))
            assert found == bundled
            assert n_drafted


@pytest.mark.parametrize(
    "fields", [{"type_k": "q8_0", "type_v": "q8_0"}, {"flash_attn": "off", "n_ubatch": 16}], ids=str
)
def test_other_caches_other_attention_and_small_passes(name: str, fields: dict, folder: Path) -> None:
    path = make(name, folder)
    with Runtime.open(config(path, path, 2, **fields)) as runtime:
        plain = texts(runtime, 0.0, OFF)[0]
        found, n_drafted = texts(runtime, 0.0, fixed(10))
        assert n_drafted
        assert not is_exact(runtime) or found == plain


def test_the_next_turn_goes_on_from_a_copy_or_from_the_difference(itself: Runtime) -> None:
    first = requests(itself, 0.0, fixed(4))[0]
    first = replace(first, prompt=first.prompt * 6)
    finish(itself, [first])
    second = replace(first, prompt=(*first.prompt, *first.prompt[:40]))
    (again,) = finish(itself, [second])
    assert again.done.usage.n_cached >= len(first.prompt) - 2 * TAIL_IDS
    (fresh,) = finish(itself, [replace(second, cache_prompt=False)])
    if is_exact(itself):
        assert again.ids == fresh.ids


def test_what_each_kind_of_memory_does_is_found_at_start(folder: Path) -> None:
    expected = {Kind.SNAPSHOTS: Way.SNAPSHOTS, Kind.HYBRID: Way.CHECKPOINTS, Kind.RECURRENT: Way.CHECKPOINTS}
    for name, kind in NAMES.items():
        own = ModelConfig(make(name, folder), n_ctx=512, n_threads=1, n_snapshots=8)
        with Model(own) as model, Context(model, own, 1) as context:
            assert context.memory.way is expected.get(kind, Way.POSITIONS), name


SNAPSHOTS = [name for name, kind in NAMES.items() if kind is Kind.SNAPSHOTS]


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("name", SNAPSHOTS)
def test_snapshots_stay_a_sequences_own_in_whatever_order_slots_are_taken(
    name: str, order: tuple[int, ...], folder: Path
) -> None:
    """Slots 1 and 2 have a pass together after slot 0 had one: states were moved for it, and snapshots were not."""
    own = ModelConfig(make(name, folder), n_ctx=3 * 256, n_threads=1, n_snapshots=8)
    ids = [[3 + (7 * i + 31 * seq) % 90 for i in range(12)] for seq in range(3)]

    def piece(seq: int, begin: int, end: int, *wrong: int) -> Rows:
        return Rows(seq, begin, (*ids[seq][begin:end], *wrong), end - begin + len(wrong), end - begin + len(wrong) - 1)

    with Model(own) as model, Context(model, own, 3) as context:
        context.decode([piece(0, 0, 5)])
        context.decode([piece(0, 5, 6, 99)])
        assert context.take_back(0, 6) == 6
        context.decode([piece(0, 6, 7)])
        expected = context.logits()[-1].copy()
        for turn in range(2):  # the second one in slots that were taken before
            for seq in range(3):
                context.clear(seq)
            if turn:
                context.close()
                context.reopen()
            for seq in order:
                context.decode([piece(seq, 0, 5)])
            context.decode([piece(0, 5, 6, 99), piece(1, 5, 10), piece(2, 5, 10)])
            assert context.take_back(0, 6) == 6
            context.decode([piece(0, 6, 7)])
            assert np.array_equal(context.logits()[-1], expected)


def test_sequences_with_snapshots_that_begin_together_do_so_in_order(folder: Path) -> None:
    """Free places are given away in the order of rows."""
    own = ModelConfig(make(SNAPSHOTS[0], folder), n_ctx=3 * 256, n_threads=1, n_snapshots=8)
    with Model(own) as model, Context(model, own, 3) as context:
        rows = [Rows(seq, 0, (5, 6, 7)[: seq + 1], 1) for seq in range(3)]
        with pytest.raises(ValueError, match=r"begin in the order \[2, 1, 0\] in one decode"):
            context.decode(rows[::-1])
        context.decode(rows[::2])


def test_a_full_context_and_a_client_that_leaves(itself: Runtime) -> None:
    """The answer ends where the slot's context does; a request that is given up in mid-answer leaves a slot that serves
    the next one.
    """
    short = replace(requests(itself, 0.0, fixed(6))[0], max_tokens=None)
    whole = replace(short, prompt=(short.prompt * 512)[:450])
    (first,) = finish(itself, [whole])
    assert first.done.usage.n_prompt + first.done.usage.n_predicted <= 512
    left = Waiter()
    itself.cancel(itself.submit(replace(short, prompt=short.prompt * 3), left))
    (again,) = finish(itself, [whole])
    if is_exact(itself):
        assert again.ids == first.ids
