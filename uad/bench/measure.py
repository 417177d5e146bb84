"""Runs of one group of prompts, interleaved over the arms (plain, drafted, peer). Knows no file, no table and no policy by name."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from uad.bench.workloads import Prompt
from uad.errors import UadError
from uad.types import Clock, Delta, Done, Event, Failed, Origin, Request, RuntimeInfo, SamplingParams, Sink, SpeculativeParams

_POLL_SECONDS = 1.0


class Engine(Protocol):
    """What the bench uses of `uad.runtime.Runtime`."""

    @property
    def info(self) -> RuntimeInfo: ...

    @property
    def error(self) -> UadError | None: ...

    @property
    def clock(self) -> Clock: ...

    def submit(self, request: Request, sink: Sink) -> int: ...

    def cancel(self, request: int) -> None: ...

    def tokenize(self, text: str, add_special: bool = False, parse_special: bool = True) -> list[int]: ...

    def chat_prompt(
        self, messages: Sequence[Mapping[str, object]], template_kwargs: Mapping[str, object], add_generation_prompt: bool = True
    ) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to be made: the prompt, its target ids, and how to sample. The same job under every arm gives the same text.

    answer: the ids that are written, whatever the target thinks (empty: its own).
    """

    prompt: Prompt
    ids: tuple[int, ...]
    temperature: float
    seed: int
    max_tokens: int
    answer: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """One decode of one sequence: how many ids came out, how many were proposed, how many of those accepted, and who had proposed them."""

    n_ids: int
    n_drafted: int
    n_accepted: int
    origin: Origin = Origin.TARGET


