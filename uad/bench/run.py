"""`uad bench`: every cell of targets x drafts x workloads x policies, measured in one process and reported."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from uad.bench.client import Client
from uad.bench.measure import Arm, BenchEngine, BenchJob, EngineArm, Measured, groups, make_job, measure
from uad.bench.options import PLAIN, BenchOptions, Drafters, Lineup, Peer, add_arguments, parse
from uad.bench.peer import PeerArm
from uad.bench.report import Cell, Labels, make_cell, notes, summary
from uad.bench.table import print_prompts, print_table
from uad.bench.workloads import Workload, WorkloadPrompt
from uad.config import Config
from uad.console import Bar, Report, console_on
from uad.errors import ConfigError

__all__ = ["add_arguments", "bench", "main"]


@dataclass(frozen=True, slots=True)
class Engines:
    """One target twice, on the same weights: with what drafts, and alone."""

    drafted: BenchEngine
    alone: BenchEngine


Opener = Callable[[Config, Report], AbstractContextManager[Engines]]
"""Opens them and reports its progress (what, share done)."""

_WARM_UP_TOKENS = 32
_EMULATION = "cost emulation"


def main(args: argparse.Namespace) -> int:
    """Run the bench as asked on the command line; the last line on stdout is JSON. Raises UadError."""
    return bench(parse(args), _opened, sys.stdout, sys.stderr)


@contextmanager
def _opened(config: Config, report: Report) -> Iterator[Engines]:
    from uad.runtime import Stepper

    with Stepper.open(config, report) as drafted, drafted.alone() as alone:
        yield Engines(drafted, alone)


def bench(options: BenchOptions, opener: Opener, out: TextIO, err: TextIO) -> int:
    """Measure every cell and print the report to `out`; the progress bar goes to `err`. Raises UadError."""
    findings = Findings(options.lookup.share != "off")
    measure_all(options, opener, err, findings, Pairing)
    show(options, findings, out, err)
    print(json.dumps(summary(findings.cells)), file=out, flush=True)
    return 0


def measure_all(options: BenchOptions, opener: Opener, err: TextIO, findings: Findings, pairing: type[Pairing]) -> None:
    """Fill the findings, one engine after the other. Raises UadError."""
    lineups = [(target, lineup) for target in options.targets for lineup in options.lineups]
    with Bar(err, sum(pairing.n_runs(options, lineup) for _, lineup in lineups)) as bar:
        for target, lineup in lineups:
            with opener(options.config(target, lineup), bar.report) as engines:
                pairing(options, engines, target, lineup, bar, findings).run()
    if not findings.cells:
        raise ConfigError("no answer had two tokens or more, so there is nothing to time; choose another --workload")


@dataclass(slots=True)
class Findings:
    """What the report is made of; notes are lines for the reader. shares: whether drafters may remember earlier
    answers.
    """

    shares: bool
    cells: list[Cell] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """All notes, each once."""
        return list(dict.fromkeys(self.notes + notes(self.cells, self.shares)))


def show(options: BenchOptions, findings: Findings, out: TextIO, err: TextIO) -> None:
    """Print the table, the prompts if they are wanted, and the notes."""
    console = console_on(err if options.json_only else out, width=180)
    if not options.json_only:
        print_table(console, findings.cells)
    for cell in findings.cells if options.verbose else ():
        print_prompts(console, cell)
    for line in findings.lines():
        console.print(line, markup=False, highlight=False, soft_wrap=True)


class Pairing:
    """The measurement of one target with all that drafts for it in one open engine. `whose[i]` are the drafters of arm
    i; the peer has its own.
    """

    arm_type: type[EngineArm] = EngineArm

    def __init__(
        self, options: BenchOptions, engines: Engines, target: Path, lineup: Lineup, bar: Bar, findings: Findings
    ) -> None:
        self.options = options
        self.engine = engines.drafted
        self.target = target.stem
        self.lineup = lineup
        self.bar = bar
        self.findings = findings
        self._plain = self.arm_type(PLAIN.name, engines.alone, PLAIN.speculative)
        self.arms: list[Arm] = []
        self.whose: list[Drafters | None] = []
        for drafters in lineup.compared:
            speculative = [drafters.policy(policy).speculative for policy in options.policies]
            policies = zip(options.policies, speculative, strict=True)
            self.arms += [self.arm_type(policy.name, self.engine, params) for policy, params in policies]
            self.whose += [drafters] * len(options.policies)
        if options.peer is not None:
            self.arms.append(_peer_arm(options.peer))
            self.whose.append(None)

    @classmethod
    def n_runs(cls, options: BenchOptions, lineup: Lineup) -> int:
        """Runs in one engine, the uncounted ones too."""
        n_arms = len(options.policies) * len(lineup.compared) + (options.peer is not None)
        return sum((1 + n_arms) * (1 + n) + n * n_arms * options.repeats for n in options.n_groups)

    def run(self) -> None:
        """Measure every workload, temperature and number of sequences."""
        if _EMULATION in self.engine.info.target.desc.lower():
            note = (
                "a cost emulation: a small model padded to the cost of a large one; the speed is real, the text "
                "is the small model's"
            )
            self.findings.notes.append(f"{self.target}: {note}")
        for workload in self.options.workloads:
            for temperature in self.options.temperatures:
                jobs = self._jobs(workload, temperature)
                for sequences in self.options.sequences:
                    self.measure_cells(workload.name, temperature, groups(jobs, sequences, self.engine.info.n_slots))

    def job(self, prompt: WorkloadPrompt, temperature: float, seed: int) -> BenchJob:
        """What is asked for with this prompt."""
        return make_job(self.engine, prompt, temperature, seed, self.options.max_tokens)

    def _jobs(self, workload: Workload, temperature: float) -> list[BenchJob]:
        n_ctx = self.engine.info.n_ctx
        jobs = [self.job(prompt, temperature, self.options.seed + i) for i, prompt in enumerate(workload.prompts)]
        for job in jobs:
            need = len(job.ids) + self.options.max_tokens
            if need > n_ctx:
                name = f"{job.prompt.name!r} of {workload.name!r}"
                raise ConfigError(
                    f"prompt {name} needs {need} tokens of context and a sequence has {n_ctx}; raise --ctx-size"
                )
        return jobs

    def measure_cells(self, workload: str, temperature: float, jobs: Sequence[tuple[BenchJob, ...]]) -> None:
        """One cell for each arm, over these groups."""
        self.bar.at(Labels(self.target, None, workload, PLAIN.name, len(jobs[0]), temperature).line)
        self._uncounted(jobs[0], min(_WARM_UP_TOKENS, self.options.max_tokens))
        measured = [self.measure(group, backwards=i % 2 == 1) for i, group in enumerate(jobs)]
        for i, (arm, whose) in enumerate(zip(self.arms, self.whose, strict=True)):
            labels = Labels(self.target, whose.label if whose else None, workload, arm.name, len(jobs[0]), temperature)
            cell = make_cell(labels, measured, i)
            if cell is None:
                self.findings.notes.append(f"{labels.line}: no answer was long enough to be timed, so there is no row")
            else:
                self.findings.cells.append(cell)

    def measure(self, jobs: tuple[BenchJob, ...], backwards: bool) -> Measured:
        """One group: one token first, so that every counted run finds its prompt in the cache."""
        self._uncounted(jobs, 1)
        return measure(jobs, self._plain, self.arms, self.options.repeats, self.bar.step, backwards)

    def _uncounted(self, jobs: tuple[BenchJob, ...], max_tokens: int) -> None:
        short = [replace(job, max_tokens=max_tokens) for job in jobs]
        for arm in (self._plain, *self.arms):
            arm.run(short)
            self.bar.step()


def _peer_arm(peer: Peer) -> Arm:
    client = Client(peer.url, peer.key)
    return PeerArm(client, peer.model or client.first_model())
