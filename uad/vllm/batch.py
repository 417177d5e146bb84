"""The steps of one call of vLLM: learn what the step took and wrote, then say what is submitted with each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from uad.base.common.arrays import Ints
from uad.base.types import GREEDY, WRITERS, Ask, Clock, Commit, Origin, SpecPolicy, SpeculativeParams
from uad.engine.decode.drafting import DraftedText, Drafting
from uad.engine.drafter import Drafter, Pace
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine
from uad.engine.policy.protocol import Wish
from uad.vllm.texts import NO_DRAFT, BatchTexts, FollowedRow, RowText

_COLD, _ROUNDS = 2, 3
_NEVER_PADDED = (1 << 30) - 1  # ids that are free to take back; fewer than would have rows filled up


class BatchLimits(NamedTuple):
    """n_slots: requests that are drafted for at once. n_max: longest draft; max_len: ids of a text. n_stages: of the
    engine's pipeline.
    """

    n_slots: int
    n_max: int
    max_len: int
    n_stages: int = 1

    @property
    def most_rows(self) -> int:
        """Rows of a step in which every slot submits its longest draft."""
        return self.n_slots * (1 + self.n_max)


class WrittenStep(NamedTuple):
    """A step in which n_texts requests wrote, with n_rows rows, after `depth` ids each on average."""

    n_texts: int
    n_rows: int
    depth: int


class BatchDrafting:
    """Drafts for the rows of vLLM's batches. `drafting` makes the drafters' and the policy's part of the samples of
    steps, as soon as there are enough, and of the most rows of one; with a fixed policy nothing is measured, and it is
    made at once.

    model: the drafter that writes ahead, if there is one. A batch of more requests than slots gets no drafts, and takes
    no time.
    """

    def __init__(
        self,
        drafting: Callable[[Sequence[CostSample], int], Drafting],
        limits: BatchLimits,
        params: SpeculativeParams,
        clock: Clock,
        eog: frozenset[int] = frozenset(),
        model: Drafter | None = None,
    ) -> None:
        self._make = drafting
        self._limits, self._params, self._clock = limits, params, clock
        self._texts = BatchTexts(limits.n_slots, eog, limits.n_stages)
        self._model = model
        self._steps: StepTimes | None = None
        self._drafting: Drafting | None = None
        self._since: float | None = None  # when the last call ended; None: the step after it says nothing
        self._planned: tuple[int, ...] = ()
        self._n_plain = 0  # calls until the policy wants to be asked again
        if params.policy is SpecPolicy.FIXED:
            self._drafting = drafting((), limits.most_rows)
        else:
            self._steps = StepTimes(limits.n_max)

    @property
    def drafting(self) -> Drafting | None:
        """Drafters and policy; None while steps are being measured."""
        return self._drafting

    def reset(self) -> None:
        """Forget all requests, after a failure. Those that run begin again."""
        for text in self._texts.texts:
            if text.is_running and self._drafting is not None:
                self._drafting.end(text.seq)
        self._texts.reset()
        self._since, self._planned, self._n_plain = None, (), 0

    def propose(self, sampled: Sequence[Sequence[int]], n_tokens: npt.NDArray[np.int32], ids: Ints) -> list[list[int]]:
        """The ids submitted with each row; an empty list: nothing. See `BatchTexts.follow`."""
        since, self._since = self._since, None
        nothing: list[list[int]] = [[] for _ in sampled]
        if len(sampled) > self._limits.n_slots:
            return nothing
        seconds = self._clock() - since if since is not None else 0.0
        rows = self._texts.follow(sampled, n_tokens, ids)
        self._learn(rows, seconds)
        writing = [(i, row.text) for i, row in enumerate(rows) if row is not None and len(sampled[i])]
        for i, submitted in self._submitted(writing).items():
            nothing[i] = list(submitted)
        self._since = self._clock()
        return nothing

    # --- what came of the last step

    def _learn(self, rows: Sequence[FollowedRow | None], seconds: float) -> None:
        """Ids that were written, requests that ended and began, and what the step took."""
        drafting = self._drafting
        step = self._step(rows) if seconds > 0 else None
        if drafting is None:
            if step is not None and self._steps is not None:
                self._steps.saw(step.n_rows, seconds)
                if self._steps.is_done:
                    self._measured(self._steps)
            self._forget_drafts(rows)
            return
        for seq in self._texts.ended:
            drafting.end(seq)
        for row in rows:
            if row is None:
                continue
            text = row.text
            if row.has_begun:
                drafting.begin(DraftedText(text.seq, text.ids[: text.n].tolist(), GREEDY))
            elif row.new:
                n = len(text.draft.ids)
                drafting.commit(Commit(text.seq, row.new, n, min(len(row.new) - 1, n)), text.draft)
        if step is not None:
            passes = (step.n_rows, 1) if step.n_rows == step.n_texts else (1, step.n_rows)
            drafting.decoded([passes], step.depth, seconds)
        self._forget_drafts(rows)

    def _step(self, rows: Sequence[FollowedRow | None]) -> WrittenStep | None:
        """The last step; None where it was more than writing: prompts were read, or the engine may have rested."""
        followed = [row.text for row in rows if row is not None and row.is_next]
        if not followed or len(followed) < len(rows):
            return None
        n = len(followed)
        return WrittenStep(n, sum(text.n_rows for text in followed), sum(text.n for text in followed) // n)

    def _forget_drafts(self, rows: Sequence[FollowedRow | None]) -> None:
        for row in rows:
            if row is not None:
                row.text.draft, row.text.n_rows = NO_DRAFT, 1

    def _measured(self, steps: StepTimes) -> None:
        """It is known what steps cost: from now on drafts are weighed, of requests that run already, too."""
        self._steps = None
        self._drafting = self._make(steps.samples, self._limits.most_rows)
        for text in self._texts.texts:
            if text.is_running:
                self._drafting.begin(DraftedText(text.seq, text.ids[: text.n].tolist(), GREEDY))

    # --- what the next step submits

    def _submitted(self, writing: Sequence[tuple[int, RowText]]) -> dict[int, tuple[int, ...]]:
        """Ids by row."""
        if not writing:
            return {}
        if self._drafting is None:
            # drafts that only show what steps cost
            assert self._steps is not None
            n = min(self._steps.length(), *(self._room(text) for _, text in writing))
            return {i: _dummies(text, n) for i, text in writing}
        seqs = tuple(text.seq for _, text in writing)
        self._n_plain -= 1
        if seqs == self._planned and self._n_plain > 0:
            return {}
        self._planned = seqs
        chosen, self._n_plain = self._drafting.propose([self._wish(text) for _, text in writing])
        if not chosen:
            return {}
        self._n_plain = 0
        if not any(choice.draft.ids for choice in chosen.values()):  # the policy wants to see what more rows cost
            return {i: _dummies(text, min(1, self._room(text))) for i, text in writing if text.seq in chosen}
        for _, text in writing:
            if text.seq in chosen:
                text.draft = chosen[text.seq].draft
                text.n_rows = 1 + len(text.draft.ids)
        return {i: text.draft.ids for i, text in writing}

    def _room(self, text: RowText) -> int:
        return max(min(self._limits.n_max, self._limits.max_len - text.n - 1), 0)

    def _wish(self, text: RowText) -> Wish:
        room = self._room(text)
        return Wish(text.seq, self._params, room, text.n, n_left=self._limits.max_len - text.n)

    # --- while the engine works

    def ahead(self, go_on: Callable[[], bool]) -> None:
        """The draft model writes on after what was submitted, as if all of it and its own next id were right. Where
        that holds, its ids are there when it is asked next. Stops where go_on says so, before its next decode.
        """
        texts = [text for text in self._texts.texts if text.is_running and text.draft.origin in WRITERS]
        asks = [Ask(text.seq, len(text.draft.ids) + 1 + self._room(text)) for text in texts if text.draft.ids]
        if self._model is not None and asks and go_on():
            self._model.propose(asks, _WhileIdle(go_on))


def _dummies(text: RowText, n: int) -> tuple[int, ...]:
    """n ids that may well be wrong."""
    text.n_rows = 1 + n
    return (int(text.ids[text.n - 1]),) * n


class _WhileIdle(Pace):
    """Drafts as far as asked, as long as nothing else is wanted."""

    def __init__(self, go_on: Callable[[], bool]) -> None:
        self._go_on = go_on

    def wrote(self, seq: int, p: float) -> None: ...

    def go_on(self, seqs: Sequence[int]) -> Sequence[bool]:
        return [self._go_on()] * len(seqs)

    def stepped(self, n_seq: int, seconds: float) -> None: ...


# --- what steps of the engine take


class StepTimes:
    """Times of steps with drafts of several lengths, until each length was seen three times.

    n_max: longest draft. Lengths take turns, so that a busy moment is not taken for the price of one of them. The first
    steps after a start are not counted.
    """

    def __init__(self, n_max: int) -> None:
        self._lengths = sorted({0, min(1, n_max), n_max // 2, n_max})
        self._n_cold = _COLD
        self._n_seen = dict.fromkeys(self._lengths, 0)
        self._asked = 0
        self.samples: list[CostSample] = []

    @property
    def is_done(self) -> bool:
        """Whether enough is known."""
        return min(self._n_seen.values()) >= _ROUNDS

    def length(self) -> int:
        """How long the drafts of the next step should be."""
        self._asked = min(self._lengths, key=lambda k: (self._n_seen[k], k))
        return self._asked

    def saw(self, n_rows: int, seconds: float) -> None:
        """The step that followed took so long for n_rows."""
        if self._n_cold:
            self._n_cold -= 1
            return
        self._n_seen[self._asked] += 1
        self.samples.append(CostSample(n_rows, 0, 1e3 * seconds))


def machine_of(samples: Sequence[CostSample], most_rows: int, draft: Sequence[CostSample] = ()) -> Machine:
    """Costs of an engine in which any rows of any requests share a step, up to most_rows. draft: steps of the draft
    model, if there is one.
    """
    return Machine(
        CostCurve(samples),
        {Origin.MODEL: CostCurve(draft)} if draft else None,
        n_ubatch=most_rows,
        n_free=_NEVER_PADDED,
        is_one_pass=True,
    )
