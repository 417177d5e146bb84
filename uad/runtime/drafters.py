"""Builds the drafters that need no model from their configuration. Knows neither their options nor how they work."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from uad.config import DraftingConfig, LookupConfig
from uad.config.drafter_types import LOOKUP_TYPES
from uad.decode.guard import reason, warn
from uad.lookup.build import build_one as build_one
from uad.lookup.drafter import LookupDrafter
from uad.lookup.store import fingerprint
from uad.types import WRITERS, Origin
from uad.vocab.encode import Encoder
from uad.vocab.table import VocabTable

_log = logging.getLogger("uad")
_BY_REQUEST = [one.origin for one in LOOKUP_TYPES if one.by_request]


def build(
    config: DraftingConfig, vocab: VocabTable, n_slots: int, encoder: Encoder | None = None
) -> tuple[LookupDrafter, ...]:
    """The drafters of `config.types` in that order, without those that have a model or a head; with an encoder of the
    target, after those that draft from what requests bring. Files that cannot be used are logged and left alone.

    Close each of them when no sequence runs any more: that writes their files.
    """
    vocabulary = fingerprint(vocab) if config.lookup.files() else ""
    named = [Origin(name) for name in config.types if name not in WRITERS and name not in _BY_REQUEST]
    origins = [*(_BY_REQUEST if encoder is not None else ()), *named]
    built = [_built(origin, config.lookup, vocabulary, n_slots, encoder) for origin in origins]
    return tuple(one for one in built if one is not None)


def _built(
    origin: Origin, config: LookupConfig, vocabulary: str, n_slots: int, encoder: Encoder | None
) -> LookupDrafter | None:
    """The drafter; None, and a line in the log, where it fails at start: no answer needs it."""
    try:
        return build_one(origin, config, vocabulary, n_slots, encoder)
    except Exception as error:
        warn(_log, error, "%s failed at start (%s); the server goes on without it", origin, reason(error))
        return None


def notes(drafters: Sequence[LookupDrafter], config: LookupConfig) -> tuple[str, ...]:
    """The line that is printed at start."""
    names = ", ".join(drafter.origin for drafter in drafters if drafter.origin not in _BY_REQUEST)
    if not names:
        return ()
    shared = {
        "off": "each request by itself",
        "slot": "with earlier texts of its slot",
        "server": "with earlier texts of all requests",
    }
    return (f"drafting from text: {names} ({shared[config.share]})",)
