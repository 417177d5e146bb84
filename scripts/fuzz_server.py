"""`uad` with drafters that fail at random, for `scripts/fuzz.py`: takes uad's own arguments. Nothing of this is in uad
itself.

UAD_FUZZ_FAIL is "SEED:PROBABILITY:WHERE": every call of a drafter (WHERE "drafters"), or every decode of the draft
model (WHERE "context"), raises with this probability. Nothing fails in the first seconds, so that the server starts.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from uad.base.errors import DecodeError, NoKvRoomError
from uad.engine.decode.drafting import Drafting
from uad.llama.context import Context

QUIET_S = 4.0
CALLS = ("begin", "propose", "observe", "end")
ERRORS: tuple[Callable[[], Exception], ...] = (
    lambda: RuntimeError("injected"),
    lambda: KeyError("injected"),
    lambda: AssertionError("injected"),
    lambda: DecodeError("draft: injected"),
    lambda: NoKvRoomError("draft: injected"),
    lambda: MemoryError("injected"),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "injected"),
)


class Chance:
    """Raises now and then."""

    def __init__(self, seed: str, probability: float) -> None:
        self._draw = random.Random(seed)
        self._probability = probability
        self._began = time.monotonic()

    def take(self) -> None:
        if time.monotonic() > self._began + QUIET_S and self._draw.random() < self._probability:
            raise self._draw.choice(ERRORS)()


class Failing:
    """A drafter whose calls may raise, before they do anything."""

    def __init__(self, drafter: Any, chance: Chance) -> None:
        self._drafter = drafter
        self._chance = chance

    def __getattr__(self, name: str) -> Any:
        whole = getattr(self._drafter, name)
        if name not in CALLS:
            return whole

        def call(*args: Any, **kwargs: Any) -> Any:
            self._chance.take()
            return whole(*args, **kwargs)

        return call


def fail_drafters(chance: Chance) -> None:
    """All drafters of all Drafting objects to come."""
    real: Any = Drafting.__init__

    def init(self: Drafting, drafters: Sequence[Any], *args: Any, **kwargs: Any) -> None:
        real(self, [Failing(one, chance) for one in drafters], *args, **kwargs)

    Drafting.__init__ = init  # type: ignore[method-assign]


def fail_context(chance: Chance) -> None:
    """Every decode of the draft model."""
    real: Any = Context.decode

    def decode(self: Any, rows: Any, may_stop: bool = False) -> None:
        if self._role == "draft":
            chance.take()
        real(self, rows, may_stop)

    Context.decode = decode  # type: ignore[method-assign]


def main() -> int:
    asked = os.environ.get("UAD_FUZZ_FAIL", "")
    if asked:
        seed, probability, where = asked.split(":")
        chance = Chance(seed, float(probability))
        (fail_drafters if where == "drafters" else fail_context)(chance)
    from uad.tools.cli import main as uad

    return uad(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
