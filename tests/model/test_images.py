"""Targets that see, with tiny random projectors: llama.cpp's own ids, whatever drafts, in however many slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit.head_models import Lesson, make_with_head
from kit.models import Waiter, finish, settled
from kit.seen_alone import greedy_answer
from kit.tiny_models import WIDTH, make
from kit.tiny_vision import make_hearing, make_projector, picture
from kit.toys import Collector

from uad.base.config import Config, DraftingConfig, ModelConfig, ServerConfig, VisionConfig
from uad.base.errors import ContextOverflowError, DecodeError, InvalidRequestError, ModelLoadError
from uad.base.events import Event, SlotAction
from uad.base.types import (
    GREEDY,
    IMAGE_PLACE,
    Image,
    Origin,
    PlacedImage,
    Request,
    Rows,
    SamplingParams,
    SpecPolicy,
    SpeculativeParams,
)
from uad.llama.context import Context
from uad.llama.memory import SequenceCopies
from uad.llama.model import Model
from uad.llama.projector import Projector
from uad.runtime.runtime import Runtime

PAIRS = {"m-rope": ("qwen2vl", "qwen2vl"), "window": ("gemma3", "gemma3"), "state": ("qwen35", "qwen2vl")}
"""Architecture of the target, and kind of its projector."""
OFF = SpeculativeParams(enabled=False)
EVERY_ROUND = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=6, p_min=0.0)
N = 24
PICTURES = picture(1, 40, 24), picture(2, 24, 48), picture(3)
PROMPTS = {
    "before": (f"{IMAGE_PLACE} What is in this picture of the river?", PICTURES[:1]),
    "between": (f"Look at this: {IMAGE_PLACE} and tell me about the lantern.", PICTURES[:1]),
    "three": (f"{IMAGE_PLACE} is one, {IMAGE_PLACE}{IMAGE_PLACE} are two more; where is a bridge?", PICTURES),
    "none": ("The river and the lantern, and the river and the lantern, and", ()),
}
Opened = Callable[..., Runtime]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


def config(folder: Path, pair: str, slots: int = 1, draft: bool = False, exact: bool = False, **target: Any) -> Config:
    """With a draft model, which is the target's own file and blind."""
    arch, kind = PAIRS[pair]
    path = target.pop("path", None) or make(arch, folder)
    return Config(
        target=ModelConfig(path, n_ctx=768 * slots, n_threads=1, **target),
        draft=ModelConfig(path, n_threads=1) if draft else None,
        n_parallel=slots,
        vision=VisionConfig(path=make_projector(kind, folder)),
        drafting=DraftingConfig(types=("draft-simple", "suffix") if draft else (), exact=exact),
    )


@pytest.fixture(scope="module")
def plain(folder: Path) -> Iterator[Opened]:
    """The runtime of a pair in which nothing drafts, opened when it is first asked for."""
    made: dict[str, Runtime] = {}

    def of(pair: str) -> Runtime:
        if pair not in made:
            made[pair] = Runtime.open(config(folder, pair))
        return made[pair]

    yield of
    for one in made.values():
        one.close()


class Whole(Waiter):
    """Waits for the last event, however many tell of progress."""

    def __call__(self, event: Event) -> None:
        Collector.__call__(self, event)
        if self.end is not None:
            self.over.set()


def request(runtime: Runtime, prompt: str, images: tuple[Image, ...], **more: Any) -> Request:
    ids = runtime.text.tokenize(prompt, add_special=True, images=images)
    fields: dict[str, Any] = {"sampling": GREEDY, "speculative": OFF, "max_tokens": N, "images": images} | more
    return Request(tuple(ids), **fields)


def every(runtime: Runtime, **more: Any) -> list[Request]:
    return [request(runtime, *one, **more) for one in PROMPTS.values()]


# --- the same ids


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("pair", PAIRS)
def test_greedy_ids_and_the_count_of_tokens_are_those_of_llama_cpp_itself(
    pair: str, prompt: str, folder: Path, plain: Opened
) -> None:
    text, images = PROMPTS[prompt]
    model = config(folder, pair).target
    expected, n_tokens = greedy_answer(model, make_projector(PAIRS[pair][1], folder), text, images, N)
    result = finish(plain(pair), [request(plain(pair), text, images)])[0]
    assert result.ids == expected
    assert result.done.usage.n_prompt == n_tokens
    assert len(set(expected)) > 4


