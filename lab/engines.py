"""Prompts answered by engines in this process: each policy beside plain decoding, round by round. Knows no file, no
table and no policy by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench_measure import Answer, Arm, ArmPair, BenchJob, Measured, Sample, turns

from uad.base.errors import UadError
from uad.base.events import Delta, Done, Event, Failed, Progress, RuntimeInfo, Sink
from uad.base.types import Clock, Request, SamplingParams, SpeculativeParams
from uad.tools.bench.client import per_second
from uad.tools.bench.workloads import WorkloadPrompt


class BenchEngine(Protocol):
    """What the lab's bench uses of `stepper.Stepper`."""

    @property
    def info(self) -> RuntimeInfo:
        """The models, the context of a slot in ids, and the drafters."""
        ...

    @property
    def clock(self) -> Clock:
        """What requests are timed with, in seconds."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""
        ...

    def submit(self, request: Request, sink: Sink) -> int:
        """Queue a request, whose events sink gets; returns its number. Raises InvalidRequestError or
        ContextOverflowError."""
        ...

    def cancel(self, request: int) -> None:
        """Free the slot of the request with this number at once; no event follows."""

    def step(self) -> None:
        """One round for all requests."""

    @property
    def text(self) -> EngineText:
        """Texts to ids."""
        ...


class EngineText(Protocol):
    """What a measurement needs of the target's texts."""

    def tokenize(self, text: str, add_special: bool = False, parse_special: bool = True) -> list[int]:
        """The target's ids of a text. add_special: with BOS, where the model wants one. parse_special: names of
        specials become their ids."""
        ...

    def chat(self, messages: Sequence[Mapping[str, object]], kwargs: Mapping[str, object]) -> list[int]:
        """The target's ids of a conversation. Raises InvalidRequestError or ContextOverflowError."""
        ...


@dataclass(frozen=True, slots=True)
class EngineJob(BenchJob):
    """A job whose prompt is target ids."""

    ids: tuple[int, ...] = ()


def n_prompt(job: BenchJob) -> int:
    """Tokens of its prompt."""
    assert isinstance(job, EngineJob)
    return len(job.ids)


class EngineArm:
    """Runs jobs on our own engine."""

    def __init__(self, name: str, engine: BenchEngine, speculative: SpeculativeParams) -> None:
        self.name = name
        self._engine = engine
        self._speculative = speculative

    def run(self, jobs: Sequence[BenchJob]) -> Sample:
        """Run the jobs at once and wait for all of them; what still runs is cancelled if one fails. Raises UadError."""
        return in_turns([self], jobs)[0]

    def beside(self, plain: EngineArm, jobs: Sequence[BenchJob], first: bool) -> ArmPair:
        """Both at once, a round of one, a round of the other, the one that is behind; first: this one begins. Raises
        UadError.
        """
        if first:
            arm, other = in_turns([self, plain], jobs)
        else:
            other, arm = in_turns([plain, self], jobs)
        return ArmPair(other, arm)

    def prepare(self, jobs: Sequence[BenchJob]) -> _BenchRun:
        """Jobs that are not submitted yet."""
        return _BenchRun(self._engine, [self.request(job) for job in jobs])

    def request(self, job: BenchJob) -> Request:
        """What the engine is asked for."""
        assert isinstance(job, EngineJob)
        sampling = SamplingParams(temperature=job.temperature, seed=job.seed)
        return Request(job.ids, sampling, self._speculative, max_tokens=job.max_tokens, slot=job.slot)


def in_turns(arms: Sequence[EngineArm], jobs: Sequence[BenchJob]) -> list[Sample]:
    """Run the jobs on all arms at once, each on an engine of its own. The one that has written fewer ids makes the next
    round, so that all write the same part of the text in the same second; only an arm's own rounds count as its time.
    Raises UadError.
    """
    running = [arm.prepare(jobs) for arm in arms]
    try:
        for one in running:
            one.submit()
        while behind := [one for one in running if one.runs]:
            min(behind, key=lambda one: one.n_written).step()
    finally:
        for one in running:
            one.cancel()
    return [one.sample() for one in running]


