"""Where guesses come from. Every drafter speaks the protocol in `protocol.py`; none sees the target's
context, a request, or another drafter.

Compiled (`uad.compiled`), looking a draft up costs some 20 µs.
"""

from pathlib import Path

from uad.compiled import check

check(Path(__file__).parent)