@pytest.mark.parametrize("pair", PAIRS)
def test_drafts_slots_and_neighbours_change_no_text(pair: str, folder: Path) -> None:
    sampled = SamplingParams(temperature=0.8, seed=5)
    with Runtime.open(config(folder, pair, exact=True)) as alone:
        expected = {
            sampling: [finish(alone, [one])[0].ids for one in every(alone, sampling=sampling)]
            for sampling in (GREEDY, sampled)
        }
    for slots in (1, 4):
        with Runtime.open(config(folder, pair, slots, draft=True, exact=True)) as runtime:
            for sampling, ids in expected.items():
                results = finish(runtime, every(runtime, sampling=sampling, speculative=EVERY_ROUND))
                assert [one.ids for one in results] == ids, f"{slots} slots, temperature {sampling.temperature}"
                assert all(one.done.timings.draft.n_drafted for one in results)
            assert sum(one.n_accepted for one in runtime.snapshot().drafters)


def test_a_head_goes_on_after_the_last_image(folder: Path) -> None:
    path = make_with_head("qwen35", folder, Lesson.TOKEN)
    with Runtime.open(config(folder, "state", exact=True, path=path)) as alone:
        expected = [finish(alone, [one])[0].ids for one in every(alone)]
    settings = config(folder, "state", exact=True, path=path)
    settings = replace(settings, drafting=DraftingConfig(types=("draft-mtp",), exact=True))
    with Runtime.open(settings) as runtime:
        results = [finish(runtime, [one])[0] for one in every(runtime, speculative=EVERY_ROUND)]
        assert [one.ids for one in results] == expected
        assert all(one.done.timings.draft.by[Origin.HEAD].n_accepted > N / 2 for one in results)


@pytest.mark.parametrize("pair", ["m-rope", "state"])
def test_an_image_that_takes_several_passes_is_read_beside_others(pair: str, folder: Path) -> None:
    text, images = PROMPTS["three"]
    settings = config(folder, pair, 2, n_batch=16, n_ubatch=8)
    model = replace(settings.target, n_ctx=768)
    expected, _ = greedy_answer(model, make_projector("qwen2vl", folder), text, images, N)
    with Runtime.open(settings) as runtime:
        some = [request(runtime, text, images), request(runtime, *PROMPTS["none"])]
        together = finish(runtime, some)
        assert together[0].ids == expected
        assert together[1].ids == finish(runtime, [replace(some[1], cache_prompt=False)])[0].ids


# --- prefixes


@pytest.mark.parametrize("pair", PAIRS)
def test_a_second_turn_goes_on_after_the_images_of_the_first(pair: str, plain: Opened) -> None:
    runtime = plain(pair)
    text, images = PROMPTS["three"]
    first = finish(runtime, [request(runtime, text, images)])[0]
    more = f"{text} A small river. And in {IMAGE_PLACE} there?"
    second = request(runtime, more, (*images, picture(4, 48, 16)))
    again = finish(runtime, [second])[0]
    assert again.done.usage.n_cached > 0.8 * first.done.usage.n_prompt
    assert again.ids == finish(runtime, [replace(second, cache_prompt=False)])[0].ids


@pytest.mark.parametrize("pair", ["m-rope", "window"])
def test_another_image_in_the_same_place_is_read(pair: str, plain: Opened) -> None:
    runtime = plain(pair)
    text = f"Look at this: {IMAGE_PLACE} and tell me about the lantern. It is a long story about a lantern."
    one, other = (request(runtime, text, (picture(seed, 40, 24),)) for seed in (6, 7))
    finish(runtime, [one])
    result = finish(runtime, [other])[0]
    assert result.done.usage.n_cached <= next(i for i, id_ in enumerate(other.prompt) if id_ < 0)
    assert result.ids == finish(runtime, [replace(other, cache_prompt=False)])[0].ids


def test_conversations_with_images_that_take_turns_in_a_slot_keep_their_text(folder: Path) -> None:
    settings = replace(config(folder, "m-rope", exact=True), cache_ram=64)
    texts = [f"{IMAGE_PLACE} {'and the river is a long way ' * 20}{i}" for i in range(2)]
    with Runtime.open(settings) as runtime:
        some = [request(runtime, text, (picture(8 + i, 40, 24),)) for i, text in enumerate(texts)]
        expected = [finish(runtime, [replace(one, cache_prompt=False)])[0].ids for one in some]
        for _ in range(3):
            assert [finish(runtime, [one])[0].ids for one in some] == expected


