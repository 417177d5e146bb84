"""Ids of a text that must be decoded again: where they are many, that is done before the passes of a round are laid
out.

`Target.prepare` would decode them, too, but after the layout: without their rows passes could be smaller than `exact`
allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uad.decode.layout import Least
from uad.decode.sequence import Running
from uad.decode.target import Target
from uad.types import READ_AGAIN, Rows

Fail = Callable[[Sequence[Running], Exception], None]


def catch_up(target: Target, writing: Sequence[Running], least: Least, fail: Fail) -> None:
    """Decode them for good, except the last one and what would make a pass too small. Failures go to `fail`."""
    for running in writing if least.rows > 1 else ():
        waiting = running.pending()
        n = n_at_once(len(waiting) - 1, target.n_ubatch, least.rows)
        if n <= READ_AGAIN:
            continue
        try:
            target.decode([Rows(running.slot, running.n_past, waiting[:n], 0)])
        except Exception as error:
            fail([running], error)
        else:
            running.n_past += n


def n_at_once(n: int, n_ubatch: int, least: int) -> int:
    """Of n ids those that passes of n_ubatch rows take without one that is too small."""
    rest = n % n_ubatch
    return n - rest if rest < least < n else n