@dataclass(frozen=True, slots=True)
class Answer:
    """One finished job. `ids` and `rounds` are empty where they are not known (a peer). `tps` counts the tokens after the first.

    rounds[0] is the prompt's decode, from which the first id comes.
    """

    ids: tuple[int, ...]
    text: str
    tps: float
    n_predicted: int
    n_rounds: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    rounds: tuple[Round, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of a group of jobs at once: the answers in the order of the jobs, and decoded tokens per second over all of them."""

    answers: tuple[Answer, ...]
    tps: float


class Arm(Protocol):
    """One of the things compared."""

    @property
    def name(self) -> str: ...

    def run(self, jobs: Sequence[Job]) -> Sample:
        """Run the jobs at once and wait for all of them. Raises UadError."""


def sample(answers: Sequence[Answer], seconds: float) -> Sample:
    """Rate of a group: that of the only answer, or all tokens over the wall time of the group."""
    if len(answers) == 1:
        return Sample(tuple(answers), answers[0].tps)
    total = sum(answer.n_predicted for answer in answers)
    return Sample(tuple(answers), total / seconds if seconds > 0 else 0.0)


class EngineArm:
    """Runs jobs on our own runtime, job i on slot i, so that a prompt is found in its slot's cache from its second run on."""

    def __init__(self, name: str, engine: Engine, speculative: SpeculativeParams, clock: Clock = time.perf_counter) -> None:
        self.name = name
        self._engine = engine
        self._speculative = speculative
        self._clock = clock

    def run(self, jobs: Sequence[Job]) -> Sample:
        """Run the jobs at once and wait for all of them; what still runs is cancelled if one fails. Raises UadError."""
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        start = self._clock()
        running: dict[int, _Collector] = {}
        try:
            for slot, job in enumerate(jobs):
                running[self._engine.submit(self._request(job, slot), events.put)] = _Collector()
            collectors = list(running.values())
            while running:
                event = self._next(events)
                if running[event.request].add(event):
                    del running[event.request]
        finally:
            for request in running:
                self._engine.cancel(request)
        return sample([collector.answer() for collector in collectors], self._clock() - start)

    def _request(self, job: Job, slot: int) -> Request:
        sampling = SamplingParams(temperature=job.temperature, seed=job.seed)
        return Request(job.ids, sampling, self._speculative, max_tokens=job.max_tokens, slot=slot, prescribed=job.answer)

    def _next(self, events: queue.SimpleQueue[Event]) -> Event:
        while True:
            try:
                return events.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if self._engine.error is not None:
                    raise self._engine.error from None


class _Collector:
    """Gathers the events of one request."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._text: list[str] = []
        self._rounds: list[Round] = []
        self._done: Done | None = None

    def add(self, event: Event) -> bool:
        """Take an event; True if it was the last one. Raises the error of a Failed."""
        if isinstance(event, Failed):
            raise event.error
        self._text.append(event.text)
        if isinstance(event, Delta):
            self._ids.extend(event.ids)
            self._rounds.append(_round(event))
            return False
        self._done = event
        return True

    def answer(self) -> Answer:
        """The finished answer; call it after the last event."""
        assert self._done is not None
        timings = self._done.timings
        return Answer(
            ids=tuple(self._ids),
            text="".join(self._text),
            tps=timings.predicted_per_second,
            n_predicted=timings.n_predicted,
            n_rounds=timings.draft.n_rounds,
            n_drafted=timings.draft.n_drafted,
            n_accepted=timings.draft.n_accepted,
            rounds=tuple(self._rounds),
        )


def _round(delta: Delta) -> Round:
    drafted = [origin for origin in delta.origins if origin is not Origin.TARGET]
    return Round(len(delta.ids), delta.n_drafted, len(drafted), drafted[0] if drafted else Origin.TARGET)


def make_job(engine: Engine, prompt: Prompt, temperature: float, seed: int, max_tokens: int) -> Job:
    """Turn a prompt into target ids: through the chat template, or as it stands, where the letters of a special are only letters."""
    if prompt.chat:
        ids = engine.chat_prompt([{"role": "user", "content": prompt.text}], {})
    else:
        ids = engine.tokenize(prompt.text, add_special=True, parse_special=False)
    answer = engine.tokenize(prompt.answer, parse_special=False) if prompt.answer else ()
    return Job(prompt, tuple(ids), temperature, seed, max_tokens, tuple(answer))


def groups(jobs: Sequence[Job], size: int) -> list[tuple[Job, ...]]:
    """Cut jobs into groups of exactly `size` distinct ones; the last group is filled up from the start of the list."""
    n_groups = -(-len(jobs) // size)
    return [tuple(jobs[i % len(jobs)] for i in range(g * size, (g + 1) * size)) for g in range(n_groups)]


def turns(n_arms: int, repeats: int, backwards: bool = False) -> Iterator[int]:
    """The order in which arms run: A B C C B A A B C …, or C B A A B C …, so that a machine that drifts favours none.

    With an odd number of repeats one direction is run once more: turn every second group round to even that out, too.
    """
    for repeat in range(repeats):
        yield from range(n_arms) if (repeat % 2 == 1) is backwards else reversed(range(n_arms))


@dataclass(frozen=True, slots=True)
class Measured:
    """All counted runs of one group of prompts: `samples[i]` are the runs of arm i. Arm 0 is plain.

    `recorded` is an uncounted run with drafts of a fixed length, whatever their probability: it tells how many ids could be accepted in
    each round. `oracle` is the speed-up over plain of who had known that; None if it was not measured.
    """

    names: tuple[str, ...]
    samples: tuple[tuple[Sample, ...], ...]
    recorded: Sample | None = None
    oracle: float | None = None


def measure(jobs: Sequence[Job], arms: Sequence[Arm], repeats: int, on_run: Callable[[], None], backwards: bool = False) -> Measured:
    """Run one group under every arm, interleaved; `backwards` starts with the last arm."""
    samples: list[list[Sample]] = [[] for _ in arms]
    for arm in turns(len(arms), repeats, backwards):
        samples[arm].append(arms[arm].run(jobs))
        on_run()
    return Measured(tuple(job.prompt.name for job in jobs), tuple(tuple(one) for one in samples))
