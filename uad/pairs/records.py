"""What pairs of a target and a draft were measured to gain on real requests: one JSON file for each in the user's cache
directory.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from uad.base.common.cache import cache_folder
from uad.base.common.files import write_atomically
from uad.base.errors import ConfigError, ModelLoadError
from uad.pairs.header import identity, stamp

_log = logging.getLogger("uad")
_VERSION = 1
_FORGOTTEN_TOKENS = 20_000
"""Tokens past which older ones count half: machines and kernels change."""
ENOUGH_TOKENS = 400
"""Tokens after which a pair's gain is known."""


@dataclass(frozen=True, slots=True)
class PairRecord:
    """Tokens that a pair wrote, in so many seconds, and how long the target alone would have taken."""

    tokens: float = 0.0
    seconds: float = 0.0
    plain_seconds: float = 0.0

    @property
    def gain(self) -> float | None:
        """Measured speed, in that of the target alone; None where too little was written."""
        return self.plain_seconds / self.seconds if self.tokens >= ENOUGH_TOKENS and self.seconds > 0 else None

    def plus(self, more: PairRecord) -> PairRecord:
        """Both together; of many tokens the older ones count half."""
        kept = 0.5 if self.tokens >= _FORGOTTEN_TOKENS else 1.0
        return PairRecord(*(kept * getattr(self, part.name) + getattr(more, part.name) for part in fields(PairRecord)))


def record_of(target: Path, draft: Path) -> PairRecord:
    """What is known of a pair; a record of nothing where that cannot be read."""
    try:
        stored = json.loads(_file(target, draft).read_text(encoding="utf-8"))
        if stored["version"] == _VERSION:
            return PairRecord(*(float(stored[part.name]) for part in fields(PairRecord)))
    except (OSError, ValueError, KeyError, TypeError, ConfigError, ModelLoadError):
        pass
    return PairRecord()


def add_record(target: Path, draft: Path, more: PairRecord) -> PairRecord:
    """Keep what a pair has written since the last time; what is known of it then. A cache that cannot be written is
    told in the log.
    """
    record = record_of(target, draft).plus(more)
    facts = {"version": _VERSION, "target": target.name, "draft": draft.name, **asdict(record)}
    try:
        path = _file(target, draft)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(facts).encode())
    except (OSError, ConfigError, ModelLoadError) as error:
        _log.warning("the gain of %s with %s is not kept: %s", target.name, draft.name, error)
    return record


def _file(target: Path, draft: Path) -> Path:
    both = " ".join(identity(path, stamp(path)) for path in (target, draft))
    name = hashlib.sha256(both.encode()).hexdigest()
    return cache_folder() / "pairs" / f"{name[:32]}.json"
