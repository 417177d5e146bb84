"""How threads of llama.cpp wait for each other at the end of each operation. Imports nothing of llama.cpp.

Between two operations OpenMP's threads wait at a barrier: they spin, and sleep only after GOMP_SPINCOUNT turns. GNU's
own value is 300,000, some 7 to 15 ms. Beside another program on the same cores a thread then spins through the slice of
time that the one it waits for would need, at hundreds of barriers a token.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

SPINS = "1000"
"""Some 25 to 50 µs. Two small models, each with two threads on two cores that others used as well, wrote 150 tokens/s
each. With 10,000 turns it was 6, with GNU's own value 2 to 6, without any spinning 190.
"""
_CHOSEN = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


@contextmanager
def spinning_briefly(environ: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """llama.cpp that is loaded inside has threads that sleep soon, unless the environment says how long they spin.
    OpenMP reads that once, while it is loaded; programs that are started later do not inherit it.
    """
    if any(name in environ for name in _CHOSEN):
        yield
        return
    environ["GOMP_SPINCOUNT"] = SPINS
    try:
        yield
    finally:
        del environ["GOMP_SPINCOUNT"]
