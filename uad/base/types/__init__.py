"""Frozen values that travel between the rooms. No behaviour beyond derived numbers, no imports but from the ground
floor, `uad/base/common`.

Conventions: `ids` are token ids of the target unless a name says draft; `data` is bytes; `text` is str; `n_` counts
tokens; `_ms` is milliseconds.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from uad.base.common.samplers import SamplingParams as SamplingParams
from uad.base.common.settings import request_field
from uad.base.common.sums import Sums
from uad.base.types.images import IMAGE_PLACE as IMAGE_PLACE
from uad.base.types.images import Image as Image
from uad.base.types.images import PlacedImage as PlacedImage


class Finish(enum.StrEnum):
    """Why a sequence ended, in OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"


class StopKind(enum.StrEnum):
    """Why a sequence ended, in llama-server's native words."""

    EOS = "eos"
    WORD = "word"
    LIMIT = "limit"


Clock = Callable[[], float]
"""Seconds from some fixed moment."""


class Origin(enum.StrEnum):
    """Where a committed id came from: written by the target itself, or proposed by a drafter (llama-server's
    `--spec-type` names).

    GRAMMAR is no such name: it drafts whenever a request has a constraint. PREDICTION drafts whenever one has a
    prediction, named or not. MODEL_2 to MODEL_4 are further draft models, in the order of `--draft`.
    """

    TARGET = "target"
    MODEL = "draft-simple"
    MODEL_2 = "draft-simple-2"
    MODEL_3 = "draft-simple-3"
    MODEL_4 = "draft-simple-4"
    HEAD = "draft-mtp"
    EAGLE3 = "draft-eagle3"
    DFLASH = "draft-dflash"
    DSPARK = "draft-dspark"
    NGRAM_SIMPLE = "ngram-simple"
    NGRAM_MAP_K = "ngram-map-k"
    NGRAM_MAP_K4V = "ngram-map-k4v"
    NGRAM_MOD = "ngram-mod"
    NGRAM_CACHE = "ngram-cache"
    SUFFIX = "suffix"
    PREDICTION = "prediction"
    GRAMMAR = "grammar"

    __hash__ = str.__hash__  # an enum's own is a Python function, called for every look-up


HEADS = frozenset({Origin.HEAD, Origin.EAGLE3, Origin.DFLASH, Origin.DSPARK})
"""Drafters that read the target's hidden rows, of which one is loaded at most: its own head, and those trained
apart.
"""

MODELS = (Origin.MODEL, Origin.MODEL_2, Origin.MODEL_3, Origin.MODEL_4)
"""Draft models, in the order in which they are named."""

WRITERS = frozenset({*HEADS, *MODELS})
"""Drafters that write their guesses id by id, with decodes of their own."""

BY_REQUEST = frozenset({Origin.PREDICTION})
"""Drafters of what a request brings: how much of that is right says nothing of the next request."""


class SpecPolicy(enum.StrEnum):
    """Basis for the length of drafts: the machine's cost curve and the acceptance so far, or the request's numbers."""

    AUTO = "auto"
    FIXED = "fixed"


GREEDY = SamplingParams(temperature=0.0)

N_MAX_FIXED, N_MAX_AUTO = 16, 48


@dataclass(frozen=True, slots=True)
class SpeculativeParams:
    """Draft control of one request. n_max/n_min count target ids per draft; a draft stops before an id whose
    probability is below p_min.

    Under AUTO n_max is only a ceiling for what the draft model writes (0: nothing drafts), and n_min and p_min have no
    effect. None: what `longest` says. `types` are the drafters that may draft; empty: all that the server has.
    """

    enabled: bool = True
    n_max: int | None = None
    n_min: int = 0
    p_min: float = 0.5
    policy: SpecPolicy = SpecPolicy.AUTO
    types: tuple[Origin, ...] = ()

    @property
    def longest(self) -> int:
        """n_max, or its default: 16 where it is fixed, which seldom hurts, else 48, longer than any draft that pays."""
        if self.n_max is not None:
            return self.n_max
        return N_MAX_FIXED if self.policy is SpecPolicy.FIXED else N_MAX_AUTO


