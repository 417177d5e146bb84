"""Another server as one of the things that are compared: the same prompts, through its own chat template and
tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence

from uad.bench.client import Client, Stream, streaming
from uad.bench.measure import Answer, ArmPair, BenchJob, EngineArm, Sample, per_second


class PeerArm:
    """Runs jobs on another server."""

    name = "peer"

    def __init__(self, client: Client, model: str) -> None:
        self._client = client
        self._model = model

    def run(self, jobs: Sequence[BenchJob]) -> Sample:
        """Run the jobs at once, one connection each, and wait for all of them. Raises UnavailableError."""
        streams = self._client.streams([self._request(job) for job in jobs])
        answers = tuple(map(_answer, streams))
        if len(streams) == 1:
            tps = streams[0].server_tps
            return Sample(answers, streams[0].client_tps if tps is None else tps)
        seconds = max(one.ended for one in streams) - min(one.began for one in streams)
        return Sample(answers, per_second(sum(answer.n_predicted for answer in answers), seconds))

    def beside(self, plain: EngineArm, jobs: Sequence[BenchJob], first: bool) -> ArmPair:
        """One after the other: two processes would be in each other's way. Raises UadError."""
        if first:
            arm = self.run(jobs)
            return ArmPair(plain.run(jobs), arm)
        return ArmPair(plain.run(jobs), self.run(jobs))

    def _request(self, job: BenchJob) -> tuple[str, dict[str, object]]:
        path, body = streaming(self._model, job.prompt.text, job.prompt.chat)
        return path, body | {"temperature": job.temperature, "seed": job.seed, "max_tokens": job.max_tokens}


def _answer(stream: Stream) -> Answer:
    return Answer(
        ids=(),
        text="".join(stream.text),
        n_predicted=stream.n_predicted,
        n_drafted=int(stream.timings.get("draft_n", 0)),
        n_accepted=int(stream.timings.get("draft_n_accepted", 0)),
    )
