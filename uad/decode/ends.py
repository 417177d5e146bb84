"""What ends an answer by the id that was drawn: the vocabulary's own ends, and the ids that a request names. Knows no
text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uad.types import Request
from uad.vocab.table import VocabTable


@dataclass(frozen=True, slots=True)
class Ends:
    """ids: each of them ends the answer. never: not to be drawn. late: not to be drawn among the first `min_tokens`
    ids.
    """

    ids: frozenset[int]
    never: frozenset[int]
    late: frozenset[int]


def ends_of(request: Request, vocab: VocabTable) -> Ends:
    """`ignore_eos` bans the vocabulary's ends, as llama-server does, except those at which the request itself wants to
    stop.

    An end that only a stop string names may then be drawn, and ends the answer where the whole string was written.
    """
    asked = frozenset(request.stop_token_ids)
    known = vocab.eog | asked
    never: frozenset[int] = frozenset()
    if request.sampling.ignore_eos:
        named = {id_ for id_ in vocab.eog if _is_named(name_of(id_, vocab), request.stop)}
        never = vocab.eog - asked - named
    return Ends(
        ids=asked if request.sampling.ignore_eos else known,
        never=never,
        late=known - never if request.min_tokens > 0 else frozenset(),
    )


def name_of(id_: int, vocab: VocabTable) -> str:
    """How this id is written for people: its text, or a control token's name; empty where it has neither."""
    return vocab.pieces[id_].decode("utf-8", "replace") or vocab.special_names.get(id_, "")


def _is_named(name: str, stop: Sequence[str]) -> bool:
    return bool(name) and any(name in word for word in stop)
