"""Prompts sent to a server: plainly, under each policy, and to peers, all in turns. Knows no file and no table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from uad.base.errors import UnavailableError
from uad.base.stats import DrafterStats
from uad.base.types import Origin
from uad.tools.bench.client import Client, Server, Stream, per_second
from uad.tools.bench.workloads import WorkloadPrompt


@dataclass(frozen=True, slots=True)
class BenchJob:
    """One answer to be made: the prompt and how to sample. The same job under every arm gives the same text.

    slot: where it runs, and its prompt stays cached.
    """

    prompt: WorkloadPrompt
    temperature: float
    seed: int
    max_tokens: int
    slot: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """One finished job; `by`: what each drafter did, empty where it is not known (a peer). `ids` are not known over
    HTTP.
    """

    ids: tuple[int, ...]
    text: str
    n_predicted: int
    n_rounds: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    by: tuple[DrafterStats, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of a group of jobs at once: the answers in the order of the jobs, and decoded tokens per second: of a
    single answer from its first token on, of several over all of them from the start.
    """

    answers: tuple[Answer, ...]
    tps: float


class Arm(Protocol):
    """One of the things compared."""

    @property
    def name(self) -> str:
        """What tables and progress call it; a policy's is its own name."""

    def run(self, jobs: Sequence[BenchJob]) -> Sample:
        """Run the jobs at once and wait for all of them. Raises UadError."""


@dataclass(frozen=True, slots=True)
class ArmPair:
    """The same jobs with plain decoding and under an arm, in the same turn."""

    plain: Sample
    arm: Sample

    @property
    def ratio(self) -> float:
        """Speed under the arm divided by plain speed. Raises ZeroDivisionError where the plain one is 0."""
        return self.arm.tps / self.plain.tps


class ServerArm:
    """Runs jobs on a server, each on a connection of its own. has_slots: the server is `uad serve` with a slot for each
    job; a peer may have none to choose.
    """

    def __init__(self, server: Server, has_slots: bool) -> None:
        self.name = server.name
        self._server, self._has_slots = server, has_slots

    def run(self, jobs: Sequence[BenchJob]) -> Sample:
        """Run the jobs at once and wait for all of them. Raises UnavailableError."""
        streams = self._server.client.streams([self._request(job) for job in jobs])
        answers = tuple(map(_answer, streams))
        if len(streams) == 1:
            return Sample(answers, streams[0].tps)
        seconds = max(stream.ended for stream in streams) - min(stream.began for stream in streams)
        return Sample(answers, per_second(sum(answer.n_predicted for answer in answers), seconds))

    def _request(self, job: BenchJob) -> tuple[str, Mapping[str, object]]:
        settings = {"temperature": job.temperature, "seed": job.seed, "max_tokens": job.max_tokens}
        return self._server.request(job.prompt, settings | ({"id_slot": job.slot} if self._has_slots else {}))


def _answer(stream: Stream) -> Answer:
    drafters = stream.uad.get("drafters", {})
    return Answer(
        ids=(),
        text="".join(stream.text),
        n_predicted=stream.n_predicted,
        n_rounds=int(stream.uad.get("rounds", 0)),
        n_drafted=int(stream.timings.get("draft_n", 0)),
        n_accepted=int(stream.timings.get("draft_n_accepted", 0)),
        by=tuple(
            DrafterStats(
                Origin(name),
                n_drafts=drafter["drafts"],
                n_drafted=drafter["draft_n"],
                n_accepted=drafter["draft_n_accepted"],
            )
            for name, drafter in drafters.items()
        ),
    )


def n_prompt_tokens(client: Client, prompt: WorkloadPrompt) -> int:
    """Tokens of a prompt on `uad serve`: through the chat template, or as it stands, where the letters of a special are
    only letters. Raises UnavailableError.
    """
    text, is_chat = prompt.text, prompt.chat
    if is_chat:
        text = str(client.post("/apply-template", {"messages": [{"role": "user", "content": text}]}).get("prompt", ""))
    tokens = client.post("/tokenize", {"content": text, "add_special": True, "parse_special": is_chat}).get("tokens")
    if not isinstance(tokens, list):
        raise UnavailableError(f"{client.url}/tokenize tells no tokens")
    return len(tokens)


Job = TypeVar("Job", bound=BenchJob)


def groups(jobs: Sequence[Job], size: int, n_slots: int) -> list[tuple[Job, ...]]:
    """Cut jobs into groups of exactly `size` distinct ones; the last group is filled up from the start of the list.

    Each group gets consecutive slots, the next one the slots after it as far as there are any: prompts that were read
    for groups of one size are found in the cache by those of another.
    """
    n_groups, n_places = -(-len(jobs) // size), max(n_slots // size, 1)
    # five jobs in groups of two, four slots: (a, b) in 0 and 1, (c, d) in 2 and 3, (e, a) in 0 and 1 again
    return [
        tuple(replace(jobs[(g * size + i) % len(jobs)], slot=g % n_places * size + i) for i in range(size))
        for g in range(n_groups)
    ]


def turns(n_arms: int, repeats: int, backwards: bool = False) -> Iterator[int]:
    """The order in which arms run: A B C C B A A B C …, or C B A A B C …, so that a machine that drifts favours none.

    With an odd number of repeats one direction is run once more: turn every second group round to even that out, too.
    """
    for repeat in range(repeats):
        yield from range(n_arms) if (repeat % 2 == 1) is backwards else reversed(range(n_arms))


@dataclass(frozen=True, slots=True)
class Measured:
    """All counted runs of one group of prompts: `runs[i]` are those of arm i, each with plain decoding of its turn."""

    names: tuple[str, ...]
    runs: tuple[tuple[ArmPair, ...], ...]


def measure(
    jobs: Sequence[BenchJob],
    plain: Arm,
    arms: Sequence[Arm],
    repeats: int,
    on_run: Callable[[], None],
    backwards: bool = False,
) -> Measured:
    """Run one group plainly and under every arm, in turns; `backwards` starts with the last one. Raises UadError."""
    sides = [plain, *arms]
    samples: list[list[Sample]] = [[] for _ in sides]
    for side in turns(len(sides), repeats, backwards):
        samples[side].append(sides[side].run(jobs))
        on_run()
    # every side ran once in each turn: the plain run of a turn is what its others are compared with
    pairs = [tuple(map(ArmPair, samples[0], of_arm)) for of_arm in samples[1:]]
    return Measured(tuple(job.prompt.name for job in jobs), tuple(pairs))
