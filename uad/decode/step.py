"""The loop's one step: propose, decode, verify, commit, for all sequences at once. No branch on the kind of drafter, no
clock in a decision but the length of a prompt's chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, nan
from time import perf_counter
from typing import Any

from uad.common.logits import Outputs
from uad.decode.catching_up import catch_up, n_at_once
from uad.decode.drafting import Drafting
from uad.decode.layout import Least, longest_draft, padding, sizes_of_passes
from uad.decode.prefill import SOON_S, Prefill
from uad.decode.prompt_cache import PromptCache
from uad.decode.scheduler import SamplerFactory, Scheduler
from uad.decode.sequence import Running
from uad.decode.target import Target
from uad.decode.verify import verify
from uad.errors import AbortedError, NoKvRoomError, UadError
from uad.events import CacheCounts, EngineView, Sink, SlotInfo, Totals
from uad.grammar.protocol import Matcher
from uad.policy.protocol import Chosen, Wish
from uad.sampling.sampler import token_prob
from uad.stats import DrafterStats
from uad.types import Clock, Commit, Draft, Request, Rows, TokenProb

NO_DRAFT = Draft()
_PLAIN = Chosen(NO_DRAFT)
_ANY_IDS = (0, 0)
PROB_ROWS = 64  # of a prompt at once whose probabilities are asked for: as many logits as a long draft has
_NO_LOGITS: Outputs = ()


@dataclass(slots=True)
class _SequenceRows:
    """One sequence's rows in this round: committed ids the KV lacks, then the draft. n_logits 0: a prompt's chunk
    without probabilities. draws: whether ids are drawn, and not only read. n_level: how many rows it should
    have at least, so that it shares passes with its neighbours.
    """

    running: Running
    pending: Sequence[int]
    draft: Draft
    n_logits: int
    n_level: int = 0
    draws: bool = True

    @property
    def n_rows(self) -> int:
        return len(self.pending) + len(self.draft.ids)

    def rows(self, n_extra: int, least: int) -> Rows:
        """The rows with n_extra dummies after them. The output layer, too, must not be alone with fewer than `least`
        rows.
        """
        ids = [*self.pending, *self.draft.ids]
        ids += ids[-1:] * n_extra
        n_logits = min(len(ids), max(self.n_logits + n_extra, least)) if self.n_logits else 0
        return Rows(self.running.slot, self.running.n_past, ids, n_logits, len(self.draft.ids) + n_extra)


class Engine:
    """Runs requests on a target. Everything here happens on one thread; events go to each request's sink.

    least: no pass over the weights may be smaller; dummy rows fill up (see `layout.padding`). matchers, cache: see
    `Scheduler`.
    """

    def __init__(
        self,
        target: Target,
        drafting: Drafting | None,
        samplers: SamplerFactory,
        seeds: Callable[[], int],
        *,
        least: Least | None = None,
        clock: Clock = perf_counter,
        matchers: dict[int, Matcher] | None = None,
        cache: PromptCache[Any] | None = None,
    ) -> None:
        self._target = target
        self._drafting = drafting
        self._least = least or Least()
        self._clock = clock
        self._requests = Scheduler(
            target,
            drafting,
            samplers,
            seeds,
            self.limit,
            clock,
            {} if matchers is None else matchers,
            cache=cache,
            rate=lambda: self._prefill.rate,
        )
        self._longest_draft = longest_draft(target.n_alike, target.n_batch, target.n_seq, self._least)
        self._prefill = Prefill(target.n_ubatch, target.n_batch - (self._least.rows - 1), clock)
        self._cache = cache
        self._n_decodes = self._n_busy_slots = 0
        self._n_written = self._n_rounds = self._depth = 0
        self._pass_ends = inf  # when the pass is expected to end that may be interrupted

    @property
    def limit(self) -> int:
        """Most ids, prompt and answer, that one sequence may have: dummy rows need positions too."""
        return self._target.n_ctx - (self._least.rows - 1)

    # --- what others ask

    def check(self, request: Request) -> None:
        """Raises what a submission of this request would."""
        self._requests.check(request)

    def submit(self, number: int, request: Request, sink: Sink) -> None:
        """The request waits for a slot; it was checked."""
        self._requests.submit(number, request, sink)

    def cancel(self, number: int) -> None:
        """Frees the request's slot now. No event follows."""
        self._requests.cancel(number)

    def fail_all(self, error: UadError) -> None:
        """Every request, running or waiting, ends with this error."""
        self._requests.fail_all(error)

    def forget(self) -> None:
        """Nothing that slots hold serves later prompts, since the target computes other values now. Only while idle."""
        self._requests.forget()

    def tell_all(self, error: UadError) -> None:
        """See `Scheduler.tell_all`. The last call that an engine gets, on any thread: the one that decodes is lost."""
        self._requests.tell_all(error)

    def interrupt(self, wanted: bool = True) -> None:
        """From any thread: a pass over a prompt ends soon, since a request waits, unless it will anyway. Until it is
        not wanted any more.
        """
        if not wanted or self._pass_ends - self._clock() > SOON_S:
            self._target.interrupt(wanted)

    @property
    def has_room(self) -> bool:
        """Whether a slot is free. From any thread."""
        return self._requests.has_room

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""
        return self._requests.is_idle

    def spare(self) -> tuple[int, int] | None:
        """See `Scheduler.spare`. Only while idle."""
        return self._requests.spare()

    def slots(self) -> tuple[SlotInfo, ...]:
        """What each slot does and holds."""
        return self._requests.slots()

    def drafters(self) -> tuple[DrafterStats, ...]:
        """What each drafter did since start."""
        return self._drafting.stats() if self._drafting is not None else ()

    def totals(self) -> Totals:
        """What was done since start."""
        n_policy_failures = self._drafting.n_policy_failures if self._drafting is not None else 0
        cache = self._cache.counts if self._cache is not None else CacheCounts()
        totals = replace(self._requests.totals, n_decodes=self._n_decodes, n_busy_slots=self._n_busy_slots)
        return replace(totals, n_policy_failures=n_policy_failures, cache=cache)

    def rest(self) -> None:
        """To be called while nothing runs or waits, and no request is expected at this moment."""
        self._requests.rest()

    def view(self) -> EngineView:
        """What happens now, for display. On the model thread."""
        depth = self._depth
        if self._drafting is None:
            return EngineView(self._n_written, self._n_rounds, depth)
        policy, lengths, drafters = self._drafting.view(depth)
        return EngineView(self._n_written, self._n_rounds, depth, policy.curve, policy.plain, lengths, drafters)

    # --- a round

    def step(self) -> None:
        """One round for all sequences: those that write share one decode; then each that still reads its prompt gets a
        chunk decoded.

        Apart, because llama.cpp would cut a batch of both into the same passes, and writers need not wait for their
        tokens. What fails ends the requests that it concerns; what is raised says that the engine cannot go on.
        """
        self._requests.admit()
        if self._least.rows > 1:
            catch_up(self._target, self._requests.writing, self._least, self._fail_decode)
        writing = self._requests.writing
        if writing:
            self._round(writing)
        if self._requests.reads:
            for reader, n in self._prefill.pieces(lambda: self._requests.reading, bool(writing), self._target.can_stop):
                if not self._read(reader, n):
                    break  # the request that interrupted it waits for the end of the round

    def _round(self, writing: Sequence[Running]) -> None:
        """One decode of all that write. Where drafting is not in use, no policy is asked or taught."""
        drafting = self._drafting
        if drafting is None or not drafting.is_in_use:
            self._write([_SequenceRows(running, running.pending(), NO_DRAFT, 1) for running in writing])
            return
        began = self._clock()
        chosen, asking = self._propose(drafting, writing)
        spent = asking + self._write([self._part(running, chosen.get(running.slot, _PLAIN)) for running in writing])
        if not chosen:
            drafting.plain_round(self._clock() - began - spent)

    def _propose(self, drafting: Drafting, writing: Sequence[Running]) -> tuple[Mapping[int, Chosen], float]:
        """What each slot submits, and the seconds that it took."""
        began = self._clock()
        chosen = drafting.propose([self._wish(running) for running in writing])
        seconds = self._clock() - began
        drafted = [running for running in writing if running.slot in drafting]
        for running in drafted:
            running.drafted.draft_ms += 1e3 * seconds / len(drafted)
            if (crossing := drafting.crossing(running.slot)) is not None:
                running.drafted.crossing += crossing
        return chosen, seconds

    def _wish(self, running: Running) -> Wish:
        """A draft is no longer than what can still be written, fits into one pass, and leaves every sequence its share
        of the batch.
        """
        room = max(min(running.n_left - 1, self._longest_draft), 0)
        n_pending = len(running.ids) - running.n_past
        matcher = running.sampler.matcher
        is_forced = matcher is not None and bool(matcher.expected)
        request = running.request
        is_predicted = bool(request.prediction)
        return Wish(
            *(running.slot, request.speculative, room, running.n_past, running.n_left, n_pending),
            *(is_forced, is_predicted),
        )

    @staticmethod
    def _part(running: Running, chosen: Chosen) -> _SequenceRows:
        return _SequenceRows(running, running.pending(), chosen.draft, 1 + len(chosen.draft.ids), chosen.n_rows)

    def _write(self, parts: Sequence[_SequenceRows]) -> float:
        """The round's decode of all sequences that write; returns the seconds that it took, and passes them to the
        policy.
        """
        depth = sum([part.running.n_past for part in parts]) // len(parts)
        self._depth = depth
        seconds, every, most = 0.0, list[dict[int, int]](), self._least.most_sequences(self._target.n_ubatch)
        for at in range(0, len(parts), most):
            took, counts = self._run(parts[at : at + most])
            seconds += took
            every.append(counts)
        if self._drafting is not None and self._drafting.is_in_use and seconds > 0:
            sizes = [size for counts in every for size in sizes_of_passes(counts, self._target.n_ubatch)]
            self._drafting.decoded(sizes, depth, seconds)
        return seconds

    def _read(self, running: Running, n: int) -> bool:
        """Decode the next n ids of a prompt. False: that was interrupted, or failed."""
        wants_probs = running.request.prompt_probs
        n = self._whole(running, min(n, PROB_ROWS) if wants_probs else n)
        draws = n == running.n_unread and running.request.max_tokens != 0
        n_logits = n if wants_probs else int(draws)
        self._pass_ends = self._clock() + self._prefill.seconds(running, n)
        part = _SequenceRows(running, running.pending()[:n], NO_DRAFT, n_logits, draws=draws)
        seconds, counts = self._run([part], may_stop=self._target.can_stop and self._prefill.may_stop(running, n))
        self._pass_ends = inf
        if counts:
            self._prefill.took(running, n, seconds)
        return bool(counts)

    def _whole(self, running: Running, n: int) -> int:
        """Of the next n ids of a prompt, those that are best decoded at once. Where marks help later prompts, the last
        ones come apart, after a mark. Where dummy rows cannot be taken back, no pass but the last is so small that it
        needs some.
        """
        tail, least = self._target.tail, self._least.rows
        if tail and n == running.n_unread > 2 * tail:
            n -= tail
        elif tail:
            self._target.mark(running.slot, is_last=n == running.n_unread)
        may_wait = self._target.n_free < least and n < running.n_unread
        return n_at_once(n, self._target.n_ubatch, least) if may_wait else n

    # --- decode, verify, commit

    def _run(self, parts: Sequence[_SequenceRows], may_stop: bool = False) -> tuple[float, dict[int, int]]:
        """Decode, verify and commit; returns the seconds that the decode took (0: it failed, and its requests with it,
        or was interrupted) and the rows of each sequence.
        """
        extra = self._padding(parts)
        began = self._clock()
        try:
            rows = self._target.prepare(
                [part.rows(extra.get(part.running.slot, 0), self._least.rows) for part in parts]
            )
            counts = {row.seq: len(row.ids) for row in rows}
            began = self._clock()
            self._target.decode(rows, may_stop)
            logits = self._target.rows() if any(row.n_logits for row in rows) else _NO_LOGITS
        except AbortedError:
            self._prefill.lost(self._clock() - began)
            for part in parts:
                part.running.n_past = self._target.take_back(part.running.slot, part.running.n_past)
            return 0.0, {}
        except Exception as error:
            self._fail_decode([part.running for part in parts], error)
            return 0.0, {}
        seconds = self._clock() - began
        self._n_decodes += 1
        self._n_busy_slots += len(self._requests.running)
        at = 0
        for part, row in zip(parts, rows, strict=True):
            at += row.n_logits
            n_extra = extra.get(part.running.slot, 0)
            try:
                self._settle(
                    part, logits[at - n_extra - part.n_logits : at - n_extra] if part.n_logits else _NO_LOGITS, n_extra
                )
            except Exception as error:  # of its sampler, its text or its sink
                self._requests.fail([part.running], error)
        return seconds, counts

    def _fail_decode(self, runnings: Sequence[Running], error: Exception) -> None:
        """The requests of this decode end. Raises where the target is at fault and not they: it cannot decode anything
        else either.
        """
        self._requests.fail(runnings, error)
        if not isinstance(error, NoKvRoomError):
            seq = runnings[0].slot
            self._target.decode([Rows(seq, 0, _ANY_IDS, 1)])
            self._target.clear(seq)

    def _padding(self, parts: Sequence[_SequenceRows]) -> dict[int, int]:
        """Dummy rows by sequence: up to the level that makes one pass, then up to the least that computes the same
        bits.
        """
        extra: dict[int, int] = {}
        for part in parts:
            if part.n_level > part.n_rows and self._target.n_free >= part.n_level - part.n_rows:
                room = self._target.n_ctx - part.running.n_past - (self._least.rows - 1)
                extra[part.running.slot] = max(min(part.n_level, room) - part.n_rows, 0)
        if self._least.rows == 1:
            return extra
        levelled = {part.running.slot: part.n_rows + extra.get(part.running.slot, 0) for part in parts}
        for seq, n in padding(levelled, self._target.n_ubatch, self._least).items():
            extra[seq] = extra.get(seq, 0) + n
        return extra

    def _settle(self, part: _SequenceRows, logits: Outputs, n_extra: int) -> None:
        """Verify, take back what was not accepted and the dummy rows, commit, pass on the results."""
        running = part.running
        end = running.n_past + part.n_rows + n_extra
        begin = running.n_past
        running.n_past += len(part.pending)
        if running.is_prefilling and (running.request.progress or running.request.prompt_probs):
            running.sink(running.progress(self._clock(), self._prompt_probs(running, begin, logits)))
        if not part.draws:
            self._take_back(running, end)
            if running.n_past == running.n_prompt:  # max_tokens 0: only the cache was to be filled
                self._requests.finish(running, running.end_with_prompt(self._clock()))
            return
        at, logits = running.position, logits[-(1 + len(part.draft.ids)) :]
        verdict = verify(
            running.sampler, logits, part.draft.ids, at, running.vocab, running.ends.ids, self._describer(running)
        )
        delta, done = running.take(verdict, part.draft, self._clock())
        n_kept = min(verdict.n_accepted, len(delta.ids))
        self._n_written += len(delta.ids)
        self._n_rounds += 1
        running.n_past += n_kept
        self._take_back(running, end)
        if self._drafting is not None:
            self._drafting.commit(Commit(running.slot, delta.ids, len(part.draft.ids), n_kept), part.draft)
        running.sink(delta)
        if done is not None:
            self._requests.finish(running, done)

    def _take_back(self, running: Running, end: int) -> None:
        """The KV, which holds `end` ids, keeps those of the text. Called once per decode, since some memories can go
        back only once. Where it goes back further, the ids between are decoded again with the next ones.
        """
        if running.n_past < end:
            running.n_past = self._target.take_back(running.slot, running.n_past)

    @staticmethod
    def _prompt_probs(running: Running, begin: int, logits: Outputs) -> tuple[TokenProb, ...]:
        """Those of the prompt's ids after `begin`, each by the row before it; [n, n_vocab] are the rows from there."""
        if not running.request.prompt_probs:
            return ()
        n_top, pieces = running.request.n_probs, running.vocab.texts
        first = () if begin else (TokenProb(running.ids[0], pieces[running.ids[0]], nan),)
        following = running.ids[begin + 1 : begin + 1 + len(logits)]
        return (*first, *(token_prob(row, id_, n_top, pieces) for row, id_ in zip(logits, following, strict=False)))

    def _describer(self, running: Running) -> Callable[[Any, int], TokenProb] | None:
        if not running.request.logprobs:
            return None
        n_top, pieces = running.request.n_probs, running.vocab.texts
        if running.request.post_sampling:
            return lambda row, id_: running.sampler.drawn_prob(id_, n_top, pieces)
        return lambda row, id_: token_prob(row, id_, n_top, pieces)
