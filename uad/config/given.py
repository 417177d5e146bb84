"""Values as they were given, with the place they came from, so that every complaint can name it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uad.common.files import check_text
from uad.config.flag import Flag
from uad.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Given:
    """One value of one flag. `where` is how the user wrote it: "--port", "LLAMA_ARG_PORT" or "uad.yaml:3: port"."""

    flag: Flag
    value: object
    where: str


@dataclass(frozen=True, slots=True)
class Layer:
    """Everything from one source, in the order given; `ignored` are names that were accepted without effect."""

    given: tuple[Given, ...] = ()
    ignored: tuple[str, ...] = ()


def read(flag: Flag, texts: Sequence[str], where: str, negated: bool = False) -> Given:
    """The checked value of a flag. Raises ConfigError naming the place and what was expected."""
    if not flag.kind.is_path:
        for text in texts:
            check_text(text, where)
    try:
        value = flag.kind.parse(*texts)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    except (ValueError, OverflowError, TypeError, RecursionError) as error:
        shown = " ".join(repr(text if len(text) <= 60 else text[:60] + "…") for text in texts)
        raise ConfigError(f"{where}: expected {flag.kind.expects}, got {shown}") from error
    return Given(flag, not value if negated else value, where)
