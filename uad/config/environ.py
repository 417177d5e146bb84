"""Environment variables as a source of values: llama-server's names, with its words for yes and no."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from uad.config.flag import Given, Layer, read
from uad.config.flags import FLAGS
from uad.config.foreign import REFUSED
from uad.config.kinds import FALSE
from uad.errors import ConfigError

_PREFIX = "LLAMA_ARG_"


def from_environ(environ: Mapping[str, str]) -> Layer:
    """Values from the environment; an empty variable counts as unset, LLAMA_ARG_NO_X says no to a switch.

    Raises ConfigError, also for what is refused on the command line.
    """
    known: set[str] = set()
    given: list[Given] = []
    for flag in FLAGS:
        for name in flag.env.split():
            known.add(name)
            if text := environ.get(name):
                given.append(read(flag, [text], name))
            if flag.off:
                known.add(no := name.replace(_PREFIX, _PREFIX + "NO_"))
                if (text := environ.get(no)) and read(flag, [text], no).value:
                    given.append(read(flag, ["off"], no))
    _refuse(environ, known)
    ignored = [name for name, text in environ.items() if name.startswith(_PREFIX) and text and name not in known]
    return Layer(tuple(given), tuple(sorted(ignored)))


def _refuse(environ: Mapping[str, str], known: Collection[str]) -> None:
    """llama-server names variables after flags; one that says no asks for nothing."""
    for refused in REFUSED:
        for flag in refused.names.split():
            name = _PREFIX + flag.removeprefix("--").replace("-", "_").upper()
            if name not in known and (text := environ.get(name)) and text.lower() not in FALSE:
                raise ConfigError(refused.told(name))
