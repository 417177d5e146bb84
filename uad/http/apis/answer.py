"""An answer as it is generated: events in, frames of its dialect out, one by one or folded to the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from uad.base.events import Delta, Done, Progress, TokenText
from uad.base.stats import Timings
from uad.http.apis.choice import Choice, timings_json
from uad.http.apis.dialect import Dialect, Frame, JsonMembers
from uad.http.apis.problems import Problem
from uad.http.requests.generation import Arrival, merge


class RunningAnswer:
    """One answer in one dialect. A stream asks `frames` for each batch of events; else they are collected, and
    `to_json` folds what their frames are.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.job = dialect.job
        self._collected: list[Arrival] = []
        self._origins = TokenOrigins(len(self.job.requests))
        self._ids = None
        if self.job.token_ids and self.job.stream:
            self._ids = TokenIds([prompt.shown_ids for prompt in self.job.prompts], dialect.prompt_ids_in_choice)

    def frames(self, arrivals: list[Arrival]) -> bytes:
        """The events as a stream has them."""
        return b"".join(map(self.dialect.encoded, self._frames(merge(arrivals))))

    def failed(self, problem: Problem) -> bytes:
        """An error as the last frames of the stream."""
        frames = b"".join(map(self.dialect.encoded, self.dialect.failed(problem)))
        return frames + self.dialect.broken_ending

    def collect(self, arrivals: list[Arrival]) -> None:
        """Take in events of an answer that is sent as a whole."""
        self._collected += arrivals

    @property
    def n_chars(self) -> int:
        """The length of the collected text."""
        return sum(len(event.text) for _, event in self._collected if not isinstance(event, Progress))

    def to_json(self) -> object:
        """The whole answer. May parse a long text: for worker threads where it is one.

        Pieces with probabilities stay apart: which of them belong to a text is known within a piece.
        """
        return self.dialect.fold(self._frames(self._collected if self.job.logprobs else merge(self._collected)))

    def _frames(self, arrivals: Iterable[Arrival]) -> Iterator[Frame]:
        for index, event in arrivals:
            choice = self.dialect.choices[index]
            if isinstance(event, Progress):
                choice.n_cached = event.n_cached  # before the opening, which says it
            if not choice.is_open:
                choice.is_open = True
                opening = self.dialect.opening(choice)
                yield from opening if self._ids is None else self._ids.begin(index, self._members(opening))
            if isinstance(event, Delta):
                choice.observe(event)
                frames = self.dialect.piece(choice, event)
                yield from self._with_more(choice, frames, event.ids, event.tokens, event.timings)
            elif isinstance(event, Progress):
                yield from self._progress(choice, event)
            else:
                yield from self._with_more(choice, self._close(choice, event))

    def _close(self, choice: Choice, done: Done) -> Iterator[Frame]:
        """The text that was kept back, and what ends the sequence."""
        rest = Delta(done.request, (), (), done.text)
        choice.observe(rest)
        choice.done = done
        if rest.text:
            yield from self.dialect.piece(choice, rest)
        is_last = all(choice.done is not None for choice in self.dialect.choices)
        yield from self.dialect.closing(choice, self.dialect.choices if is_last else [])

    def _progress(self, choice: Choice, event: Progress) -> Iterator[Frame]:
        """How far the prompt was read, for a client that asked for it."""
        choice.prompt_probs += event.probs
        blank = self.dialect.blank(choice) if choice.request.progress else None
        if blank is not None:
            blank["prompt_progress"] = {
                "total": event.n_prompt,
                "cache": event.n_cached,
                "processed": event.n_past,
                "time_ms": int(event.ms),
            }
            if event.timings is not None:
                blank["timings"] = timings_json([event.timings])
            yield blank

    def _with_more(
        self,
        choice: Choice,
        frames: Iterable[Frame],
        ids: Sequence[int] = (),
        tokens: Sequence[TokenText] = (),
        timings: Timings | None = None,
    ) -> Iterable[Frame]:
        """The same frames with times, origins and ids, as far as the request asks for them."""
        if timings is None and self._ids is None and not choice.request.origins:
            return frames
        more = self._members(frames)
        if timings is not None:
            for members in more:
                members["timings"] = timings_json([timings])
        if choice.request.origins:
            self._origins.put(choice.index, tokens, more)
        return more if self._ids is None else self._ids.put(choice.index, ids, more)

    def _members(self, frames: Iterable[Frame]) -> list[JsonMembers]:
        return [self.dialect.members_of(frame) for frame in frames]


class TokenOrigins:
    """Puts the tokens of each sequence, and which drafter wrote them, into its next frame (`return_origins`). A piece
    may have no frame: its tokens wait for one.
    """

    def __init__(self, n: int) -> None:
        self._waiting: list[list[TokenText]] = [[] for _ in range(n)]

    def put(self, index: int, tokens: Sequence[TokenText], frames: list[JsonMembers]) -> None:
        """Into the frames of a piece, each its token where there are as many; else all that wait into the first."""
        waiting = self._waiting[index]
        if not waiting and len(tokens) == len(frames):
            for members, token in zip(frames, tokens, strict=True):
                members["origins"] = [_token(token)]
            return
        waiting += tokens
        if waiting and frames:
            frames[0]["origins"] = [_token(token) for token in waiting]
            waiting.clear()


class TokenIds:
    """Puts the ids of each sequence into its next frame, as vLLM does (`return_token_ids`): the prompt's into the
    first, into its choice or beside that. A piece may have no frame: its ids wait for one.
    """

    def __init__(self, prompts: Sequence[Sequence[int]], in_choice: bool) -> None:
        self._in_choice = in_choice
        self._prompts: list[Sequence[int] | None] = list(prompts)
        self._waiting: list[list[int]] = [[] for _ in prompts]

    def begin(self, index: int, frames: list[JsonMembers]) -> list[JsonMembers]:
        """The first frames of a sequence, which stand for no ids of its answer."""
        prompt = self._prompts[index]
        if prompt is not None and frames:
            self._prompts[index] = None
            if self._in_choice:
                _put_first(frames[0], "prompt_token_ids", prompt)
            else:
                frames[0]["prompt_token_ids"] = prompt
        return frames

    def put(self, index: int, ids: Sequence[int], frames: list[JsonMembers]) -> list[JsonMembers]:
        """The frames of a piece: the first of those that have a choice has all ids that wait."""
        self._waiting[index] += ids
        for members in frames:
            if members["choices"]:
                _put_first(members, "token_ids", self._waiting[index])
                self._waiting[index] = []
        return self.begin(index, frames)


def _put_first(members: JsonMembers, name: str, value: object) -> None:
    """Make it the first member of the frame's one choice."""
    members["choices"] = [{name: value, **members["choices"][0]}]


def _token(written: TokenText) -> JsonMembers:
    token: JsonMembers = {"text": written.text, "by": written.origin}
    return token | {"rejected": written.rejected} if written.rejected else token
