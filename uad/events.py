"""What a running request tells whoever asked, and what a loaded pair says of itself: frozen values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from uad.common.sums import Sums
from uad.types import DraftStats, Finish, Origin, StopKind, Timings, TokenProb, Usage


class TokenText(NamedTuple):
    """What one id adds to the decoded text: the characters that its bytes complete. Stop strings are still in it.

    rejected: the rest of a guess that the target rejected here, which wrote this id in its place.
    """

    text: str
    origin: Origin
    rejected: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a running answer: ids of one round and the text that became final with them (may be empty).

    `origins` has one entry per id. `probs` and `tokens` are empty unless asked for.
    """

    request: int
    ids: tuple[int, ...]
    origins: tuple[Origin, ...]
    text: str
    probs: tuple[TokenProb, ...] = ()
    tokens: tuple[TokenText, ...] = ()


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
    """The last event of a request that failed; `error` is from uad.errors."""

    request: int
    error: Exception


Event = Delta | Done | Failed


Sink = Callable[[Event], None]
"""Called on the model thread; must return at once. One that raises ends its request."""


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


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """What is being served; n_ctx is per slot. `drafters` are those that can draft here, the model last; `notes` the
    lines printed at start (families, rules, warnings).
    """

    target: ModelInfo
    draft: ModelInfo | None
    n_ctx: int
    n_slots: int
    build: str
    notes: tuple[str, ...] = ()
    drafters: tuple[Origin, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """State of one slot at a moment."""

    id: int
    request: int | None
    n_past: int
    is_processing: bool


@dataclass(frozen=True, slots=True)
class Totals(Sums):
    """Counts over all finished requests since start, for `/metrics`.

    n_prompt: ids read, without n_cached that were held; n_next: predicted ids behind the first ones, which are what
    predicted_ms is for. n_tokens_max: of the longest text, prompt and answer. n_failed: requests that ended with an
    error; n_policy_failures: times that the policy failed, after which nothing was drafted for a while.
    """

    n_requests: int = 0
    n_prompt: int = 0
    n_predicted: int = 0
    n_decodes: int = 0
    draft: DraftStats = field(default_factory=DraftStats)
    n_failed: int = 0
    n_policy_failures: int = 0
    n_cached: int = 0
    n_next: int = 0
    n_tokens_max: int = field(default=0, metadata={"add": max})
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0

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


@dataclass(frozen=True, slots=True)
class DrafterView:
    """What drafting knows of one drafter. saves and costs: of a round in which it is asked, in plain decodes; None
    where nobody weighs them.
    """

    origin: Origin
    saves: float | None = None
    costs: float | None = None


@dataclass(frozen=True, slots=True)
class EngineView:
    """What the loop does at a moment, for people who look.

    n_written: ids of answers since start, n_rounds: of all sequences. curve[k]: milliseconds of a pass of k + 1 rows
    behind `depth` positions; plain: (depth, milliseconds of a single row). lengths[k]: rounds of late that submitted k
    drafted ids.
    """

    n_written: int = 0
    n_rounds: int = 0
    depth: int = 0
    curve: tuple[float, ...] = ()
    plain: tuple[tuple[int, float], ...] = ()
    lengths: tuple[int, ...] = ()
    drafters: tuple[DrafterView, ...] = ()
