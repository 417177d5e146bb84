"""The noise of a draw belongs to a place of the answer: bytes before it, and ids without bytes since."""

from __future__ import annotations

import numpy as np
import pytest

from uad.engine.sampling.noise import Position, gumbel, gumbel_each, token_keys

KEYS = token_keys((b"a", b"b", b"ab", b"", b"a", b""))


def test_a_place_is_bytes_and_ids_without_bytes_since_the_last_that_had_some() -> None:
    here = Position(4)
    assert here.after(3) == Position(7)
    assert here.after(0).after(0) == Position(4, 2)
    assert here.after(0).after(0).after(3) == Position(7)


@pytest.mark.parametrize(
    ("seed", "place"),
    [(2, Position(4)), (1, Position(5)), (1, Position(4, 1)), (1, Position(4, 2)), (1, Position(5, 1))],
)
def test_each_seed_and_place_has_noise_of_its_own(seed: int, place: Position) -> None:
    assert not np.isclose(gumbel(seed, place, KEYS), gumbel(1, Position(4), KEYS)).any()


def test_noise_is_that_of_the_bytes_whatever_the_id_and_no_two_ids_share_it() -> None:
    noise = gumbel(1, Position(4), KEYS)
    other = gumbel(1, Position(4), token_keys((b"ab", b"x", b"a")))
    assert (noise[0], noise[2]) == (other[2], other[0])
    assert len(set(noise.tolist())) == len(KEYS), "ids of the same bytes, and those without any, have keys of their own"


def test_noise_of_several_places_at_once_has_the_bits_of_each_alone() -> None:
    places = [(1, Position(4)), (9, Position(0, 3)), (2**40, Position(10**6))]
    keys = [KEYS, KEYS[:1], KEYS[2:5]]
    for together, place, some in zip(gumbel_each(places, keys), places, keys, strict=True):
        assert np.array_equal(together, gumbel(*place, some))
