"""A scripted runner with the shapes of vLLM's: rows that move, prompts in pieces, requests that leave and come back.

Its target writes an id that is a function of the last ids, and of the request's number, so that equal texts part.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from uad.base.types import GREEDY, Ask, Commit, Draft, Origin, SamplingParams
from uad.engine.drafter import Pace

N_VOCAB = 40
Propose = Callable[[list[list[int]], np.ndarray, np.ndarray], list[list[int]]]


def crc(*values: int) -> int:
    """A number that depends on all of them and on their order."""
    return zlib.crc32(np.array(values, np.int64).tobytes())


@dataclass
class ScriptedRequest:
    """One request: its text so far, and what was drafted for it. n_read: ids that the target has read."""

    number: int
    ids: list[int]
    n_most: int
    n_read: int = 0
    draft: list[int] = field(default_factory=list)
    n_written: int = 0

    def following(self, ids: Sequence[int]) -> int:
        """What the target writes after these."""
        return crc(self.number, *ids[-4:]) % N_VOCAB

    @property
    def is_done(self) -> bool:
        return self.n_written >= self.n_most


class ScriptedRunner:
    """Batches of at most n_rows requests of at most max_len ids, prompts in pieces of `chunk`.

    cost: seconds of a step by its rows; the clock moves by it. seen: called with each row's request, what was sampled
    and what was proposed, before that is verified.
    """

    def __init__(
        self,
        n_rows: int,
        max_len: int,
        chunk: int = 64,
        cost: Callable[[int], float] = lambda n: 0.01,
        seen: Callable[[ScriptedRequest, list[int], list[int]], None] = lambda *_: None,
    ) -> None:
        self.ids = np.full((n_rows, max_len), -1, np.int32)
        self.n_tokens = np.zeros(n_rows, np.int32)
        self.rows: list[ScriptedRequest] = []
        self.n_rows, self.max_len, self.chunk = n_rows, max_len, chunk
        self.cost, self.seen = cost, seen
        self.now = 0.0
        self.n_steps = 0

    def clock(self) -> float:
        return self.now

    def add(self, request: ScriptedRequest) -> None:
        """It is part of the batch from the next step on; all of its ids are read (again)."""
        request.n_read, request.draft = 0, []
        self.rows.append(request)

    def remove(self, request: ScriptedRequest) -> None:
        """It ends, or is preempted; the last row takes its place, as in vLLM."""
        at = self.rows.index(request)
        last = self.rows.pop()
        if last is not request:
            self.rows[at] = last

    def step(self, propose: Propose) -> None:
        """Read and write, then ask for drafts."""
        sampled: list[list[int]] = []
        n = 0
        for request in self.rows:
            if request.n_read < len(request.ids) - 1 or not request.n_read:
                piece = min(self.chunk, len(request.ids) - request.n_read)
                n += piece
                request.n_read += piece
                is_read = request.n_read == len(request.ids)
                sampled.append([request.following(request.ids)] if is_read else [])
            else:
                draft = request.draft[: self.max_len - len(request.ids) - 1]
                n += 1 + len(draft)
                sampled.append(self._verified(request, draft))
            request.ids += sampled[-1]
            request.n_written += len(sampled[-1])
            request.n_read = len(request.ids) - 1 if sampled[-1] else request.n_read
        for row, request in enumerate(self.rows):
            self.ids[row, : len(request.ids)] = request.ids
            self.n_tokens[row] = len(request.ids)
        self.now += self.cost(n)
        self.n_steps += 1
        proposed = propose(sampled, self.n_tokens, self.ids)
        assert len(proposed) == len(self.rows)
        for request, new, draft in zip(self.rows, sampled, proposed, strict=True):
            self.seen(request, new, draft)
            request.draft = list(draft) if new else []

    def _verified(self, request: ScriptedRequest, draft: Sequence[int]) -> list[int]:
        written: list[int] = []
        for guess in [*draft, -1]:
            written.append(request.following([*request.ids, *written]))
            if written[-1] != guess:
                break
        return written[: self.max_len - len(request.ids)]


class TextDrafter:
    """Guesses that are a function of the whole text, so that any id that is missing or wrong changes them.

    share: how often an id of a guess is the target's, for a drafter that is told the number of the request.
    """

    def __init__(
        self, origin: Origin = Origin.NGRAM_SIMPLE, right: Callable[[list[int], int], int] | None = None
    ) -> None:
        self.origin = origin
        self.texts: dict[int, list[int]] = {}
        self.n_begun = self.n_observed = 0
        self._right = right

    def begin(self, seq: int, prompt: Sequence[int], sampling: SamplingParams = GREEDY) -> None:
        self.texts[seq] = list(prompt)
        self.n_begun += len(prompt)

    def propose(self, asks: Sequence[Ask], pace: Pace | None = None) -> list[Draft]:
        return [self.guess(self.texts[ask.seq], ask.n_max) for ask in asks]

    def guess(self, text: Sequence[int], n: int) -> Draft:
        """The guess after a text, whatever was before."""
        ids = list(text)
        for i in range(n):
            ids.append(self._right(ids, i) if self._right else crc(*ids) % N_VOCAB)
        return Draft(tuple(ids[len(text) :]), (0.9,) * n, self.origin, kind=str(self.origin))

    def observe(self, commit: Commit) -> None:
        self.texts[commit.seq] += commit.ids
        self.n_observed += len(commit.ids)

    def end(self, seq: int) -> None: ...

    def reset(self) -> None:
        self.texts.clear()


def arrivals(rng: random.Random, n: int, max_len: int) -> list[ScriptedRequest]:
    """n requests; some go on after others' prompts, some have the same."""
    made: list[ScriptedRequest] = []
    for number in range(n):
        prompt = [rng.randrange(N_VOCAB) for _ in range(rng.randrange(1, max_len // 2))]
        if made and rng.random() < 0.4:
            prompt = list(rng.choice(made).ids[: max_len // 2]) + prompt[: rng.choice((0, 0, 3))]
        made.append(ScriptedRequest(number, prompt, rng.randrange(1, 40)))
    return made
