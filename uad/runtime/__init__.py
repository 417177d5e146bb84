"""The only place where parts are joined: models, drafter, loop, templates, and the thread that runs them. Knows no HTTP
and no terminal.
"""

from uad.runtime.runtime import Runtime

__all__ = ["Runtime"]
