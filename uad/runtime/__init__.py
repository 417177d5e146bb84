"""The only place where parts are wired: models, drafter, loop, templates, and the thread that runs them. Knows no HTTP and no terminal."""

from uad.runtime.bare import bare_decode_tps
from uad.runtime.inspect import PairReport, inspect_pair
from uad.runtime.runtime import Runtime

__all__ = ["PairReport", "Runtime", "bare_decode_tps", "inspect_pair"]
