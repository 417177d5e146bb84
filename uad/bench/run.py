"""`uad bench`: every cell of targets x drafts x workloads x policies, measured in one process and reported."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from uad.bench import overhead
from uad.bench.bar import Bar
from uad.bench.console import console_on
from uad.bench.facts import PairFacts, Run, collect
from uad.bench.markdown import write_report
from uad.bench.measure import Arm, Engine, EngineArm, Job, Measured, groups, make_job, measure
from uad.bench.options import PLAIN, Drafters, Lineup, Options, Peer, Policy, add_arguments, parse
from uad.bench.peer import Client, PeerArm
from uad.bench.recording import Recorder
from uad.bench.report import Cell, Labels, is_auto, json_line, make_cell, notes
from uad.bench.table import print_prompts, print_table
from uad.bench.workloads import Workload
from uad.config import Config
from uad.errors import ConfigError

__all__ = ["add_arguments", "bench", "main"]


@dataclass(frozen=True, slots=True)
class Engines:
    """One target twice, on the same weights: with what drafts, and alone. recital: what drafts, beside a target that computes nothing."""

    drafted: Engine
    alone: Engine
    recital: Engine


Opener = Callable[[Config, Callable[[str, float], None]], AbstractContextManager[Engines]]
"""Opens them and tells its progress (what, share done)."""

_WARM_UP_TOKENS = 32
_EMULATION = "cost emulation"


def main(args: argparse.Namespace) -> int:
    """Run the bench as asked on the command line; the last line on stdout is JSON. Raises UadError."""
    options = parse(args)
    if options.overhead:
        return overhead.main(options)
    return bench(options, _opener(options.costs), sys.stdout, sys.stderr)


def _opener(costs: Sequence[Path]) -> Opener:
    from uad.runtime import Stepper
    from uad.runtime.counted import Costs

    counted = Costs.read(*costs) if costs else None

    @contextmanager
    def opened(config: Config, progress: Callable[[str, float], None]) -> Iterator[Engines]:
        with Stepper.open(config, progress, counted) as drafted, drafted.alone() as alone, drafted.recital() as recital:
            yield Engines(drafted, alone, recital)

    return opened


def bench(options: Options, opener: Opener, out: TextIO, err: TextIO) -> int:
    """Measure every cell and print the report to `out`; the progress bar goes to `err`. Raises UadError."""
    lineups = [(target, lineup) for target in options.targets for lineup in options.lineups]
    findings = _Findings(options.lookup.share != "off")
    with Bar(err, sum(_n_runs(options, lineup) for _, lineup in lineups)) as bar:
        for target, lineup in lineups:
            with opener(options.config(target, lineup), bar.loading) as engines:
                _Pairing(options, engines, target, lineup, bar, findings).run()
    if not findings.cells:
        raise ConfigError("no answer had two tokens or more, so there is nothing to time; choose another --workload")
    if options.report:
        write_report(options.report, findings.cells, findings.pairs, findings.lines())
    _print(options, findings, out, err)
    return 0


def _print(options: Options, findings: _Findings, out: TextIO, err: TextIO) -> None:
    console = console_on(err if options.json_only else out, width=180)
    if not options.json_only:
        print_table(console, findings.cells)
    for cell in findings.cells if options.verbose else ():
        print_prompts(console, cell)
    for line in findings.lines():
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    print(json_line(findings.cells), file=out, flush=True)


def _n_runs(options: Options, lineup: Lineup) -> int:
    """Runs in one engine, the uncounted ones too."""
    n_arms = len(options.policies) * len(lineup.compared) + (options.peer is not None)
    n_recordings = int(any(map(options.has_oracle, lineup.compared)))
    n_groups = [-(-len(workload.prompts) // sequences) for workload in options.workloads for sequences in options.sequences]
    return len(options.temperatures) * sum((1 + n_arms) * (1 + n) + n * (n_arms * options.repeats + n_recordings) for n in n_groups)


@dataclass(slots=True)
class _Findings:
    """What the report is made of; notes are lines for the reader. shares: whether drafters may remember earlier answers."""

    shares: bool
    cells: list[Cell] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pairs: list[PairFacts] = field(default_factory=list)

    def lines(self) -> list[str]:
        """All notes, each once."""
        return list(dict.fromkeys(self.notes + notes(self.cells, self.shares)))


class _Pairing:
    """The measurement of one target with all that drafts for it in one open engine. `whose[i]` are the drafters of arm i; the peer has its
    own."""

    def __init__(self, options: Options, engines: Engines, target: Path, lineup: Lineup, bar: Bar, findings: _Findings) -> None:
        self._options = options
        self._engine = engine = engines.drafted
        self._plain = EngineArm(PLAIN.name, engines.alone, PLAIN.speculative)
        self._target = target.stem
        self._lineup = lineup
        self._bar = bar
        self._findings = findings
        self._arms, self._whose = self._make_arms()
        self._has_oracle = any(map(options.has_oracle, lineup.compared))
        self._recorder = Recorder.of(engine, engines.recital) if self._has_oracle else None
        self._runs: dict[Drafters, list[Run]] = {one: [] for one in lineup.compared}

    def run(self) -> None:
        """Measure every workload, temperature and number of sequences."""
        if self._options.costs:
            files = " and ".join(file.name for file in self._options.costs)
            self._findings.notes.append(f"time is counted, not measured: decodes take what {files} says")
        if _EMULATION in self._engine.info.target.desc.lower():
            note = "a cost emulation: a small model padded to the cost of a large one; the speed is real, the text is the small model's"
            self._findings.notes.append(f"{self._target}: {note}")
        for workload in self._options.workloads:
            for temperature in self._options.temperatures:
                jobs = self._jobs(workload, temperature)
                for sequences in self._options.sequences:
                    self._cells(workload.name, temperature, groups(jobs, sequences, self._engine.info.n_slots))
        if self._has_oracle and self._recorder is None:
            self._findings.notes.append(f"{self._target}: the engine does not tell its costs, so there is no oracle")
        for drafters, runs in self._runs.items():
            self._findings.pairs.append(collect(self._target, drafters.label, drafters.types, self._engine, runs))

    def _make_arms(self) -> tuple[list[Arm], list[Drafters | None]]:
        """One arm for each policy of each list of drafters, then the peer."""
        arms: list[Arm] = []
        whose: list[Drafters | None] = []
        for drafters in self._lineup.compared:
            arms += [self._arm(drafters.policy(policy)) for policy in self._options.policies]
            whose += [drafters] * len(self._options.policies)
        if self._options.peer is not None:
            arms.append(_peer_arm(self._options.peer))
            whose.append(None)
        return arms, whose

    def _arm(self, policy: Policy) -> Arm:
        return EngineArm(policy.name, self._engine, policy.speculative)

    def _jobs(self, workload: Workload, temperature: float) -> list[Job]:
        options, n_ctx = self._options, self._engine.info.n_ctx
        jobs = [
            make_job(self._engine, prompt, temperature, options.seed + i, options.max_tokens) for i, prompt in enumerate(workload.prompts)
        ]
        for job in jobs:
            need = len(job.ids) + options.max_tokens
            if need > n_ctx:
                name = f"{job.prompt.name!r} of {workload.name!r}"
                raise ConfigError(f"prompt {name} needs {need} tokens of context and a sequence has {n_ctx}; raise --ctx-size")
        return jobs

    def _cells(self, workload: str, temperature: float, jobs: Sequence[tuple[Job, ...]]) -> None:
        self._bar.at(Labels(self._target, None, workload, PLAIN.name, len(jobs[0]), temperature).line)
        self._uncounted(jobs[0], min(_WARM_UP_TOKENS, self._options.max_tokens))
        measured = [self._measure(group, backwards=i % 2 == 1) for i, group in enumerate(jobs)]
        if self._recorder is not None:
            measured = self._recorder.foresee(jobs, measured)
        unrecorded = [replace(one, recorded=None, oracle=None, foresight=None) for one in measured]
        known = {drafters: measured if self._options.has_oracle(drafters) else unrecorded for drafters in self._runs}
        for drafters, runs in self._runs.items():
            autos = tuple(i for i, arm in enumerate(self._arms) if self._whose[i] is drafters and is_auto(arm.name))
            runs += [Run(workload, autos, one) for one in known[drafters]]
        for i in range(len(self._arms)):
            whose = self._whose[i]
            labels = Labels(self._target, whose.label if whose else None, workload, self._arms[i].name, len(jobs[0]), temperature)
            cell = make_cell(labels, known[whose] if whose else unrecorded, i)
            if cell is None:
                self._findings.notes.append(f"{labels.line}: no answer was long enough to be timed, so there is no row")
            else:
                self._findings.cells.append(cell)

    def _measure(self, jobs: tuple[Job, ...], backwards: bool) -> Measured:
        """One token first, so that every counted run finds its prompt in the cache."""
        self._uncounted(jobs, 1)
        measured = measure(jobs, self._plain, self._arms, self._options.repeats, self._bar.step, backwards)
        if self._recorder is None:
            return measured
        self._bar.step()
        return self._recorder.add(jobs, measured)

    def _uncounted(self, jobs: tuple[Job, ...], max_tokens: int) -> None:
        short = [replace(job, max_tokens=max_tokens) for job in jobs]
        for arm in (self._plain, *self._arms):
            arm.run(short)
            self._bar.step()


def _peer_arm(peer: Peer) -> Arm:
    client = Client(peer.url, peer.key)
    return PeerArm(client, peer.model or client.first_model())
