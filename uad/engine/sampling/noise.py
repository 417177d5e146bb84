"""Gumbel noise that belongs to a position and to the bytes of a token, not to a call.

The same seed gives the same text however it is batched.

Any two vocabularies share the noise of equal bytes at equal offsets, so a draft may use it to guess what the target
will draw (coupling; Daliri, Musco and Suresh, arXiv 2408.07978, for one vocabulary).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt

_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_GOLDEN = 0x9E3779B97F4A7C15
# arrays without dimensions: numpy's scalars are made into these at each call, which costs as much as the call
_STEPS = (
    (np.array(30, np.uint64), np.array(_MIX_1, np.uint64)),
    (np.array(27, np.uint64), np.array(_MIX_2, np.uint64)),
)
_LAST_SHIFT, _TO_53_BITS, _GOLDEN_64 = (np.array(number, np.uint64) for number in (31, 11, _GOLDEN))
_HALF, _OF_53_BITS = np.array(0.5), np.array(2.0**-53)
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Position:
    """Where in the answer an id is drawn: bytes written before it, and ids without bytes since the last one that had
    some.
    """

    offset: int = 0
    n_empty: int = 0

    def after(self, n_bytes: int) -> Position:
        """The position after an id of n_bytes bytes; 0 bytes add to `n_empty`."""
        return Position(self.offset + n_bytes) if n_bytes else Position(self.offset, self.n_empty + 1)


# sampler and drafter ask for those of the same target: an eighth of a second for a large vocabulary
@lru_cache(maxsize=2)
def token_keys(pieces: tuple[bytes, ...]) -> npt.NDArray[np.uint64]:
    """A 64-bit key per id from its bytes. Ids without bytes, and the second id of the same bytes, get keys of their
    own: two candidates with one noise would not be two chances.
    """
    seen: set[bytes] = set()
    keys = np.empty(len(pieces), np.uint64)
    for id_, piece in enumerate(pieces):
        own = piece if piece and piece not in seen else b"\xff\xfe%d\xff" % id_ + piece
        seen.add(piece)
        keys[id_] = int.from_bytes(hashlib.blake2b(own, digest_size=8).digest(), "little")
    return keys


def gumbel(seed: int, position: Position, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Standard Gumbel noise for each key, a pure function of its arguments."""
    return _gumbel_of(_uniform(keys ^ np.uint64(_salt(seed, position))))


def gumbel_each(
    places: Sequence[tuple[int, Position]], keys: Sequence[npt.NDArray[np.uint64]]
) -> list[npt.NDArray[np.float64]]:
    """`gumbel` of each place, a seed and a position, and its keys, in one pass: it is the calls of numpy that cost."""
    counts = [len(some) for some in keys]
    salts = np.array([_salt(seed, position) for seed, position in places], np.uint64)
    noise = _gumbel_of(_uniform(np.concatenate(keys) ^ np.repeat(salts, counts)))
    ends = list(accumulate(counts))
    return [noise[end - n : end] for n, end in zip(counts, ends, strict=True)]


def chance(seed: int, position: Position, name: str) -> float:
    """A number in 0..1 for what a sampler of this name does at a position; independent of the noise of tokens."""
    key = hashlib.blake2b(name.encode(), digest_size=8, person=b"sampler").digest()
    keys = np.array([int.from_bytes(key, "little")], np.uint64)
    return float(_uniform(keys ^ np.uint64(_salt(seed, position)))[0])


def _salt(seed: int, position: Position) -> int:
    """A number that tells the noise of this place from that of others."""
    return _mix_int(_mix_int(_mixed(seed) ^ (position.offset & _MASK)) + position.n_empty)


def _gumbel_of(u: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """-log(-log(u)), in place."""
    for _ in range(2):
        np.log(u, u)
        np.negative(u, u)
    return u


def _uniform(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Numbers in 0..1 of salted keys, which are written over."""
    shifted = np.empty_like(x)
    _mix(x, shifted)
    np.add(x, _GOLDEN_64, x)
    _mix(x, shifted)
    np.right_shift(x, _TO_53_BITS, x)
    u = x.astype(np.float64)
    np.add(u, _HALF, u)
    np.multiply(u, _OF_53_BITS, u)
    return u


def _mix(x: npt.NDArray[np.uint64], shifted: npt.NDArray[np.uint64]) -> None:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014), in place; `shifted` is room for as many numbers."""
    for by, factor in _STEPS:
        np.right_shift(x, by, shifted)
        np.bitwise_xor(x, shifted, x)
        np.multiply(x, factor, x)
    np.right_shift(x, _LAST_SHIFT, shifted)
    np.bitwise_xor(x, shifted, x)


@lru_cache(maxsize=256)
def _mixed(seed: int) -> int:
    return _mix_int(seed & _MASK)


def _mix_int(x: int) -> int:
    x = (x + _GOLDEN) & _MASK
    x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
    return x ^ (x >> 31)
