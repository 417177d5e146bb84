"""Whether the promises of docs/same-text.md hold for a target on this machine: its rows to the bit, prompts, and texts
with and without drafts; without `--exact` and with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from time import perf_counter
from typing import Self

from uad.base.config import Config, ModelConfig
from uad.base.console import Report
from uad.base.errors import ConfigError
from uad.base.events import Delta, Event, Failed
from uad.base.gguf import GgufFile, files_of
from uad.base.types import HEADS, Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.engine.decode.layout import longest_draft
from uad.engine.policy.cost import CostSample
from uad.llama.backend.ggml import type_name
from uad.llama.context import Context
from uad.llama.kernels import use as kernels
from uad.llama.kernels import weights
from uad.runtime.check_rows import (
    Passes,
    PromptCompared,
    RowsCompared,
    RowsFound,
    compare_prompts,
    compare_rows,
    stretches,
)
from uad.runtime.loaded import Loaded
from uad.runtime.open import Parts, build
from uad.runtime.target import Measured, agreeing, are_alike
from uad.runtime.timing import Timing

_PROMPT_IDS = 28  # ids, which a text repeats: so look-ups draft at once, and no pass over it has 64 ids
_LEAST_IDS, _GRAIN = 16, 256
_TEMPERATURES = (0.0, 0.8)
_SHARES = {"rows": 0.22, "prompts": 0.08, "texts": 0.16}  # of the seconds, in each way


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """How much is compared, and for how long at most. n_ids: rows of each width; n_max: ids of the longest draft, where
    the configuration does not say; n_text: ids of each text.
    """

    seconds: float
    n_ids: int
    n_max: int
    depths: tuple[int, ...]
    n_prompt: int
    n_text: int


QUICK = CheckPlan(60.0, 200, 16, (0, 128), 130, 64)
FULL = CheckPlan(inf, 1000, 48, (0, 512, 2048), 640, 400)


@dataclass(slots=True)
class TextCompared:
    """Drafted texts, `n_slots` beside each other, compared to the same requests answered alone without drafts: how many
    are the same, and after how many ids the first one differs. n_ids: compared ids; texts that were cut, since time was
    up, count as far as they went.
    """

    temperature: float
    n_slots: int
    n_ids: int = 0
    n_texts: int = 0
    n_same: int = 0
    first_difference: int | None = None
    n_drafted: int = 0
    n_accepted: int = 0

    def add(self, answer: CheckedAnswer, wanted: CheckedAnswer) -> None:
        """Compare one text."""
        shorter = min(len(answer.ids), len(wanted.ids))
        pairs = zip(answer.ids, wanted.ids, strict=False)
        at = next((i for i, (ids, other) in enumerate(pairs) if ids != other), shorter)
        self.n_texts += 1
        self.n_ids += shorter
        self.n_same += at == shorter
        if at < shorter:
            self.first_difference = at if self.first_difference is None else min(at, self.first_difference)
        self.n_drafted += answer.n_drafted
        self.n_accepted += answer.n_accepted


@dataclass(frozen=True, slots=True)
class CheckedWay:
    """The findings without `--exact`, or with it. promised: rows and texts are promised to be the same; any_batch: so
    are prompts read in passes of any size; notes: what `--exact` says at start.
    """

    exact: bool
    promised: bool
    any_batch: bool
    notes: tuple[str, ...]
    rows: tuple[RowsCompared, ...]
    prompts: tuple[PromptCompared, ...]
    texts: tuple[TextCompared, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """All that was found. weights: how many matrices have each type; broken: a line for each promise that does not
    hold. kernels: the line that says which compute here; operations: how many ran in those of uad. Where they compute
    all, `--exact` changes nothing, and there is one way.
    """

    target: str
    draft: str | None
    weights: dict[str, int]
    n_slots: int
    ways: tuple[CheckedWay, ...]
    broken: tuple[str, ...]
    kernels: str
    operations: dict[str, int]

    def as_json(self) -> dict[str, object]:
        """The same in plain values."""
        return asdict(self) | {"holds": not self.broken}


def check(config: Config, text: str, plan: CheckPlan, progress: Report) -> Checked:
    """Loads the target, with the draft if there is one, without `--exact` and with it, and compares on this text. Where
    uad's kernels compute all, there is nothing that `--exact` could change, and it is loaded once.

    Raises ModelLoadError, MappingError or ConfigError.
    """
    config, plan = _as_checked(config, plan)
    kinds, before = weight_types(config.target), kernels.counts()
    with OpenWay.open(config, False, plan, progress) as plain:
        ids = plain.text.tokenize(text)
        if len(set(ids)) < 2:
            raise ConfigError("the text has too few tokens to compare anything on; try another --text")
        ways = [plain.compare(ids)]
        heads = [f"the head ({origin})" for origin in plain.info.drafters if origin in HEADS]
        draft = ", ".join([*(model.desc for model in plain.info.drafts.values()), *heads]) or None
    if not plain.any_batch:
        with OpenWay.open(config, True, plan, progress) as exact:
            ways.append(exact.compare(ids))
    broken = tuple(line for way in ways for line in _broken(way))
    operations = {what: n - before.get(what, 0) for what, n in kernels.counts().items()}
    desc = plain.info.target.desc
    return Checked(desc, draft, kinds, config.n_parallel, tuple(ways), broken, plain.kernels, operations)


def _as_checked(config: Config, plan: CheckPlan) -> tuple[Config, CheckPlan]:
    """Two slots at least, each with a context that holds what is compared, or with what the user gave it; drafts as
    long as they may be.
    """
    n_max = config.drafting.defaults.n_max or plan.n_max
    n_slots = max(config.n_parallel, 2)
    needs = (max(plan.depths) + 2 * n_max, plan.n_prompt, 2 * _PROMPT_IDS + plan.n_text)
    n_ctx = -(-(max(needs) + n_max + 64) // _GRAIN) * _GRAIN
    if config.target.n_ctx:
        n_ctx = min(n_ctx, config.target.n_ctx // n_slots)
    most = max(n_ctx - 2 * n_max - 64, 0)
    depths = tuple(depth for depth in plan.depths if depth <= most) or (0,)
    plan = replace(
        plan,
        n_max=n_max,
        depths=depths,
        n_prompt=max(min(plan.n_prompt, most), 4),
        n_text=max(min(plan.n_text, n_ctx - 2 * _PROMPT_IDS - 64), 1),
    )
    drafting = config.drafting
    types = drafting.types
    if config.draft is None and not set(types) - {Origin.MODEL}:
        types = (Origin.SUFFIX,)
    defaults = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=n_max, p_min=0.0)
    return replace(
        config,
        target=replace(config.target, n_ctx=n_ctx * n_slots),
        n_parallel=n_slots,
        cache_ram=0,
        cache_disk=None,
        drafting=replace(drafting, defaults=defaults, types=types, weighed=()),
    ), plan


def weight_types(config: ModelConfig) -> dict[str, int]:
    """How many matrices of a model have each type, the most frequent first. Raises ModelLoadError."""
    types: Counter[str] = Counter()
    for path in files_of(config.path):
        with GgufFile(path) as file:
            types.update(type_name(tensor.kind) for tensor in file.tensors if len(tensor.shape) > 1)
    return dict(types.most_common())


# --- one way


class _Uncounted(Timing):
    """Costs are not measured at start: drafts have a fixed length."""

    def curve(
        self, context: Context, config: ModelConfig, role: str, sizes: Sequence[int], seconds: float
    ) -> tuple[tuple[CostSample, ...], bool]:
        return tuple(CostSample(n, 0, 1.0) for n in sizes), True


@dataclass(slots=True)
class CheckedAnswer:
    """A sink: the ids of an answer, and how many of them were drafted."""

    ids: list[int] = field(default_factory=list)
    n_drafted: int = 0
    n_accepted: int = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, Delta):
            self.ids += event.ids
            assert event.timings is not None  # asked for, since a text that is cut has no last event
            self.n_drafted, self.n_accepted = event.timings.draft.n_drafted, event.timings.draft.n_accepted
        elif isinstance(event, Failed):
            raise event.error


class OpenWay(Loaded):
    """A target without `--exact` or with it, as it is served, and a context of one slot on the same weights."""

    def __init__(self, parts: Parts, exact: bool, plan: CheckPlan, progress: Report) -> None:
        super().__init__(parts)
        self._exact, self._plan = exact, plan
        self._name = "with --exact" if exact else "without --exact"
        self._progress = progress
        target = parts.target
        own = replace(target.config, n_ctx=target.config.n_ctx // target.context.n_seq)
        context = parts.stack.enter_context(Context(target.model, own, 1, "target"))
        measured = agreeing(context, own) if exact else Measured()
        self.alone, self.beside = Passes(context, measured.least), Passes(target.context, target.least)
        self.notes = tuple(note for note in target.notes if note.startswith("--exact"))
        has_effect = exact and not any("has no effect" in note for note in (*self.notes, *measured.notes))
        share = weights.of(target.config, target.model.buffers)
        self.kernels = weights.note(target.config, share)
        self._promised = has_effect or (not exact and are_alike(target.config, context, share))
        self.any_batch = has_effect or (not exact and share.are_ours and kernels.keep_rows(target.config))
        longest = min(
            longest_draft(context.n_alike, context.n_batch, context.n_seq, each.least)
            for each in (self.alone, self.beside)
            for context in (each.context,)
        )
        self.widths = range(1, min(plan.n_max, longest) + 2)

    @classmethod
    def open(cls, config: Config, exact: bool, plan: CheckPlan, progress: Report) -> Self:
        """Load everything. Raises ModelLoadError, MappingError or ConfigError."""
        config = replace(config, drafting=replace(config.drafting, exact=exact))
        parts = build(config, progress, _Uncounted())
        try:
            return cls(parts, exact, plan, progress)
        except BaseException:
            parts.stack.close()
            raise

    def compare(self, ids: Sequence[int]) -> CheckedWay:
        """Rows, prompts and texts. Raises what decoding does."""
        plan = self._plan
        rows = self._rows(ids)
        prompts = compare_prompts(
            self.alone, self.beside, ids, plan.n_prompt, _TimeLimit(plan.seconds * _SHARES["prompts"])
        )
        texts = self._texts(ids, rows.seconds)
        return CheckedWay(
            self._exact, self._promised, self.any_batch, self.notes, tuple(rows.compared), tuple(prompts), tuple(texts)
        )

    def _rows(self, ids: Sequence[int]) -> RowsFound:
        plan, what = self._plan, f"rows {self._name}"
        seconds = plan.seconds * _SHARES["rows"]
        compared = compare_rows(
            self.alone,
            self.beside,
            ids,
            plan.depths,
            self.widths,
            plan.n_ids,
            _TimeLimit(seconds),
            lambda share: self._progress(what, share),
        )
        self._progress(what, 1.0)
        return compared

    # --- texts

    def _texts(self, ids: Sequence[int], row_seconds: float) -> list[TextCompared]:
        """Greedy and at 0.8: without drafts one by one, with drafts one alone, and one in each slot."""
        n_slots, plan, what = self.beside.context.n_seq, self._plan, f"texts {self._name}"
        n_runs = (n_slots + 3) * len(_TEMPERATURES)
        fitting = plan.seconds * _SHARES["texts"] / (n_runs * row_seconds) if row_seconds < inf else inf
        n = int(max(min(plan.n_text, fitting), min(plan.n_text, _LEAST_IDS)))
        seconds = plan.seconds * _SHARES["texts"] / 4  # passes of long drafts take as long as many single rows
        out, n_done = [], 0
        for temperature in _TEMPERATURES:
            requests = [
                Request(
                    prompt * 2,
                    SamplingParams(temperature=temperature, seed=7 + i, ignore_eos=True),
                    self._speculative(i),
                    max_tokens=n,
                    cache_prompt=False,
                    timings=True,
                )
                for i, prompt in enumerate(stretches(ids, 0, _PROMPT_IDS, n_slots))
            ]
            plain = []
            for request in requests:
                plain += self._answers([replace(request, speculative=SpeculativeParams(enabled=False))], inf)
                n_done += 1
                self._progress(what, n_done / n_runs)
            for some in (1, n_slots):
                compared = TextCompared(temperature, some)
                for answer, wanted in zip(self._answers(requests[:some], seconds), plain, strict=False):
                    compared.add(answer, wanted)
                out.append(compared)
            n_done += 3
            self._progress(what, n_done / n_runs)
        return out

    def _speculative(self, number: int) -> SpeculativeParams:
        """Draft control of a request by its number: several draft models take turns."""
        defaults, drafts = self._parts.config.drafting.defaults, tuple(self.info.drafts)
        return defaults if len(drafts) < 2 else replace(defaults, types=(drafts[number % len(drafts)],))

    def _answers(self, requests: Sequence[Request], seconds: float) -> list[CheckedAnswer]:
        """Answers to all requests at once, to the end, or until `seconds` are over."""
        answers, is_over = [], _TimeLimit(seconds)
        for number, request in enumerate(requests):
            self._engine.requests.check(request)
            answers.append(CheckedAnswer())
            self._engine.submit(number, request, answers[-1])
        while not self._engine.is_idle:
            self._engine.step()
            if is_over() and all(answer.ids for answer in answers):
                for number in range(len(requests)):
                    self._engine.cancel(number)
        return answers


class _TimeLimit:
    """A clock that says, when called, whether `seconds` are over since it was made."""

    def __init__(self, seconds: float) -> None:
        self._end = perf_counter() + seconds

    def __call__(self) -> bool:
        return perf_counter() >= self._end


def _broken(way: CheckedWay) -> Iterator[str]:
    """A line for each promise that does not hold."""
    if not way.promised:
        return
    name = "with --exact" if way.exact else "without --exact"
    for row in way.rows:
        if row.n_other:
            slots = "1 slot" if row.n_slots == 1 else f"{row.n_slots} slots"
            yield f"{name}: passes of {row.width} rows, {slots}: {row.n_other} of {row.n_ids} rows have other bits"
    for prompt in way.prompts:
        if prompt.n_other and (way.any_batch or not prompt.is_small):
            yield f"{name}: a prompt read {prompt.how}: {prompt.n_other} of {prompt.n_ids} rows have other bits"
    for text in way.texts:
        if text.n_same < text.n_texts:
            yield (
                f"{name}: {text.n_texts - text.n_same} of {text.n_texts} drafted texts at temperature "
                f"{text.temperature:g}, {text.n_slots} beside each other, differ after {text.first_difference} ids"
            )
