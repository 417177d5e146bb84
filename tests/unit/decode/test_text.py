"""Streamed text: the same however the bytes are split, whole characters only, nothing of a stop string."""

from __future__ import annotations

import itertools

from hypothesis import example, given
from hypothesis import strategies as st

from uad.engine.decode.text import TextStream

texts = st.text(alphabet="ab</s>é😀\n", max_size=30)


def stream(pieces: list[bytes], stop: tuple[str, ...]) -> tuple[list[str], str | None]:
    out = TextStream(stop)
    parts = [out.feed(piece) for piece in pieces]
    return [*parts, out.finish()], out.stopped


@given(
    texts,
    st.lists(st.integers(0, 60), max_size=8),
    st.lists(st.text(alphabet="ab</s>é😀", min_size=1, max_size=4), max_size=3),
)
@example("xx</s>yy", [3, 4, 5], ["</s>"])
@example("<><", [], [">", "<><"])
def test_every_split_gives_the_same(text: str, cuts: list[int], stop: list[str]) -> None:
    data = text.encode()
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    parts, _ = stream(pieces, tuple(stop))
    single, _ = stream([bytes([byte]) for byte in data], tuple(stop))
    _, first = min(
        ((text.find(word) + len(word), text.find(word)) for word in stop if word in text), default=(0, len(text))
    )
    assert "".join(single) == "".join(parts) == text[:first]
    assert all("\ufffd" not in part for part in parts)
    if not stop:
        assert "".join(parts) == text


def test_a_stop_string_is_found_at_its_first_place_even_inside_one_piece() -> None:
    parts, stopped = stream([b"one two three"], ("three", "two"))
    assert ("".join(parts), stopped) == ("one ", "two")


def test_a_look_alike_is_released_and_half_a_character_becomes_a_replacement() -> None:
    out = TextStream(("</s>",))
    assert [out.feed(b"a</"), out.feed(b"b"), out.feed("é".encode()[:1]), out.finish()] == ["a", "</b", "", "\ufffd"]


def test_invalid_bytes_come_out_as_replacement_characters() -> None:
    assert "".join(stream([b"a\xffb\xe2\x82"], ())[0]) == "a\ufffdb\ufffd"
