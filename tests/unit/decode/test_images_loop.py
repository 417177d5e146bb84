"""Images in the loop, without a model: passes between texts, counts of cells, and what is taken back."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from kit.toys import SCRIPT, TARGET_VOCAB, Collector, ScriptedModel, make_engine, run

from uad.base.errors import ContextOverflowError, DecodeError
from uad.base.types import GREEDY, Image, PlacedImage, Request
from uad.base.types.images import n_more_cells, placeholders, whole_images
from uad.engine.decode.engine import before_image
from uad.engine.decode.layout import Least

PICTURE = Image.of(1, 1, b"rgb")
TEXT = tuple(TARGET_VOCAB.tokenize(SCRIPT[:60]))
N_POSITIONS, N_ROWS = 3, 9


def seeing(**fields: int) -> ScriptedModel:
    return ScriptedModel(TARGET_VOCAB, length=400, **fields)


def request(n_before: int, n_after: int, **fields) -> Request:
    """Text, an image, as much text, and one more image that follows it at once, and text."""
    starts = n_before, n_before + N_POSITIONS
    placed = tuple(PlacedImage(PICTURE, i, at, at + N_POSITIONS, N_ROWS) for i, at in enumerate(starts))
    ids = [id_ for i in range(2) for id_ in placeholders(PICTURE.digest, i, N_POSITIONS)]
    told = (*TEXT[:n_before], *TEXT[:n_after])
    prompt = (*TEXT[:n_before], *ids, *TEXT[:n_after])
    return Request(prompt, GREEDY, max_tokens=8, drafted_prompt=told, placed=placed, images=(PICTURE,), **fields)


def test_images_are_read_in_passes_between_texts() -> None:
    model = seeing()
    result = run(make_engine(model), [request(5, 4)])[0]
    assert model.seen == [(5, 4), (5, 8), (5, 9), (8, 4), (8, 8), (8, 9)]
    assert len(result.ids) == 8
    n_tokens = 5 + 4 + 2 * N_ROWS
    assert (result.done.usage.n_prompt, result.done.timings.n_prompt) == (n_tokens, n_tokens)


def lent(n: int) -> Image:
    """A picture that n requests read."""
    image = Image.of(1, 1, b"rgb")
    for _ in range(n):
        image.pixels.lend()
    return image


def with_image(asked: Request, image: Image) -> Request:
    placed = tuple(replace(one, image=image) for one in asked.placed)
    return replace(asked, placed=placed, images=(image,))


def test_pixels_are_freed_once_all_have_read_them() -> None:
    engine, image = make_engine(seeing()), lent(2)
    for n_bytes in (3, 0):
        assert image.pixels.n_bytes == 3
        run(engine, [with_image(request(5, 4), image)])
        assert image.pixels.n_bytes == n_bytes
    with pytest.raises(DecodeError, match="freed"):
        assert image.rgb


def test_pixels_are_freed_before_the_answer_is_written() -> None:
    engine, image = make_engine(seeing()), lent(1)
    answer = Collector()
    engine.submit(1, with_image(request(5, 4), image), answer)
    while image.pixels.n_bytes:
        assert not answer.ids
        engine.step()
    assert len(answer.ids) < 8


def test_pixels_that_nobody_lent_stay() -> None:
    run(make_engine(seeing()), [request(5, 4)])
    assert PICTURE.rgb == b"rgb"


def test_an_image_is_not_read_again_by_the_next_turn() -> None:
    model = seeing()
    engine = make_engine(model)
    run(engine, [request(5, 4)])
    n_seen = len(model.seen)
    result = run(engine, [request(5, 9)])[0]
    assert len(model.seen) == n_seen
    assert result.done.usage.n_cached >= 5 + 2 * N_ROWS


@pytest.mark.parametrize("n_after", [1, 2])
def test_a_prefix_never_ends_inside_an_image(n_after: int) -> None:
    model = seeing()
    engine = make_engine(model)
    expected = run(engine, [request(5, n_after)])[0].ids
    assert run(engine, [request(5, n_after)])[0].ids == expected


def test_a_request_that_is_cancelled_inside_an_image_leaves_nothing_of_it() -> None:
    model = seeing()
    engine = make_engine(model)
    engine.submit(1, request(5, 4), Collector())
    for _ in range(100):
        engine.step()
        if model.seen and model.seen[-1] == (5, 4):
            break
    assert len(model.kv[0]) == 6
    engine.cancel(1)
    assert model.kv[0] == list(TEXT[:5])
    assert engine.texts.held(0) == list(TEXT[:5])
    assert len(run(engine, [request(5, 4)])[0].ids) == 8


def test_cells_of_images_count_in_the_context() -> None:
    engine = make_engine(seeing(n_ctx=27 + 3))
    engine.requests.check(request(5, 4))
    assert run(engine, [request(5, 4)])[0].done.truncated
    with pytest.raises(ContextOverflowError):
        make_engine(seeing(n_ctx=27)).requests.check(request(5, 4))


@pytest.mark.parametrize("n_free", [0, 1 << 30])
def test_short_texts_before_images_are_read_where_passes_have_a_least_size(n_free: int) -> None:
    model = seeing()
    model.n_free = n_free
    assert len(run(make_engine(model, least=Least(4)), [request(2, 6)])[0].ids) == 8


@pytest.mark.parametrize(
    ("n", "n_until", "expected"), [(5, 9, 5), (9, 5, 5), (8, 9, 7), (9, 9, 9), (1, 2, 1), (2, 3, 2), (3, 4, 2)]
)
def test_no_row_before_an_image_is_left_by_itself(n: int, n_until: int, expected: int) -> None:
    assert before_image(n, n_until) == expected


def test_placeholders_are_of_one_image_and_one_place() -> None:
    a, b, c = placeholders("aa", 0, 50), placeholders("aa", 1, 50), placeholders("bb", 0, 50)
    assert len({*a, *b, *c}) == 150
    assert max(*a, *b, *c) < 0
    assert a == placeholders("aa", 0, 50)
    assert all(y == x - 1 for x, y in pairwise(a))


def test_prefixes_are_cut_before_an_image_and_cells_counted_after_it() -> None:
    placed = request(5, 4).placed
    assert [whole_images(placed, n) for n in (4, 5, 6, 8, 9, 11, 12)] == [4, 5, 5, 8, 8, 11, 12]
    assert [n_more_cells(placed, n) for n in (5, 7, 8, 11, 40)] == [0, 0, 6, 12, 12]
