"""Which batch shapes compute the same bits on this backend, for this model. Measured, because it differs by weight type
and by kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b

import numpy as np

from uad.base.common.logits import Logits
from uad.base.types import Rows
from uad.llama.context import Context

_FIRST = (1, 2, 4, 8, 16)
_N_IDS = 48
_WRONG_IDS = 3  # ids that are taken back while it is tried whether that changes bits
_BESIDE_SEQUENCES = 4  # sequences that are tried beside each other
_APART_IDS = 7  # ids between where one text of several begins and the next one does
_SAMPLE, _SINGLE = 17, 3  # ids that are decoded at once, and one by one
_N_BESIDE_IDS = 24  # ids of each of several sequences: with BF16 few of them show a difference


def least_agreeing_rows(context: Context, fewest: int = 1) -> tuple[int, bool] | None:
    """The least r for which every pass of r rows or more gives the same bits, as far as tried (r, r + 1, twice r … a
    whole pass; then several sequences), and whether each sequence in a pass must have r rows, not the pass as a whole.

    fewest: the least r that is tried. None where not even the largest passes agree. Takes some 200 passes where all
    agree, and few where single rows show at once that they do not.
    """
    # Kernels change with the number of rows: in BF16 passes of 1 row may have bits of their own, and all of 2 or more
    # the same. Then r = 2: a pass of 2, 3, 5, 17 and as many rows as there are must agree in every row
    most = min(context.n_ubatch, context.n_ctx, _N_IDS)
    ids = [(7919 * i + 13) % context.n_vocab for i in range(most)]
    for least in (n for n in _FIRST if n >= fewest):
        # sizes just above it, its multiples and the largest: kernels cut rows into tiles of 2, 4, 8 or 16
        sizes = sorted({n for n in (least, least + 1, least + 3, 2 * least, 3 * least, 17, most) if least <= n <= most})
        n_wrong = min(_WRONG_IDS, context.n_free)
        shapes = [(n, 0) for n in sizes] + [(n, n_wrong) for n in sizes if n_wrong and n + n_wrong <= most]
        # whole passes only: of 48 rows those of 17 give 34, which are compared
        wanted = np.concatenate(list(_decode_in(context, ids, *shapes[-1])))
        if len(shapes) > 1 and all(_agree(context, ids, n, n_taken, wanted) for n, n_taken in shapes[:-1]):
            of_each = _is_of_each(context, ids, least)
            if of_each is not None:
                return least, of_each
    return None


def digest(context: Context) -> str:
    """Hash of the logits of a few passes without adapters: machines that compute other bits have another."""
    context.add_adapters([0.0] * len(context.model.adapters.scales))
    ids = [(7919 * i + 13) % context.n_vocab for i in range(min(context.n_ubatch, context.n_ctx, _SAMPLE))]
    sample = blake2b(digest_size=8)
    for some, size in ((ids[:_SINGLE], 1), (ids, len(ids))):
        for logits in _decode_in(context, some, size):
            sample.update(logits.tobytes())
    context.add_adapters(context.model.adapters.scales)
    return sample.hexdigest()


def _is_of_each(context: Context, ids: list[int], least: int) -> bool | None:
    """Whether several sequences need `least` rows each, since some operation multiplies each one's rows apart; None:
    they do not agree even so, or another text does not.

    Recurrent layers and absorbed latent attention (MLA) multiply so.
    """
    # each text is the same ids from another place on, backwards: no two sequences have the same row at a position
    texts = [[*ids[at:], *ids[:at]][::-1] for at in range(0, _BESIDE_SEQUENCES * _APART_IDS, _APART_IDS)]
    wanted = [np.concatenate(list(_decode_in(context, text, len(text)))) for text in texts]
    for of_each in (False, True):
        shapes = _shapes(context, least, of_each)
        if all(_agree_beside(context, texts, wanted, n_seq, n) for n_seq, n in shapes):
            return of_each
    return None


def _shapes(context: Context, least: int, of_each: bool) -> list[tuple[int, int]]:
    """Passes to be tried, mostly of several sequences: (sequences, rows of each)."""
    # with least = 8 of a whole pass: 1 sequence of 8 and 9 rows, 2 of 4, 5, 8 and 9, 3 of 3, 4, 8, 9, 4 of 2, 3, 8, 9.
    # With 8 of each sequence all have 8 or 9
    largest = min(context.n_ubatch, context.n_batch)
    shapes = set()
    for n_seq in range(1, _BESIDE_SEQUENCES + 1):
        fewest = least if of_each else -(-least // n_seq)
        for n in (fewest, fewest + 1, least, least + 1):
            together = min(n_seq, context.n_seq, largest // n)
            if together * n >= least and n <= min(context.n_ctx, _N_IDS):
                shapes.add((together, n))
    return sorted(shapes)


def _agree_beside(context: Context, texts: Sequence[list[int]], wanted: Sequence[Logits], n_seq: int, n: int) -> bool:
    """Whether n_seq sequences, with n rows each in a pass, have the logits that each text has alone."""
    for seq in range(n_seq):
        context.clear(seq)
    agree, at, end = True, 0, min(max(_N_BESIDE_IDS, n), len(wanted[0]))
    while agree and at + n <= end:
        context.decode([Rows(seq, at, texts[seq][at : at + n], n) for seq in range(n_seq)])
        rows = context.logits().reshape(n_seq, n, -1)
        agree = all(np.array_equal(rows[seq], wanted[seq][at : at + n]) for seq in range(n_seq))
        at += n
    for seq in range(n_seq):
        context.clear(seq)
    return agree


def _agree(context: Context, ids: list[int], size: int, n_wrong: int, wanted: Logits) -> bool:
    """Whether passes of this shape have these logits. The first that has not ends it: with Q4_K weights a single row
    shows at once what 48 of them would.
    """
    at = 0
    for logits in _decode_in(context, ids, size, n_wrong):
        if not np.array_equal(logits[: max(len(wanted) - at, 0)], wanted[at : at + size]):
            return False
        at += size
        if at >= len(wanted):
            break
    return True


def _decode_in(context: Context, ids: list[int], size: int, n_wrong: int = 0) -> Iterator[Logits]:
    """Logits of whole passes of `size` rows, one after the other; each with as many wrong ones after them, which are
    taken back.
    """
    context.clear(0)
    try:
        for at in range(0, len(ids) - size + 1, size):
            some = [*ids[at : at + size], *ids[:n_wrong]]
            context.decode([Rows(0, at, some, len(some))])
            yield context.logits()[:size].copy()
            if n_wrong:
                context.take_back(0, at + size)
    finally:
        context.clear(0)
