"""The drafters without a model: opened, closed, and the line at start about them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from uad.base.config import DraftingConfig, LookupConfig
from uad.base.config.drafter_types import LOOKUP_TYPES
from uad.base.types import WRITERS, Origin
from uad.drafts.lookup.build import build_one
from uad.drafts.lookup.lookup_drafter import LookupDrafter
from uad.drafts.lookup.store import fingerprint
from uad.engine.decode.guard import reason, warn
from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable

_log = logging.getLogger("uad")
_BY_REQUEST = [kind.origin for kind in LOOKUP_TYPES if kind.by_request]


def build_lookups(
    config: DraftingConfig, vocab: VocabTable, n_slots: int, encoder: Encoder | None = None
) -> tuple[LookupDrafter, ...]:
    """The drafters of `config.types` in that order, without those that have a model or a head; with an encoder of the
    target, after those that draft from what requests bring. Files that cannot be used are logged and left alone.

    Close each of them when no sequence runs any more: that writes their files.
    """
    vocabulary = fingerprint(vocab) if config.lookup.files() else ""
    named = [Origin(name) for name in config.types if name not in WRITERS and name not in _BY_REQUEST]
    origins = [*(_BY_REQUEST if encoder is not None else ()), *named]
    built = [_built_lookup(origin, config.lookup, vocabulary, n_slots, encoder) for origin in origins]
    return tuple(drafter for drafter in built if drafter is not None)


def _built_lookup(
    origin: Origin, config: LookupConfig, vocabulary: str, n_slots: int, encoder: Encoder | None
) -> LookupDrafter | None:
    """The drafter; None, and a line in the log, where it fails at start: no answer needs it."""
    try:
        return build_one(origin, config, vocabulary, n_slots, encoder)
    except Exception as error:
        warn(_log, error, "%s failed at start (%s); the server goes on without it", origin, reason(error))
        return None


def lookup_notes(drafters: Sequence[LookupDrafter], config: LookupConfig) -> tuple[str, ...]:
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


def close_lookup(drafter: LookupDrafter) -> None:
    """Write what it keeps in files. A failure is logged, and keeps nothing else from being closed."""
    try:
        drafter.close()
    except Exception as error:
        text = "%s could not write what it has learned (%s); its file is as it was"
        warn(_log, error, text, drafter.origin, reason(error))
