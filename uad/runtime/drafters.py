"""Builds the drafters that need no model from their configuration. Knows neither their options nor how they work."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypeAlias

from uad.config import DraftingConfig, LookupConfig
from uad.config.drafter_types import LOOKUP_TYPES, Surroundings
from uad.decode.guard import reason
from uad.drafters.lookup import LookupDrafter
from uad.drafters.store import fingerprint
from uad.types import WRITERS, Origin
from uad.vocab.table import VocabTable

_log = logging.getLogger("uad")
Lookup: TypeAlias = LookupDrafter


def build(config: DraftingConfig, vocab: VocabTable, n_slots: int) -> tuple[Lookup, ...]:
    """The drafters of `config.types` in that order, without those that have a model or a head. Files that cannot be
    used are logged and left alone.

    Close each of them when no sequence runs any more: that writes their files.
    """
    vocabulary = fingerprint(vocab) if config.lookup.files() else ""
    built = [_built(Origin(name), config.lookup, vocabulary, n_slots) for name in config.types if name not in WRITERS]
    return tuple(one for one in built if one is not None)


def _built(origin: Origin, config: LookupConfig, vocabulary: str, n_slots: int) -> Lookup | None:
    """The drafter; None, and a line in the log, where it fails at start: nobody needs it."""
    try:
        return build_one(origin, config, vocabulary, n_slots)
    except Exception as error:
        _log.warning("%s failed at start (%s); the server goes on without it", origin, reason(error))
        return None


def build_one(origin: Origin, config: LookupConfig, vocabulary: str, n_slots: int) -> Lookup:
    """One drafter by its name; `vocabulary` is the fingerprint that its files must have. Raises ValueError for one that
    needs a model.
    """
    for one in LOOKUP_TYPES:
        if one.origin == origin:
            drafter: Lookup = one.build(getattr(config, one.section), Surroundings(vocabulary, config.share, n_slots))
            return drafter
    raise ValueError(f"{origin} is not a drafter without a model")


def notes(drafters: Sequence[Lookup], config: LookupConfig) -> tuple[str, ...]:
    """The line that is printed at start."""
    if not drafters:
        return ()
    names = ", ".join(drafter.origin for drafter in drafters)
    shared = {
        "off": "each request by itself",
        "slot": "with earlier texts of its slot",
        "server": "with earlier texts of all requests",
    }
    return (f"drafting from text: {names} ({shared[config.share]})",)
