"""How far to draft. Arithmetic only: no model, no clock, no input or output.

Compiled (`uad.compiled`), a round's decisions cost some 15 µs.
"""

from pathlib import Path

from uad.compiled import check

check(Path(__file__).parent)