def test_a_picture_that_was_read_in_part_leaves_nothing_behind(folder: Path) -> None:
    settings = config(folder, "m-rope", n_batch=16, n_ubatch=8)
    with (
        Model(settings.target) as model,
        Context(model, settings.target, 1) as context,
        Projector(model, settings.vision, settings.target, 1) as projector,
    ):
        context.projector = projector
        part = next(one for one in projector.layout(PICTURES[0]) if one.n_rows)
        placed = PlacedImage(PICTURES[0], 1, 3, 3 + len(part.ids), part.n_rows)
        rows = []
        for n_before in (0, 1):  # passes that are not the last ones, and are taken back
            context.clear(0)
            context.decode([Rows(0, 0, (1, 2, 3), 0)])
            for _ in range(n_before):
                assert context.see(0, placed, 0) == 8 < part.n_rows
                assert context.take_back(0, 3) == 3
            n_done = 0
            while n_done < part.n_rows:
                n_done = context.see(0, placed, n_done)
            assert context.memory.end(0) == placed.end
            context.decode([Rows(0, placed.end, (4, 5), 1)])
            rows.append(context.logits()[0].copy())
        assert np.array_equal(*rows)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_copy_of_a_sequence_keeps_where_its_images_end(pair: str, folder: Path) -> None:
    settings = config(folder, pair)
    with (
        Model(settings.target) as model,
        Context(model, settings.target, 2) as context,
        Projector(model, settings.vision, settings.target, 1) as projector,
    ):
        context.projector = projector
        part = next(one for one in projector.layout(PICTURES[0]) if one.n_rows)
        placed = PlacedImage(PICTURES[0], 1, 3, 3 + len(part.ids), part.n_rows)
        context.decode([Rows(0, 0, (1, 2, 3), 0)])
        assert context.see(0, placed, 0) == part.n_rows
        copies = SequenceCopies(context.memory)
        saved = copies.save(0)
        assert saved is not None
        assert saved.end == placed.end
        assert copies.restore(1, saved)
        context.decode([Rows(seq, placed.end, (4, 5), 1) for seq in (0, 1)])
        one, other = context.logits()
        assert np.allclose(one, other, atol=1e-3)
        assert context.reach(1, placed.end) in (0, placed.end)


# --- what is told


def test_tokens_are_counted_as_cells_and_progress_follows_images(plain: Opened) -> None:
    runtime = plain("m-rope")
    one = request(runtime, *PROMPTS["between"], progress=True, cache_prompt=False)
    result = Whole()
    runtime.submit(one, result)
    assert result.over.wait(120)
    part = next(part for part in runtime.text.sight.layout(PICTURES[0]) if part.n_rows)
    assert part.n_rows > len(part.ids)
    n_tokens = len(one.prompt) + part.n_rows - len(part.ids)
    steps = [event.n_past for event in result.progress]
    assert steps == sorted(steps)
    assert (steps[0], steps[-1]) == (0, n_tokens)
    assert result.done.timings.n_prompt == n_tokens


def test_a_chat_has_its_images_where_its_markers_are(plain: Opened) -> None:
    runtime = plain("m-rope")
    messages = [{"role": "user", "content": f"Hello {IMAGE_PLACE} there"}]
    ids = runtime.text.chat(messages, {}, images=PICTURES[:1])
    assert [id_ for id_ in ids if id_ < 0] == [
        id_ for part in runtime.text.sight.layout(PICTURES[0]) for id_ in part.ids if part.n_rows
    ]
    assert ids[:2] == runtime.text.chat([{"role": "user", "content": "Hello"}], {})[:2]


def test_penalties_count_the_ids_of_text_alone(plain: Opened) -> None:
    sampling = SamplingParams(temperature=0.0, repeat_penalty=1.3, repeat_last_n=-1, dry_multiplier=0.5)
    assert len(finish(plain("m-rope"), [request(plain("m-rope"), *PROMPTS["three"], sampling=sampling)])[0].ids) == N


# --- what is refused


@pytest.mark.parametrize(
    ("text", "images", "said"),
    [
        (f"The river {IMAGE_PLACE}", PICTURES[:0], None),
        (f"{IMAGE_PLACE} and {IMAGE_PLACE} there", PICTURES[:1], "2 places for 1 images"),
        ("no place", PICTURES[:1], "0 places for 1 images"),
        (f"{IMAGE_PLACE} a {'river' * 999}", PICTURES[:1], "context"),
    ],
    ids=("no image", "one of two", "no place", "too long"),  # a place is drawn at each start, and differs by process
)
def test_prompts_without_the_right_places_are_refused(
    text: str, images: tuple[Image, ...], said: str | None, plain: Opened
) -> None:
    runtime = plain("m-rope")
    if said is None:  # without images it is text like any other
        assert min(runtime.text.tokenize(text)) >= 0
        return
    with pytest.raises((InvalidRequestError, ContextOverflowError), match=said):
        runtime.check(request(runtime, text, images))


