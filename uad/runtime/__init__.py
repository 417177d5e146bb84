"""The only place where parts are wired: models, drafter, loop, templates, and the thread that runs them. Knows no HTTP
and no terminal.
"""

from uad.commands.inspect import PairReport, inspect_pair
from uad.runtime.runtime import Runtime
from uad.runtime.stepper import Stepper

__all__ = ["PairReport", "Runtime", "Stepper", "inspect_pair"]