class ConstraintKind(enum.StrEnum):
    """How a constraint is written: a JSON schema; a grammar in GBNF, or in Lark after `%llguidance`; a regular
    expression for the whole answer; a JSON list of texts, of which the answer is one.
    """

    JSON_SCHEMA = "json_schema"
    GRAMMAR = "grammar"
    REGEX = "regex"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A limit on the text of an answer. It begins with `prefix` and ends with `suffix`; `text` describes what stands
    between.

    With triggers the answer is free at first, and constrained after the first of these texts, in which names of
    control tokens count; from the trigger's first byte on if `keeps_trigger`. If `must_trigger`, ids that end answers
    are not drawn before. `at_start`: a trigger counts only where nothing stands before it but white space and control
    tokens. `before` is text in front of the answer, with which a trigger may begin.

    `lead` is Lark that may stand before all that, as its rule named lead: a thought, white space.
    """

    kind: ConstraintKind
    text: str
    prefix: str = ""
    suffix: str = ""
    triggers: tuple[str, ...] = ()
    keeps_trigger: bool = False
    must_trigger: bool = False
    at_start: bool = False
    before: str = ""
    lead: str = ""


@dataclass(frozen=True, slots=True)
class ThoughtBounds:
    """Marks around the thoughts of an answer, in which names of control tokens count, and how long thoughts may be.

    in_thought: the answer begins inside of one. anywhere: one may begin after other text, not only at the front.
    budget: most ids of each thought; None: as many as it likes. closing: the ids that end one there.
    """

    start: str
    end: str
    in_thought: bool = False
    anywhere: bool = False
    budget: int | None = None
    closing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FimTokens:
    """A model's ids around the text before and after a cursor, and before what is written there; before a project's
    name and a file's. None: it has none.
    """

    prefix: int | None = None
    suffix: int | None = None
    middle: int | None = None
    project: int | None = None
    file: int | None = None


NO_FIM = FimTokens()


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to generate: prompt ids in, text out.

    Each field that a body over HTTP sets unchanged is a row (`request_field`); answers repeat the rows in their order.
    `requests/job` works out the rest.
    """

    prompt: tuple[int, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    speculative: SpeculativeParams = SpeculativeParams()
    max_tokens: int | None = None
    """None: until the context is full."""
    min_tokens: int = request_field(
        0, "the first n tokens, among which no end is drawn and no stop counts", refused="below"
    )
    stop: tuple[str, ...] = request_field(
        (), "what the answer ends before, a text or several; names of control tokens count"
    )
    stop_token_ids: tuple[int, ...] = request_field((), "tokens that the answer ends before")
    include_stop: bool = request_field(
        False, "the text goes on to the end of what stopped it", "include_stop_str_in_output"
    )
    stream: bool = request_field(False, "the answer is sent as it is written, as server-sent events")
    n_probs: int = request_field(
        0,
        "alternatives of each token, with log-probabilities of the unmodified distribution",
        high=100,
        refused="above",
    )
    post_sampling: bool = request_field(
        False, "probabilities are those that a token was drawn with, after all samplers", "post_sampling_probs"
    )
    timings: bool = request_field(
        False, "in streams: `timings` so far in each event", "timings_per_token", only_streamed=True
    )
    n_indent: int = request_field(
        0,
        "the answer ends before a line that begins with fewer blanks, after the first line; 0: never",
        refused="below",
    )
    max_predict_ms: float = request_field(
        0.0,
        "the answer ends with the first line that ends later, in milliseconds from its first token; 0 or less: never",
        "t_max_predict_ms",
        low=-1,
        high=2.0**63,
        refused="below",
        counts_from=0.0,
    )
    progress: bool = request_field(
        False,
        "in streams: `prompt_progress`, before the prompt is read and after each part",
        "return_progress",
        only_streamed=True,
        is_echoed=False,
    )
    origins: bool = request_field(
        False,
        "in streams: which drafter wrote each token, or the target",
        "return_origins",
        is_echoed=False,
    )
    cache_prompt: bool = request_field(
        True, "the prompt is read on from what a slot holds", is_echoed=False, default_text="`--cache-prompt`"
    )
    slot: int = request_field(
        -1,
        "the slot that writes the answer; -1: any; past the last one it is counted on from the first",
        "id_slot",
        low=-1,
        refused="nothing",
        is_echoed=False,
    )
    logprobs: bool = False
    """Log-probabilities of the unmodified distribution are wanted, with `n_probs` alternatives or none."""
    constraint: Constraint | None = None
    shown: tuple[str, ...] = ()
    """Names of control tokens that the text shows, for a caller that reads structure out of it."""
    adapters: tuple[float, ...] | None = None
    """How much of each LoRA adapter the target adds; None: what the server says."""
    prompt_probs: bool = False
    """`Progress` has the probabilities of the prompt's ids, too."""
    prediction: bytes = b""
    """Text that the answer is expected to repeat, with edits."""
    drafted_prompt: tuple[int, ...] = ()
    """Ids that drafters read in place of the prompt, where the answer does not continue it; empty: the prompt."""
    thoughts: ThoughtBounds | None = None
    """Marks of thoughts. Thoughts are counted, and bounded if it has a budget."""
    images: tuple[Image, ...] = field(default=(), repr=False)
    """The pictures that the prompt's markers (`IMAGE_PLACE`) stand for, in their order."""
    placed: tuple[PlacedImage, ...] = field(default=(), repr=False)
    """Where their placeholders stand among the prompt's ids. The runtime finds out."""
    name: str = field(default="", compare=False)
    """The name in lines of the log."""

    @property
    def text_ids(self) -> tuple[int, ...]:
        """The prompt without the placeholders of images."""
        return tuple(id_ for id_ in self.prompt if id_ >= 0) if self.placed else self.prompt

    def prompt_is_read(self) -> None:
        """The pixels of its images are needed no more."""
        for image in self.images:
            image.pixels.was_read()


READ_AGAIN = 16
"""Ids that are rather decoded again, with later ones, than by themselves, where single ids cannot be taken back."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of one sequence in a batch: ids from position `pos` on, logits wanted for the last `n_logits` of
    them. The last `n_unsure` may have to be taken back.
    """

    seq: int
    pos: int
    ids: Sequence[int]
    n_logits: int
    n_unsure: int = 0


@dataclass(frozen=True, slots=True)
class Crossing(Sums):
    """The work of translating from one vocabulary to the other and back: words looked up, those that were known, and
    microseconds.
    """

    n_words: int = 0
    n_known: int = 0
    us: float = 0.0

    @property
    def hit_rate(self) -> float:
        """Known words as a share of all, 0 to 1; 0 where there were none."""
        return self.n_known / self.n_words if self.n_words else 0.0


class Ask(NamedTuple):
    """How far one sequence may draft in this round, in target ids. n_max 0 asks for no draft but lets the drafter catch
    up.

    n_min and p_min are for the draft model. n_read: most ids that it should catch up with in this round (0: all).
    """

    seq: int
    n_max: int
    n_min: int = 0
    p_min: float = 0.0
    n_read: int = 0


@dataclass(frozen=True, slots=True)
class Draft:
    """A guess: target ids that may follow, and for each the estimated probability that it is accepted given that all
    before it were.

    p is the drafter's own belief, uncalibrated; looked-up drafts of one `kind` (origin, and what else it depends on:
    "suffix/answers") are calibrated together. That of the draft model's is the policy's to say: it goes by the request.
    n_salvaged: how many leading ids are left over from an earlier round. healed: the draft re-chose bytes after the
    edge. crossing: what translation cost since the last draft. n_read: ids of its own that the draft model read for it.
    n_tail: how many of the last ids were looked up after the others, which were written; `kind` is theirs.
    """

    ids: tuple[int, ...] = ()
    p: tuple[float, ...] = ()
    origin: Origin = Origin.MODEL
    n_salvaged: int = 0
    healed: bool = False
    kind: str = ""
    crossing: Crossing = Crossing()
    n_read: int = 0
    n_tail: int = 0

    def first(self, n: int) -> Draft:
        """The first n ids."""
        if n >= len(self.ids):
            return self
        n_salvaged, healed = min(self.n_salvaged, n), self.healed and n > 0
        n_tail = max(self.n_tail - (len(self.ids) - n), 0)
        return replace(self, ids=self.ids[:n], p=self.p[:n], n_salvaged=n_salvaged, healed=healed, n_tail=n_tail)


@dataclass(frozen=True, slots=True)
class TokenProb:
    """Natural-log probability of one id, with its bytes."""

    id: int
    data: bytes
    logprob: float
    top: tuple[TokenProb, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The target's verdict on a draft: `ids` are the accepted prefix and the target's own next id, in order."""

    ids: tuple[int, ...]
    n_accepted: int
    probs: tuple[TokenProb, ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """Ids that are now part of the text; ids[:n_accepted] were drafted. Of a round, or of several in which nothing was
    drafted.
    """

    seq: int
    ids: tuple[int, ...]
    n_drafted: int = 0
    n_accepted: int = 0
