"""Compressed bodies: what comes out is what went in, in steps that are bounded whatever comes in."""

import gzip
import os
import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uad.base.errors import InvalidRequestError
from uad.http.edge.bodies import MAX_MEMBERS, STEP_IN_BYTES, STEP_OUT_BYTES, Inflater, encoding_of

EXAMPLES = int(os.environ.get("UAD_EXAMPLES", "60"))
MIB = 1 << 20


def raw_deflate(data):
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


PACKED = {"gzip": gzip.compress, "deflate": zlib.compress, "deflate without its header": raw_deflate}


def inflated(encoding, pieces):
    inflater = Inflater(encoding)
    steps = [made for piece in pieces for made in inflater.steps(piece)]
    inflater.end()
    return steps


def cut(data, places):
    at = sorted(place % (len(data) + 1) for place in places)
    return [data[low:high] for low, high in zip([0, *at], [*at, len(data)], strict=True)]


@settings(max_examples=EXAMPLES)
@given(
    kind=st.sampled_from([*PACKED]),
    unit=st.binary(min_size=1, max_size=200),
    n=st.integers(0, 20_000),
    places=st.lists(st.integers(0, 10**6), max_size=5),
    parts=st.integers(1, 3),
)
def test_what_comes_out_is_what_went_in_however_it_arrives(kind, unit, n, places, parts):
    if kind != "gzip":
        parts = 1
    whole = (unit * n)[:300_000]
    data = b"".join(PACKED[kind](whole) for _ in range(parts))
    steps = inflated(kind.split()[0], cut(data, places))
    assert b"".join(steps) == whole * parts
    assert max(map(len, steps)) <= STEP_OUT_BYTES


@settings(max_examples=EXAMPLES)
@given(
    kind=st.sampled_from([*PACKED]),
    seed=st.integers(0, 10**6),
    damage=st.sampled_from(["cut", "more", "flip"]),
)
def test_damaged_bodies_are_the_senders_fault_or_are_read(kind, seed, damage):
    draw = random.Random(seed)
    whole = draw.randbytes(draw.randrange(1, 3000)) * draw.randrange(1, 40)
    data = bytearray(PACKED[kind](whole))
    at = draw.randrange(1, len(data))
    if damage == "cut":
        del data[at:]
    elif damage == "more":
        data += b"\x00more"
    else:
        data[at] ^= 1 << draw.randrange(8)
    try:
        out = inflated(kind.split()[0], [bytes(data)])
    except InvalidRequestError:
        return
    assert damage == "flip"  # a header's time stamp, or raw deflate, which has no checksum
    assert kind != "deflate" or b"".join(out) == whole


@pytest.mark.parametrize("kind", [*PACKED])
def test_a_bomb_is_inflated_in_steps_of_bounded_size(kind):
    data = PACKED[kind](b" " * (64 * MIB))
    steps = Inflater(kind.split()[0]).steps(data)
    assert len(data) < MIB
    assert [len(next(steps)) for _ in range(16)] == [
        STEP_OUT_BYTES
    ] * 16  # a mebibyte is made of each 16 steps, no more


def test_input_that_makes_nothing_takes_bounded_steps_too():
    stored = zlib.compressobj(0, wbits=31)
    data = stored.compress(b"") + b"".join(stored.flush(zlib.Z_FULL_FLUSH) for _ in range(100_000)) + stored.flush()
    n = sum(1 for _ in Inflater("gzip").steps(data))
    assert n == -(-len(data) // STEP_IN_BYTES)


def test_a_thousand_empty_parts_are_enough():
    empty = gzip.compress(b"")
    assert b"".join(inflated("gzip", [empty * MAX_MEMBERS])) == b""
    with pytest.raises(InvalidRequestError, match="not gzip"):
        inflated("gzip", [empty * (MAX_MEMBERS + 1)])


def test_a_body_of_no_bytes_is_empty_however_it_is_called():
    assert inflated("gzip", [b""]) == inflated("deflate", []) == []


@pytest.mark.parametrize(
    ("header", "encoding"),
    [
        ("", ""),
        ("identity", ""),
        ("GZIP", "gzip"),
        ("x-gzip", "gzip"),
        ("deflate, identity", "deflate"),
        ("br", None),
        ("zstd", None),
        ("gzip, gzip", None),
        ("gzip, deflate", None),
        ("gzip;q=1", None),
    ],
)
def test_encodings_by_their_names(header, encoding):
    assert encoding_of(header) == encoding