class _BenchRun:
    """Requests that one engine answers: what came of them so far, and the seconds that its rounds took."""

    def __init__(self, engine: BenchEngine, requests: Sequence[Request]) -> None:
        self._engine = engine
        self._requests = requests
        self._answers: dict[int, _Collector] = {}
        self._live: set[int] = set()
        self._seconds = 0.0  # from the first id on, if there is one request
        self._is_single = len(requests) == 1
        self._error: Exception | None = None
        self.n_written = 0

    def submit(self) -> None:
        """Raises UadError."""
        for request in self._requests:
            number = self._engine.submit(request, self._take)
            self._answers[number] = _Collector()
            self._live.add(number)

    @property
    def runs(self) -> bool:
        return bool(self._live)

    def step(self) -> None:
        """One round. Raises the error of a request that failed."""
        if self._engine.is_idle:
            raise UadError("the engine lost a request")
        counts = self.n_written > 0 or not self._is_single
        clock = self._engine.clock
        began = clock()
        self._engine.step()
        if counts:
            self._seconds += clock() - began
        if self._error is not None:
            raise self._error

    def _take(self, event: Event) -> None:
        if isinstance(event, Progress):
            return
        if isinstance(event, Delta):
            self.n_written += len(event.ids)
        else:
            self._live.discard(event.request)
        if isinstance(event, Failed):
            self._error = event.error
        else:
            self._answers[event.request].add(event)

    def cancel(self) -> None:
        """Ends what still runs."""
        for number in self._live:
            self._engine.cancel(number)

    def sample(self) -> Sample:
        """Call it when nothing runs any more."""
        answers = tuple(collector.answer() for collector in self._answers.values())
        n_timed = sum(answer.n_predicted for answer in answers) - self._is_single
        return Sample(answers, per_second(n_timed, self._seconds))


class _Collector:
    """Gathers the events of one request."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._text: list[str] = []
        self._done: Done | None = None

    def add(self, event: Delta | Done) -> None:
        self._text.append(event.text)
        if isinstance(event, Delta):
            self._ids.extend(event.ids)
        else:
            self._done = event

    def answer(self) -> Answer:
        """The finished answer; call it after the last event."""
        assert self._done is not None
        draft = self._done.timings.draft
        return Answer(
            ids=tuple(self._ids),
            text="".join(self._text),
            n_predicted=self._done.timings.n_predicted,
            n_rounds=draft.n_rounds,
            n_drafted=draft.n_drafted,
            n_accepted=draft.n_accepted,
            by=tuple(draft.by.values()),
        )


def make_job(engine: BenchEngine, prompt: WorkloadPrompt, temperature: float, seed: int, max_tokens: int) -> EngineJob:
    """Turn a prompt into target ids: through the chat template, or as it stands, where the letters of a special are
    only letters.
    """
    if prompt.chat:
        ids = engine.text.chat([{"role": "user", "content": prompt.text}], {})
    else:
        ids = engine.text.tokenize(prompt.text, add_special=True, parse_special=False)
    return EngineJob(prompt, temperature, seed, max_tokens, ids=tuple(ids))


def measure_beside(
    jobs: Sequence[BenchJob],
    plain: EngineArm,
    arms: Sequence[Arm],
    repeats: int,
    on_run: Callable[[], None],
    backwards: bool = False,
) -> Measured:
    """Run one group under every arm, the arms taking turns, each beside plain decoding; `backwards` starts with the
    last one. A peer cannot be stopped between rounds: it and plain decoding run one after the other. Raises UadError.
    """
    runs: list[list[ArmPair]] = [[] for _ in arms]
    for i in turns(len(arms), repeats, backwards):
        first, arm = (len(runs[i]) % 2 == 1) is not backwards, arms[i]
        if isinstance(arm, EngineArm):
            pair = arm.beside(plain, jobs, first)
        elif first:
            theirs = arm.run(jobs)
            pair = ArmPair(plain.run(jobs), theirs)
        else:
            pair = ArmPair(plain.run(jobs), arm.run(jobs))
        runs[i].append(pair)
        on_run()
    return Measured(tuple(job.prompt.name for job in jobs), tuple(map(tuple, runs)))
