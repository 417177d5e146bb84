"""Environment variables as a source of values: llama-server's names, with its words for yes and no."""

from __future__ import annotations

from collections.abc import Mapping

from uad.config.flags import FLAGS
from uad.config.given import Given, Layer, read
from uad.config.kinds import FALSE

_PREFIX = "LLAMA_ARG_"


def from_environ(environ: Mapping[str, str]) -> Layer:
    """Values from the environment; an empty variable counts as unset, LLAMA_ARG_NO_X says no to a switch. Raises ConfigError."""
    known: set[str] = set()
    given: list[Given] = []
    for flag in FLAGS:
        for name in flag.env.split():
            known.add(name)
            if text := environ.get(name):
                given.append(read(flag, [text], name))
            if flag.off:
                known.add(no := name.replace(_PREFIX, _PREFIX + "NO_"))
                if (text := environ.get(no)) and text.lower() not in FALSE:
                    given.append(read(flag, ["off"], no))
    ignored = [name for name, text in environ.items() if name.startswith(_PREFIX) and text and name not in known]
    return Layer(tuple(given), tuple(sorted(ignored)))
