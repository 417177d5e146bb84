"""What an origin of tokens is called and coloured as, at the terminal as on the page (`page/origins.js`)."""

from __future__ import annotations

from typing import Final

TARGET: Final = "target"
GRAMMAR: Final = "grammar"
MODEL: Final = "model"
LOOK_UP: Final = "text"

WORDS: Final = {MODEL: "draft model", LOOK_UP: "look-up", GRAMMAR: "grammar", TARGET: "target"}
COLOURS: Final = {MODEL: 32, LOOK_UP: 172, GRAMMAR: 36}
"""Of a terminal's 256: blue, orange and green, which colour-blind readers can distinguish."""
_PLAIN: Final = "\x1b[0m"


def kind_of(origin: str) -> str:
    """The kind of a name of --spec-type, or of `target`: one of `WORDS`."""
    if origin in (TARGET, GRAMMAR):
        return origin
    return MODEL if origin.startswith("draft-") else LOOK_UP


def painted(text: str, origin: str) -> str:
    """The text as a terminal shows it: drafted text underlined, in its colour."""
    kind = kind_of(origin)
    return _painted(text, kind) if kind in COLOURS else text


def _painted(text: str, kind: str) -> str:
    return f"\x1b[4;38;5;{COLOURS[kind]}m{text}{_PLAIN}"


def legend() -> str:
    """What the colours mean, in one line."""
    drafted = ", ".join(_painted(WORDS[kind], kind) for kind in COLOURS)
    return f"guessed by: {drafted}; plain: {WORDS[TARGET]}"
