"""How threads of llama.cpp wait for each other at the end of each operation. Imports nothing of llama.cpp.

Between two operations OpenMP's threads wait at a barrier: they spin, and sleep only after GOMP_SPINCOUNT turns. GNU's
own value is 300,000, some 6 to 15 ms. Beside another program on the same cores a thread then spins through the slice of
time that the one it waits for would need, at hundreds of barriers a token.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

SPINS = "10000"
"""Some tenths of a millisecond: longer than threads of one program wait where nobody else is on their cores."""
_CHOSEN = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def spin_briefly(environ: MutableMapping[str, str] = os.environ) -> None:
    """Have threads that wait sleep soon, unless the environment says how long they spin. OpenMP reads that when it is
    loaded: to be called before llama.cpp is.
    """
    if not any(name in environ for name in _CHOSEN):
        environ["GOMP_SPINCOUNT"] = SPINS
