"""What an origin of tokens is called and coloured as, at the terminal as on the page (uad/server/page/origins.js)."""

from __future__ import annotations

from typing import Final

TARGET: Final = "target"
GRAMMAR: Final = "grammar"
MODEL: Final = "model"
LOOK_UP: Final = "text"

WORDS: Final = {MODEL: "draft model", LOOK_UP: "look-up", GRAMMAR: "grammar", TARGET: "target"}
ANSI: Final = {MODEL: "\x1b[4;38;5;32m", LOOK_UP: "\x1b[4:5;38;5;172m", GRAMMAR: "\x1b[4:4;38;5;36m", TARGET: ""}
"""Blue, orange and green, which colour-blind readers tell apart, underlined as on the page."""
PLAIN: Final = "\x1b[0m"


def kind_of(origin: str) -> str:
    """The kind of a name of --spec-type, or of `target`: one of `WORDS`."""
    if origin in (TARGET, GRAMMAR):
        return origin
    return MODEL if origin.startswith("draft-") else LOOK_UP


def painted(text: str, origin: str) -> str:
    """The text as a terminal shows it."""
    return f"{start}{text}{PLAIN}" if (start := ANSI[kind_of(origin)]) else text


def legend() -> str:
    """What the colours mean, in one line."""
    drafted = ", ".join(f"{ANSI[kind]}{WORDS[kind]}{PLAIN}" for kind in (MODEL, LOOK_UP, GRAMMAR))
    return f"guessed by: {drafted}; plain: {WORDS[TARGET]}"
