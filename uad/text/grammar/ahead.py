"""The text that a grammar forces after a choice of white space: a guess that reaches from one member's value to the
next one's.

JSON has a blank or none after a comma or a colon (`source.JSON_STYLE`), so what is forced ends there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import llguidance

from uad.text.grammar.vocabulary import GrammarVocabulary

_SEPARATORS = (b",", b":")
_BLANK = b" "
_CHANCE = 0.9  # that a blank follows a separator; what is learned of such guesses corrects it
_MOST = 4  # blanks of one guess


class GuessedId(NamedTuple):
    """An id that may follow. at: where in its text a guessed blank stands; None where all of it is forced."""

    id: int
    text: bytes
    at: int | None


def ahead(native: llguidance.LLMatcher, vocabulary: GrammarVocabulary, last: bytes) -> list[GuessedId]:
    """The ids that follow if a blank stands after each separator; none where no choice of a blank leads to something
    forced. last: what stands before.

    The last id is left out: it could be a longer one.
    """
    # After `{"a": true` a schema forces `,`, then a blank or none, then `"b":`, then a blank or none, then a value. The
    # forced text (`text`) is "," alone, as the blank is a choice. So a copy of the matcher is fed "," and " ", and
    # asked what is forced now: `"b":`. That ends in a separator too, so it is fed this and a blank: nothing is forced,
    # as the value is free. The guess is `, "b":` with one guessed blank, at 1; the blank after the colon leads nowhere
    # and is not guessed.
    blank = vocabulary.table.by_bytes.get(_BLANK)
    text = bytes(native.compute_ff_bytes())
    if blank is None or not (last + text).endswith(_SEPARATORS):
        return []
    probe, places = native.deep_copy(), list[int]()
    more = text
    while len(places) < _MOST and (last + text).endswith(_SEPARATORS):
        ids = vocabulary.encode(more)
        if ids and not probe.consume_tokens(ids):
            break
        if int(probe.validate_tokens([blank])) < 1 or not probe.consume_token(blank):
            break
        more = bytes(probe.compute_ff_bytes())
        if not more:
            break
        places.append(len(text))
        text += _BLANK + more
    return _placed(vocabulary, text, places) if places else []


def _placed(vocabulary: GrammarVocabulary, text: bytes, places: Sequence[int]) -> list[GuessedId]:
    """The ids of a text but the last. places: where the guessed blanks stand in it."""
    guesses, start = list[GuessedId](), 0
    for id_ in vocabulary.encode(text)[:-1]:
        piece = vocabulary.table.pieces[id_]
        at = next((place - start for place in places if start <= place < start + len(piece)), None)
        guesses.append(GuessedId(id_, piece, at))
        start += len(piece)
    return guesses


class Blanks:
    """Whether an answer has blanks after its separators, as far as it is known: until it has none, it has."""

    def __init__(self) -> None:
        self._are_taken = True
        self._guesses: list[GuessedId] = []

    def chosen(self, guesses: list[GuessedId], forced: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
        """Ids with beliefs: the guesses, or the forced ids if there are no guesses, or if blanks are not taken."""
        self._guesses = guesses[::-1]
        if not guesses or not self._are_taken:
            return forced
        return [(guess.id, 1.0 if guess.at is None else _CHANCE) for guess in guesses]

    def accept(self, id_: int, text: bytes) -> None:
        """The answer goes on with this id."""
        # Guessed was `, "` with its blank at 1. The id `,"` begins alike up to 1 and has no blank there: this answer
        # takes none, and what is forced is drafted from now on. The id `,` alone says nothing of blanks.
        if not self._guesses:
            return
        guess = self._guesses.pop()
        at = guess.at
        if at is not None and text[:at] == guess.text[:at] and len(text) > at:
            self._are_taken = text[at : at + 1] == _BLANK
        if id_ != guess.id:
            self._guesses = []