def test_placeholders_without_their_image_are_refused(plain: Opened) -> None:
    runtime = plain("m-rope")
    one = request(runtime, *PROMPTS["between"])
    for wrong in (
        replace(one, images=()),
        replace(one, images=(PICTURES[1],)),
        replace(one, prompt=(*one.prompt, -5)),
        replace(one, prompt=one.prompt[: one.prompt.index(min(one.prompt)) + 1]),
        replace(one, prompt_probs=True),
    ):
        with pytest.raises(InvalidRequestError):
            runtime.check(wrong)


def test_an_image_that_needs_a_larger_pass_is_refused_before_it_is_read(folder: Path) -> None:
    with Runtime.open(config(folder, "window", n_batch=16, n_ubatch=8)) as runtime:
        assert "one pass, of at most 8 tokens" in "\n".join(runtime.info.notes)
        with pytest.raises(InvalidRequestError, match="--ubatch-size"):
            runtime.check(request(runtime, *PROMPTS["before"]))


def test_a_server_without_a_projector_says_so(folder: Path) -> None:
    with Runtime.open(replace(config(folder, "m-rope"), vision=VisionConfig())) as runtime:
        assert not runtime.sees_images
        with pytest.raises(InvalidRequestError, match="--mmproj"):
            runtime.text.tokenize(IMAGE_PLACE, images=PICTURES[:1])
        with pytest.raises(InvalidRequestError, match="--mmproj"):
            runtime.check(Request((1, 2), images=PICTURES[:1]))


def test_projectors_that_do_not_fit_are_named(folder: Path) -> None:
    settings = config(folder, "m-rope")
    no_file = folder / "nothing.gguf"
    for path, said in (
        (make_projector("qwen2vl", folder, width=2 * WIDTH), "mismatch between text model"),
        (settings.target.path, "no projector"),
        (make_hearing(folder), "sound"),
        (no_file, "no such file"),
    ):
        with pytest.raises(ModelLoadError, match=said):
            Runtime.open(replace(settings, vision=VisionConfig(path=path)))


def test_an_image_that_cannot_be_encoded_ends_its_request_alone(plain: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = plain("m-rope")
    expected = finish(runtime, [request(runtime, *PROMPTS["none"])])[0].ids

    def fail(self: Projector, image: Image, part: int) -> None:
        raise DecodeError("no room")

    monkeypatch.setattr(Projector, "rows", fail)
    waiter = Waiter()
    runtime.submit(request(runtime, *PROMPTS["before"], cache_prompt=False), waiter)
    assert waiter.over.wait(120)
    assert "no room" in str(waiter.end.error)
    assert finish(runtime, [request(runtime, *PROMPTS["none"])])[0].ids == expected


def test_slots_with_images_are_not_saved(folder: Path, tmp_path: Path) -> None:
    settings = replace(config(folder, "m-rope"), server=ServerConfig(slot_save_path=tmp_path))
    with Runtime.open(settings) as runtime:
        finish(runtime, [request(runtime, *PROMPTS["before"])])
        with pytest.raises(InvalidRequestError, match="images"):
            runtime.slot_action(SlotAction.SAVE, 0, "one").result(60)
        finish(runtime, [request(runtime, *PROMPTS["none"], cache_prompt=False)])
        assert runtime.slot_action(SlotAction.SAVE, 0, "one").result(60).n_ids


def test_images_are_seen_as_before_after_sleep(folder: Path, tmp_path: Path) -> None:
    """What held them is not written to the disk."""
    settings = replace(config(folder, "m-rope", exact=True), cache_disk=tmp_path)
    with Runtime.open(settings) as runtime:
        expected = [finish(runtime, [one])[0].ids for one in every(runtime)]
        runtime.fall_asleep()
        settled(runtime)
        asked = every(runtime)
        assert [finish(runtime, [one])[0].ids for one in asked] == expected
        assert runtime.sleep.n_wakes == 1
    with Runtime.open(settings) as runtime:
        assert [finish(runtime, [one])[0].ids for one in every(runtime)] == expected
