"""Events that a running request sends to its client, and facts about a loaded pair: frozen values."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from uad.base.common.sums import Sums
from uad.base.stats import DrafterStats, DraftStats, Timings, Usage
from uad.base.types import MODELS, NO_FIM, FimTokens, Finish, Origin, StopKind, TokenProb


class TokenText(NamedTuple):
    """The addition of one id to the decoded text: the characters that its bytes complete. Stop strings are still in it.

    rejected: the rest of a guess that the target rejected here, which wrote this id in its place.
    """

    text: str
    origin: Origin
    rejected: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a running answer: ids of one round and the text that became final with them (may be empty).

    `origins` has one entry per id, and so has `pieces`: the text that became final with each. `probs` and `tokens` are
    empty unless asked for; `timings` are those up to here, if they were.
    """

    request: int
    ids: tuple[int, ...]
    origins: tuple[Origin, ...]
    text: str
    probs: tuple[TokenProb, ...] = ()
    pieces: tuple[str, ...] = ()
    timings: Timings | None = None
    tokens: tuple[TokenText, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a prompt was read, for a client that asked for it: n_past of its n_prompt ids, of which n_cached were
    held.

    `probs` are those of the ids that were read since the last such event; the first id of a prompt, which nothing
    precedes, has no probability (NaN).
    """

    request: int
    n_prompt: int
    n_cached: int
    n_past: int
    ms: float
    probs: tuple[TokenProb, ...] = ()
    timings: Timings | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The last event of a request that ended well. `text` is what was still held back."""

    request: int
    finish: Finish
    stop_kind: StopKind
    usage: Usage
    timings: Timings
    text: str = ""
    stopping_word: str = ""
    seed: int = 0
    slot: int = -1
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of a request that failed; `error` is from uad.base.errors."""

    request: int
    error: Exception


Event = Delta | Progress | Done | Failed


Sink = Callable[[Event], None]
"""Called on the model thread; must return at once. One that raises ends its request."""


WARNING = "warning: "
"""How a note begins that says what most users do not want."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts of a loaded model, for people and for `/v1/models`."""

    path: str
    desc: str
    n_params: int
    size: int
    n_ctx_train: int
    n_vocab: int
    n_embd: int
    vocab_type: int
    ftype: str
    chat_template: str | None
    arch: str = ""


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """The models being served; n_ctx is per slot. `drafters` are those that can draft here, the model last; `notes` the
    lines printed at start (families, rules, warnings); `eog` the ids that end an answer, with their names; bos_token
    and eos_token the names that chat templates know; `fim` the target's ids for filling in the middle.
    """

    target: ModelInfo
    draft: ModelInfo | None
    """The first draft model."""
    n_ctx: int
    n_slots: int
    build: str
    notes: tuple[str, ...] = ()
    drafters: tuple[Origin, ...] = ()
    fim: FimTokens = NO_FIM
    eog: Mapping[int, str] = field(default_factory=dict)
    bos_token: str = ""
    eos_token: str = ""
    more_drafts: tuple[ModelInfo, ...] = ()

    @property
    def drafts(self) -> dict[Origin, ModelInfo]:
        """All draft models, by the names under which they draft."""
        return dict(zip(MODELS, (self.draft, *self.more_drafts) if self.draft is not None else (), strict=False))

    @property
    def warnings(self) -> list[str]:
        """The notes that are warnings, without that word."""
        return [note.removeprefix(WARNING) for note in self.notes if note.startswith(WARNING)]


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """A LoRA adapter of the target, and how much of it is added for requests that do not say."""

    id: int
    path: str
    scale: float
    task_name: str = ""
    prompt_prefix: str = ""


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """State of one slot at a moment. Of the request that it runs: ids of its prompt, those of them that were held, ids
    written, and how many more there may be (-1: none runs).
    """

    id: int
    request: int | None
    n_past: int
    is_processing: bool
    n_prompt: int = 0
    n_cached: int = 0
    n_predicted: int = 0
    n_left: int = -1


@dataclass(frozen=True, slots=True)
class CacheCounts(Sums):
    """The prompt cache: texts that it holds and their bytes; how many it took, gave back and dropped for others since
    start, and the seconds that copies took. n_from_disk: of those that it gave back. saved_seconds: what reading these
    texts again would have taken longer, by the speed of reading at that time.

    Of the level on the disk: texts that this server could use, bytes of all of the cache's files, and the bytes that
    were read and written since start.
    """

    n_texts: int = 0
    n_bytes: int = 0
    n_saved: int = 0
    n_restored: int = 0
    n_dropped: int = 0
    seconds: float = 0.0
    n_from_disk: int = 0
    saved_seconds: float = 0.0
    n_disk_texts: int = 0
    n_disk_bytes: int = 0
    n_disk_read: int = 0
    n_disk_written: int = 0


@dataclass(frozen=True, slots=True)
class Totals(Sums):
    """Counts over all finished requests since start, for `/metrics`.

    n_prompt: ids read, without n_cached that were held; n_next: predicted ids after the first ones, which are what
    predicted_ms is for. n_tokens_max: of the longest text, prompt and answer. n_busy_slots: slots with a request, added
    up over all decodes. n_failed: requests that ended with an error; n_policy_failures: times that the policy failed,
    after which nothing was drafted for a while.
    """

    n_requests: int = 0
    n_prompt: int = 0
    n_predicted: int = 0
    n_decodes: int = 0
    n_busy_slots: int = 0
    draft: DraftStats = field(default_factory=DraftStats)
    n_failed: int = 0
    n_policy_failures: int = 0
    n_cached: int = 0
    n_next: int = 0
    n_tokens_max: int = field(default=0, metadata={"add": max})
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0
    cache: CacheCounts = field(default_factory=CacheCounts)

    @classmethod
    def of(cls, done: Done) -> Totals:
        """The counts of one finished request."""
        usage, timings = done.usage, done.timings
        return cls(
            n_requests=1,
            n_prompt=timings.n_prompt,
            n_predicted=usage.n_predicted,
            draft=timings.draft,
            n_cached=usage.n_cached,
            n_next=max(timings.n_predicted - 1, 0),
            n_tokens_max=usage.n_prompt + usage.n_predicted,
            prompt_ms=timings.prompt_ms,
            predicted_ms=timings.predicted_ms,
        )


class SlotAction(enum.StrEnum):
    """Actions on a free slot."""

    SAVE = "save"
    RESTORE = "restore"
    ERASE = "erase"


@dataclass(frozen=True, slots=True)
class SlotOutcome:
    """Result of an action on a slot: ids that were saved, restored or erased, bytes of the file, and milliseconds."""

    n_ids: int
    n_bytes: int = 0
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class SleepState:
    """Whether the models are unloaded, or about to be; and what sleep took since start: times that they were loaded
    again, and that this failed, seconds that they were unloaded, and seconds that loading took.
    """

    is_asleep: bool = False
    n_wakes: int = 0
    n_failed: int = 0
    asleep_s: float = 0.0
    loading_s: float = 0.0


class EngineSnapshot(NamedTuple):
    """Work of an engine until a moment, and its state then."""

    slots: tuple[SlotInfo, ...]
    """Activity and content of each slot."""
    totals: Totals
    """Counts over all finished requests since start."""
    drafters: tuple[DrafterStats, ...]
    """Counts of each drafter since start."""
    adapters: tuple[AdapterInfo, ...]
    """The target's LoRA adapters."""


@dataclass(frozen=True, slots=True)
class DrafterView:
    """Estimates of one drafter. saves and costs: of a round in which it is asked, in plain decodes; None where they are
    not weighed.
    """

    origin: Origin
    saves: float | None = None
    costs: float | None = None


@dataclass(frozen=True, slots=True)
class EngineView:
    """State of the loop at a moment, for display.

    n_written: ids of answers since start, n_rounds: of all sequences. curve[k]: milliseconds of a pass of k + 1 rows
    after `depth` positions; plain: (depth, milliseconds of a single row). lengths[k]: rounds of late that submitted k
    drafted ids.
    """

    n_written: int = 0
    n_rounds: int = 0
    depth: int = 0
    curve: tuple[float, ...] = ()
    plain: tuple[tuple[int, float], ...] = ()
    lengths: tuple[int, ...] = ()
    drafters: tuple[DrafterView, ...] = ()
