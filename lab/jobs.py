"""Jobs of the lab's bench: answers that are prescribed, and notes of the rounds in which they were written. Knows no
llama.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar, cast

from bench_measure import ArmPair, BenchJob
from engines import BenchEngine, EngineArm, EngineJob
from facts import Bin
from oracle import Costs, Round
from prescribed import Told

from uad.base.types import Request, SpecPolicy, SpeculativeParams
from uad.tools.bench.workloads import WorkloadPrompt

T = TypeVar("T")


class KnownEngine(BenchEngine, Protocol):
    """What the lab's bench uses of `stepper.LabStepper`."""

    @property
    def rounds(self) -> dict[int, list[Round]]:
        """Of the last request in each slot that could draft; the first round is the prompt's decode."""
        ...

    def costs(self) -> Costs | None:
        """What rounds cost, as it is known now; None where nothing drafts."""
        ...

    def calibration(self) -> Sequence[Bin]:
        """What was believed and seen, for each bin of belief."""
        ...


def widened(kind: type[T], value: Any, **more: object) -> T:
    """A dataclass's value as one of a subclass, with these fields besides or instead."""
    return kind(**{one.name: getattr(value, one.name) for one in fields(value)} | more)


@dataclass(frozen=True, slots=True)
class ToldJob(EngineJob):
    """A job whose answer is prescribed: these ids are written, whatever the target thinks."""

    answer: tuple[int, ...] = ()


def told(job: BenchJob, answer: Sequence[int]) -> ToldJob:
    return widened(ToldJob, job, answer=tuple(answer))


class LabArm(EngineArm):
    """Runs jobs on an engine that notes its rounds. `chosen`: those of measured runs under an automatic policy, without
    the prompts'.
    """

    def __init__(self, name: str, engine: BenchEngine, speculative: SpeculativeParams) -> None:
        super().__init__(name, engine, speculative)
        self._rounds = cast(KnownEngine, engine).rounds
        self._notes = speculative.enabled and speculative.policy is SpecPolicy.AUTO
        self.chosen: list[Round] = []

    def request(self, job: BenchJob) -> Request:
        request = super().request(job)
        return widened(Told, request, answer=job.answer) if isinstance(job, ToldJob) and job.answer else request

    def beside(self, plain: EngineArm, jobs: Sequence[BenchJob], first: bool) -> ArmPair:
        pair = super().beside(plain, jobs, first)
        if self._notes:
            self.chosen += [one for job in jobs for one in self._rounds[job.slot][1:]]
        return pair


def renamed(prompt: WorkloadPrompt, old: str, new: str) -> str:
    """The fenced part of a prompt with one name instead of another, empty where it does not occur: the answer to a task
    that small models cannot do.
    """
    _, fence, code = prompt.text.partition("```")
    return fence + code.replace(old, new) if old in code else ""
