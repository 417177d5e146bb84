"""One request while it runs: its ids, how many are in the KV, its answer. Knows no batch and no drafter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field, replace
from math import nan
from typing import Any

from uad.base.common.logits import Likeliest, Logits, Outputs
from uad.base.events import Delta, Done, Progress, Sink, TokenText
from uad.base.stats import DrafterStats, DraftStats, Timings, Usage
from uad.base.types import Draft, Finish, Origin, PlacedImage, Request, StopKind, TokenProb, Verdict
from uad.base.types.images import n_more_cells
from uad.engine.decode.text import TextStream
from uad.engine.decode.verify import Picker
from uad.engine.sampling.noise import Position
from uad.engine.sampling.sampler import token_prob
from uad.text.grammar.protocol import Matcher
from uad.text.vocab.table import VocabTable
from uad.text.vocab.thoughts import ThoughtTracker

Describe = Callable[[Any, int], TokenProb]
NO_DRAFT = Draft()


@dataclass(frozen=True, slots=True)
class Ends:
    """ids: each of them ends the answer. never: not to be drawn. late: not to be drawn among the first `min_tokens`
    ids.
    """

    ids: frozenset[int]
    never: frozenset[int]
    late: frozenset[int]


def ends_of(request: Request, vocab: VocabTable) -> Ends:
    """`ignore_eos` bans the vocabulary's ends, as llama-server does, except those at which the request itself wants to
    stop.

    An end that only a stop string names may then be drawn, and ends the answer where the whole string was written.
    """
    asked = frozenset(request.stop_token_ids)
    known = vocab.eog | asked
    never: frozenset[int] = frozenset()
    if request.sampling.ignore_eos:
        names = {id_: name_of(id_, vocab) for id_ in vocab.eog}
        named = {id_ for id_, name in names.items() if name and any(name in word for word in request.stop)}
        never = vocab.eog - asked - named
    return Ends(
        ids=asked if request.sampling.ignore_eos else known,
        never=never,
        late=known - never if request.min_tokens > 0 else frozenset(),
    )


def name_of(id_: int, vocab: VocabTable) -> str:
    """How this id is written for people: its text, or a control token's name; empty where it has neither."""
    return vocab.pieces[id_].decode("utf-8", "replace") or vocab.special_names.get(id_, "")


@dataclass(slots=True)
class AnswerText:
    """The text of an answer while it is written, and why it ends. n of n_most ids are there, the first since `first`.

    It keeps what the next event says: ids since the last one (`fresh`), for each the text that became final with it
    (`pieces`) and the characters that it completed (`decoded`), and their probabilities.
    """

    request: Request
    vocab: VocabTable
    n_most: int
    n: int = 0
    first: float = 0.0
    position: Position = field(default_factory=Position)
    fresh: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    decoded: list[str] = field(default_factory=list)
    probs: list[TokenProb] = field(default_factory=list)
    ends: Ends = field(init=False)
    text: TextStream = field(init=False)
    indentation: Indentation = field(init=False)
    shown: Mapping[int, bytes] = field(init=False)
    thoughts: ThoughtTracker | None = field(init=False)

    def __post_init__(self) -> None:
        request, specials = self.request, self.vocab.specials
        self.ends = ends_of(request, self.vocab)
        self.text = TextStream(request.stop, request.include_stop)
        self.indentation = Indentation(request.n_indent)
        self.shown = {specials[name]: name.encode() for name in request.shown if name in specials}
        self.thoughts = ThoughtTracker(request.thoughts, self.vocab) if request.thoughts is not None else None

    def add(self, id_: int, matcher: Matcher | None, now: float) -> StopKind | None:
        """The answer goes on with this id; returns why it ends with it, if it does. matcher: the constraint, if this is
        the last id that it was passed.
        """
        self.n += 1
        self.fresh.append(id_)
        self.position = self.position.after(len(self.vocab.texts[id_]))
        self.text.decoded = ""
        piece = self.indentation.read(self._read(id_))
        self.pieces.append(piece)
        self.decoded.append(self.text.decoded)
        if self.thoughts is not None:
            self.thoughts.feed(id_)
        # llama-server's order: an id that ends the answer comes before a stop string
        if id_ in self.ends.ids:
            return StopKind.EOS if id_ in self.vocab.eog and not self.request.sampling.ignore_eos else StopKind.WORD
        if self.text.stopped is not None:
            return StopKind.WORD
        if matcher is not None and matcher.is_over:  # a constrained answer that is complete has no end id after it
            return StopKind.EOS
        most = self.request.max_predict_ms
        is_late = most > 0 and "\n" in piece and 1e3 * (now - self.first) > most
        return StopKind.LIMIT if self.n >= self.n_most or is_late or self.indentation.is_over else None

    def _read(self, id_: int) -> str:
        """The text that became final with this id. That of an id that ends the answer counts only where the request
        wants its stops.
        """
        piece, may_stop = self.vocab.texts[id_] or self.shown.get(id_, b""), self.n > self.request.min_tokens
        if not piece:
            return self.text.feed_name(name_of(id_, self.vocab), may_stop)
        if id_ in self.ends.ids and not (self.request.include_stop and id_ in self.request.stop_token_ids):
            return ""
        return self.text.feed(piece, may_stop)

    def tokens(self, draft: Draft, n_accepted: int, origins: Ids[Origin]) -> tuple[TokenText, ...]:
        """The text that each fresh id adds; the target's own id also has the rejected guess that it replaced."""
        tokens = [TokenText(text, origin) for text, origin in zip(self.decoded, origins, strict=True)]
        if n_accepted < min(len(draft.ids), len(tokens)):
            guess = b"".join([self.vocab.texts[id_] for id_ in draft.ids[n_accepted:]])
            tokens[n_accepted] = tokens[n_accepted]._replace(rejected=guess.decode("utf-8", "replace"))
        return tuple(tokens)


