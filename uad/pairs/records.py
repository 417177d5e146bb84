"""Measured gains of drafts on real requests: one JSON file for each target and the conditions under which it ran
(`conditions.py`), in the user's cache directory. A record is an optional help: whatever is wrong with its file
costs a line in the log.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from uad.base.common.cache import cache_folder
from uad.base.common.files import SMALL_BYTES, is_there, read_text, write_atomically
from uad.base.common.once import warn_once, why
from uad.pairs.conditions import Conditions
from uad.pairs.header import identity, stamp

_VERSION = 2
_FORGOTTEN_TOKENS = 20_000
"""Tokens past which older ones count half: machines and kernels change."""
ENOUGH_TOKENS = 400
"""Tokens after which a pair's gain is known."""
LASTS_S = 30 * 86_400.0
"""Seconds after which what was measured counts no more."""
_TRIES_SHARE = 0.01
"""The share of a target's writing time that further tries of drafts that lost may take."""
_LOAD_S, _LOAD_BYTES_PER_S = 3.0, 1e9
"""Cost of a try beside slower answers: seconds to start a process, and the speed at which the target is loaded."""


@dataclass(frozen=True, slots=True)
class PairRecord:
    """Tokens that a pair wrote, in how many seconds, and how long the target alone would have taken; rounds of look-ups
    are left out. at: seconds that the target had written under these conditions by then; when: by the system's clock.
    """

    tokens: float = 0.0
    seconds: float = 0.0
    plain_seconds: float = 0.0
    at: float = 0.0
    when: float = 0.0

    @property
    def gain(self) -> float | None:
        """Measured speed, in that of the target alone; None where too little was written."""
        return self.plain_seconds / self.seconds if self.tokens >= ENOUGH_TOKENS and self.seconds > 0 else None

    def plus(self, more: PairRecord) -> PairRecord:
        """Both together, at the time of `more`; of many tokens the older ones count half."""
        kept = 0.5 if self.tokens >= _FORGOTTEN_TOKENS else 1.0
        return PairRecord(
            kept * self.tokens + more.tokens,
            kept * self.seconds + more.seconds,
            kept * self.plain_seconds + more.plain_seconds,
            more.at,
            more.when,
        )

    def holds(self, written_s: float, now: float, best: float = 1.0, n_bytes: int = 0) -> bool:
        """Whether the gain still counts, once the target has written for `written_s` seconds. If not, the prediction
        counts, and the pair may be tried again. best: the gain of what is used in its place; n_bytes: of the target.

        Old records do not count. And each second in which the target writes without this draft pays a hundredth of one
        into a bucket for another try: 400 tokens at the pair's speed, and a load. A pair of 0.8 with tokens of 25 ms in
        place of 20 costs 2 s and 5 s of loading: it may be tried after 700 s of writing. However bad a draft is, tries
        take no more than 1 % of the time.
        """
        if now - self.when > LASTS_S or self.when > now + LASTS_S:
            return False
        slower_s = max(self.seconds - self.plain_seconds / max(best, 1.0), 0.0) * ENOUGH_TOKENS / max(self.tokens, 1.0)
        price = slower_s + _LOAD_S + n_bytes / _LOAD_BYTES_PER_S
        return _TRIES_SHARE * (written_s - self.at) < price


NO_RECORD = PairRecord()


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """Records of a target under its conditions. written_s: seconds in which it wrote, whatever drafted; drafts:
    by their keys.
    """

    written_s: float = 0.0
    drafts: Mapping[str, PairRecord] = field(default_factory=dict)

    def of(self, draft: Path, under: Conditions) -> PairRecord:
        """The record of a pair; an empty one where nothing was measured, or the file cannot be read."""
        try:
            return self.drafts.get(_key(draft, under), PairRecord())
        except Exception as error:
            warn_once(f"what {draft.name} gained is not known: {why(error)}")
            return PairRecord()

    def plus(self, key: str | None, more: PairRecord, now: float) -> TargetRecord:
        """Add what was written since the last time; key: of the draft, None where nothing drafted. A record that
        no longer holds begins again.
        """
        written_s = self.written_s + more.seconds
        if key is None:
            return replace(self, written_s=written_s)
        known = self.drafts.get(key, PairRecord())
        if not known.holds(self.written_s, now):
            known = PairRecord()
        added = known.plus(replace(more, at=written_s, when=now))
        return TargetRecord(written_s, {**self.drafts, key: added})


def record_of(target: Path, under: Conditions) -> TargetRecord:
    """Read the record of a target; an empty one, and a line in the log, where that cannot be read."""
    try:
        return _read(_file(target, under))
    except Exception as error:
        warn_once(f"what drafts of {target.name} gained is not known: {why(error)}")
        return TargetRecord()


def add_record(
    target: Path, draft: Path | None, more: PairRecord, under: Conditions, now: float | None = None
) -> PairRecord:
    """Keep what a target has written since the last time, with this draft or without one; what is known of the pair
    then. A cache that cannot be written costs a line in the log.
    """
    now = time.time() if now is None else now
    try:
        file, key = _file(target, under), None if draft is None else _key(draft, under)
        try:
            before = _read(file)
        except Exception as error:
            warn_once(f"what drafts of {target.name} gained begins again: {why(error)}")
            before = TargetRecord()
        record = before.plus(key, more, now)
        file.parent.mkdir(parents=True, exist_ok=True)
        text = {"version": _VERSION, "target": target.name, **asdict(record)}
        write_atomically(file, json.dumps(text).encode())
    except Exception as error:
        warn_once(f"what {target.name} writes with {draft.name if draft else 'no draft'} is not kept: {why(error)}")
        return more
    return PairRecord() if key is None else record.drafts[key]


def _read(file: Path) -> TargetRecord:
    """Raises UadError or what a damaged file does."""
    if not is_there(file):
        return TargetRecord()
    stored = json.loads(read_text(file, SMALL_BYTES))
    if stored["version"] != _VERSION:
        return TargetRecord()
    drafts = {
        key: PairRecord(*(_number(entry[part.name]) for part in fields(PairRecord)))
        for key, entry in stored["drafts"].items()
    }
    return TargetRecord(_number(stored["written_s"]), drafts)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"a record holds {value!r} in place of a number")
    return float(value)


def _key(draft: Path, under: Conditions) -> str:
    return _hash(identity(draft, stamp(draft)), under.draft)


def _file(target: Path, under: Conditions) -> Path:
    return cache_folder() / "pairs" / f"{_hash(identity(target, stamp(target)), under.target)}.json"


def _hash(*parts: str) -> str:
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:32]