@dataclass(slots=True)
class Running:
    """A request in a slot. `ids` are prompt and answer; ids[:n_past] are in the target's KV; `limit` bounds their
    number. rate: ids of the prompt read per second, lately (0: not known).
    """

    number: int
    request: Request
    sink: Sink
    vocab: VocabTable
    sampler: Picker
    seed: int
    slot: int
    limit: int
    n_cached: int
    ids: list[int]
    n_past: int
    started: float
    drafted: DraftStats = field(default_factory=DraftStats)
    last: float = 0.0
    rate: float = 0.0
    n_seen: int = 0  # rows of the image at n_past that are in the KV
    n_prompt: int = field(init=False)  # ids of the prompt; a field, since several are read in every round
    answer: AnswerText = field(init=False)
    describe: Describe | None = field(init=False)

    def __post_init__(self) -> None:
        request = self.request
        self.n_prompt = len(request.prompt)
        n_most = self.limit - self.n_prompt
        n_most = n_most if request.max_tokens is None else min(n_most, request.max_tokens)
        self.answer = AnswerText(request, self.vocab, n_most)
        self.describe = _describer(request, self.vocab, self.sampler)
        if request.prediction:
            self.drafted.by[Origin.PREDICTION] = DrafterStats(Origin.PREDICTION)

    @property
    def is_prefilling(self) -> bool:
        """Whether the answer has no id yet."""
        return len(self.ids) == self.n_prompt

    @property
    def n_unread(self) -> int:
        """Ids of the prompt that the KV lacks."""
        return self.n_prompt - self.n_past

    @property
    def next_image(self) -> PlacedImage | None:
        """The next image that the KV lacks; it is to be read now where it starts at n_past."""
        return next((image for image in self.request.placed if image.start >= self.n_past), None)

    def n_cells(self, n: int) -> int:
        """Cells of the KV that the first n ids take: tokens, as users count them."""
        return n + n_more_cells(self.request.placed, n)

    def write(self, id_: int, row: Logits | Likeliest, now: float) -> StopKind | None:
        """Append the id that its sampler picked last, from this row; returns why the answer ends, if it does."""
        self.sampler.accept(id_)
        if self.describe is not None:
            self.answer.probs.append(self.describe(row, id_))
        self.n_past = len(self.ids)
        self.ids.append(id_)
        return self.answer.add(id_, self.sampler.matcher, now)

    def take(self, verdict: Verdict, draft: Draft, now: float) -> tuple[Delta, StopKind | None]:
        """Append the verdict's ids up to the end of the text; what was added, and why the answer ends, if it does."""
        if self.is_prefilling:
            self.answer.first = now
        kind, n, last = None, 0, len(verdict.ids)
        for n, id_ in enumerate(verdict.ids, 1):
            self.ids.append(id_)
            kind = self.answer.add(id_, self.sampler.matcher if n == last else None, now)
            if kind is not None:
                break
        self.answer.probs += verdict.probs[:n]
        return self.delta(now, draft, min(verdict.n_accepted, n)), kind

    def delta(self, now: float, draft: Draft = NO_DRAFT, n_accepted: int = 0) -> Delta:
        """The text added since the last delta: all of it by plain rounds, or in one round with this draft."""
        ms = 1e3 * (now - (self.last or now))
        self.last = now
        answer = self.answer
        n = len(answer.fresh)
        self.drafted.count(draft, n_accepted, 1 if draft.ids else n, n, ms)
        origins = (draft.origin,) * n_accepted + (Origin.TARGET,) * (n - n_accepted)
        timings = self.timings(now) if self.request.timings else None
        tokens = answer.tokens(draft, n_accepted, origins) if self.request.origins else ()
        text, pieces = "".join(answer.pieces), tuple(answer.pieces)
        delta = Delta(self.number, tuple(answer.fresh), origins, text, tuple(answer.probs), pieces, timings, tokens)
        for pending in (answer.fresh, answer.pieces, answer.decoded, answer.probs):
            pending.clear()
        return delta

    def progress(self, now: float, probs: tuple[TokenProb, ...] = ()) -> Progress:
        """How far the prompt was read."""
        timings = self.timings(now) if self.request.timings else None
        ms = 1e3 * (now - self.started)
        counts = self.n_cells(self.n_prompt), self.n_cells(self.n_cached), self.n_cells(self.n_past)
        return Progress(self.number, *counts, ms, probs, timings)

    def prompt_probs(self, begin: int, logits: Outputs) -> tuple[TokenProb, ...]:
        """Probabilities of the prompt's ids after `begin`, each by the row before it; [n, n_vocab] are the rows from
        there.
        """
        if not self.request.prompt_probs:
            return ()
        n_top, pieces = self.request.n_probs, self.vocab.texts
        first = () if begin else (TokenProb(self.ids[0], pieces[self.ids[0]], nan),)
        following = self.ids[begin + 1 : begin + 1 + len(logits)]
        return (*first, *(token_prob(row, id_, n_top, pieces) for row, id_ in zip(logits, following, strict=False)))

    def done(self, kind: StopKind) -> Done:
        """The last event of an answer that ended for this reason."""
        answer = self.answer
        word = answer.text.stopped
        if word is None:  # the name of the id at which the request wanted to stop
            word = name_of(self.ids[-1], self.vocab) if kind is StopKind.WORD else ""
        n_thoughts = answer.thoughts.n if answer.thoughts else 0
        return Done(
            request=self.number,
            finish=Finish.LENGTH if kind is StopKind.LIMIT else Finish.STOP,
            stop_kind=kind,
            usage=Usage(self.n_cells(self.n_prompt), self.n_cells(self.n_cached), answer.n, n_thoughts),
            timings=self.timings(self.last),
            text=answer.indentation.read(answer.text.finish()),
            stopping_word=word,
            seed=self.seed,
            slot=self.slot,
            truncated=kind is StopKind.LIMIT and len(self.ids) >= self.limit,
        )

    def timings(self, now: float) -> Timings:
        """Reading the prompt, from start to the first id of the answer; writing, from there to the last. Until now."""
        n_read = min(self.n_past, self.n_prompt) if self.is_prefilling else self.n_prompt
        first = now if self.is_prefilling and not self.answer.first else self.answer.first
        return Timings(
            prompt_ms=1e3 * (first - self.started),
            predicted_ms=1e3 * (self.last - first) if self.last else 0.0,
            n_prompt=self.n_cells(n_read) - self.n_cells(self.n_cached),
            n_cached=self.n_cells(self.n_cached),
            n_predicted=self.answer.n,
            draft=replace(self.drafted, by=dict(self.drafted.by)),
        )


def _describer(request: Request, vocab: VocabTable, sampler: Picker) -> Describe | None:
    """The description of each id that a request wants beside its text: its log-probability and the likeliest others."""
    if not request.logprobs:
        return None
    n_top, pieces = request.n_probs, vocab.texts
    if request.post_sampling:
        return lambda row, id_: sampler.drawn_prob(id_, n_top, pieces)
    return lambda row, id_: token_prob(row, id_, n_top, pieces)


class Indentation:
    """Where a text ends because a line begins too far to the left: for code that is filled in inside a block. Reads it
    as it comes. After the first line end each line must begin with n blanks or tabs at least; an empty
    line has none. n 0: any line may follow.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._blanks: int | None = None  # of the line that has begun; None: it has more than blanks, or is the first
        self.is_over = False

    def read(self, text: str) -> str:
        """The text goes on with this; returns what of it belongs to the answer."""
        if not self._n:
            return text
        if self.is_over:
            return ""
        for i, char in enumerate(text):
            if self._blanks is not None and char in " \t":
                self._blanks += 1
            elif self._blanks is not None and self._blanks < self._n:
                self.is_over = True
                return text[:i]
            else:
                self._blanks = 0 if char == "\n" else None
        return text
