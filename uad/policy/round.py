"""One round of the automatic policy: whom to ask, when to stop drafting, how much to submit, and what it was worth.

A round is worth (ids expected) / (cost of its decode + cost of its drafting). Drafting goes on while that is expected to rise, steps in the
curve looked past, or while it is worth finding out whether it will; the length at which it peaks is submitted. Arithmetic only: no clock,
no model, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from uad.policy.bins import N_BINS, bin_of
from uad.policy.calibration import Calibration, TextOdds
from uad.policy.candidate import Candidate, best_of, compare, gains_of, merged
from uad.policy.machine import Table
from uad.policy.memory import STALE, TIMED_IDS, TYPICAL_ROUNDS, Memory
from uad.policy.outlook import HORIZON, Stay
from uad.policy.protocol import Chosen, Wish
from uad.policy.standing import FREE_TIMES, MOST_TIMES
from uad.policy.text import Text
from uad.types import Ask, Draft, Origin

_USUAL_ROWS: Final = 18  # whose costs are looked up beforehand
_HOPELESS: Final = 0.02  # a guess less likely than this is not worth looking behind
_SURE: Final = 0.8  # of a guess at its best length: then it may spare asking the draft model
_LIKELY: Final = 0.02  # that a draft stays sure; nobody goes on for less
_NO_GAIN: Final = 1 + 1e-9
_CLEAR: Final = 1.03  # times the rate without drafts: the best of many lengths, each an estimate, promises more than it keeps
_ROUND_STAKE: Final = 3.0  # plain decodes that a text may lose in one round
_USUAL_TIMES: Final = 10.0  # and so often what a round of such texts saves
_ALL: Final = 1 << 30  # ids: who looks texts up reads at once
_MODEL: Final = Origin.MODEL  # members of an enum are slow to reach
NO_DRAFT: Final = Draft()
_TWO_ROWS: Final = Chosen(NO_DRAFT, 2)


class _Member:
    """A sequence that may draft in this round. `lessons` are guesses of unknown kinds: judged by the text, but not submitted.

    `table` has the costs of its group of `size` sequences. While the draft model writes: how far its kind of drafts can be believed, the
    bins of its beliefs, this text's odds, how likely all ids are right, and how many of the next ones are expected to be.
    """

    # compiled, other than that of a dataclass
    def __init__(self, wish: Wish, text: Text, table: Table, size: int, calibration: Calibration) -> None:
        self.wish = wish
        self.text = text
        self.table = table
        self.size = size
        self.calibration = calibration
        self.outlook = calibration.outlook
        self.p = 1.0
        self.odds = 1.0
        self.hope = 0.0
        self.ahead: list[float] = []
        self.bins: list[int] = []
        self.candidates: list[Candidate] = []
        self.lessons: list[Candidate] = []

    @property
    def plain_ms(self) -> float:
        """This sequence's share of a round without drafts."""
        return self.table.upto(1)[1] / self.size

    @property
    def sure_ms(self) -> float:
        """What the best of the guesses so far that are sure is worth."""
        return max([one.value for one in self.candidates if one.sure >= _SURE], default=0.0)


class AutoRound:
    """The decisions of one round."""

    def __init__(self, policy: Memory, due: Sequence[Wish], wishes: Sequence[Wish]) -> None:
        self._policy = policy
        machine = policy.machine
        self._n_writing = len(wishes)
        self._n_read = 0  # ids that each may catch up with
        self._most = 0  # ids of the draft model, for any
        depth = sum([wish.depth for wish in wishes]) // len(wishes)
        self._groups = groups_of(tuple([wish.seq for wish in wishes]))
        table = machine.table(tuple([len(group) for group in self._groups]), depth)
        self._tables = [table] if len(self._groups) == 1 else [machine.table((len(group),), depth) for group in self._groups]
        self._members = {wish.seq: self._member(wish) for wish in due}
        self._table = table
        self._costs = table.upto(_USUAL_ROWS + HORIZON)
        self._asked: list[_Member] = []
        self._timed: _Member | None = None  # whose draft model reads a few ids to show what it costs
        self._chosen: dict[int, Chosen] = {}
        self._guesses_ms = 0.0  # what all candidates and lessons cost
        self._spent_ms = 0.0  # on drafts of the draft model so far
        self._steps_ms = 0.0  # of that, in its steps
        self._n_steps = 0
        self._n_stepped = 0  # ids of all sequences in them

    def _member(self, wish: Wish) -> _Member:
        text = self._policy.text(wish.seq)
        i = next(i for i, group in enumerate(self._groups) if wish.seq in group)
        return _Member(wish, text, self._tables[i], len(self._groups[i]), self._policy.calibration(text.kind))

    # --- whom to ask

    def asks(self, origin: Origin) -> Sequence[Ask]:
        self._asked, asks = [], []
        self._n_read = self._policy.habit(origin).read_at_once(len(self._members)) if origin is _MODEL else _ALL
        for member in self._members.values():
            ask = self._ask_of(member, origin)
            if ask is not None:
                self._asked.append(member)
                asks.append(ask)
        if origin is _MODEL:
            if self._asked:
                self._begin_writing()
            else:
                asks = self._time()
        return asks

    def _time(self) -> list[Ask]:
        """Have the draft model, which is left alone, read a few ids of the first text that has them, where its costs are out of date."""
        for member in self._members.values():
            use = member.text.uses.get(_MODEL)
            unread = 0 if use is None else use.backlog(member.text)
            if unread >= 2 * TIMED_IDS and not self._policy.untimed(member.plain_ms):
                self._timed = member
                return [Ask(member.wish.seq, 0, 0, 0.0, TIMED_IDS)]
        return []

    def _ask_of(self, member: _Member, origin: Origin) -> Ask | None:
        wish, text = member.wish, member.text
        if wish.params.types and origin not in wish.params.types:
            return None
        use = text.uses.get(origin)
        if use is None:
            use = self._policy.first_use(text, origin, wish, member.size)
        if use.awake:
            if text.n >= use.reckon and not self._policy.still_wins(text, origin, use, member.plain_ms, wish, member.size):
                return None
            if origin is _MODEL and member.candidates and use.is_beaten(member.sure_ms):
                return None
        elif not self._policy.wakes(text, origin, use, member.plain_ms, wish, member.size):
            return None
        longest = min(wish.params.longest, wish.room)
        most = self._bearable(member, longest) if longest > 1 else longest
        if origin is not _MODEL:
            return Ask(wish.seq, most if most < longest else wish.room)
        self._most = max(self._most, most)
        return Ask(wish.seq, most, 0, 0.0, self._n_read)

    @staticmethod
    def _bearable(member: _Member, most: int) -> int:
        """Of at most so many ids, how many a round can draft that costs no more than what drafts saved in this text and some plain decodes
        that it may lose, more of them where rounds usually save much. However sure a draft seems, all its ids may be wrong together."""
        costs, text = member.table.upto(most + 1), member.text
        limit = costs[1] * (1.0 + _ROUND_STAKE + _USUAL_TIMES * text.usual + text.saved)
        while most > 1 and costs[most + 1] > limit:
            most -= 1
        return most

    # --- while the draft model writes

    def _begin_writing(self) -> None:
        """Look up once what does not change until all drafts are written."""
        policy, habit = self._policy, self._policy.habit(_MODEL)
        self._step_ms = [policy.step_ms(_MODEL, n) for n in range(1, len(self._asked) + 1)]
        self._per_step = habit.ids_per_step
        self._spent_ms += habit.usual_ms(paused=False)
        for member in self._asked:
            member.p = 1.0
            member.odds = member.text.uses[_MODEL].odds_of(member.text.kind).value * member.text.caution
            member.ahead, member.hope = member.outlook.ahead(member.text.run.level, N_BINS - 1), self._per_step
        self._at = [0.0]  # ids expected from row k of all sequences together
        self._start_over()

    def _start_over(self) -> None:
        """No row is part of the best so far."""
        self._n_seen = 1  # rows that are part of the best so far
        self._total = self._best_ids = float(self._n_writing)
        self._best_ms = self._costs[1]

    def wrote(self, seq: int, p: float) -> None:
        member = self._members[seq]
        if member is self._timed:
            return
        i = bin_of(p)
        member.bins.append(i)
        member.ahead = member.outlook.ahead(member.text.run.level, i)
        chance = member.calibration.chance(i)
        member.p = p = member.p * chance * member.odds / (1.0 + chance * (member.odds - 1.0))
        member.hope = self._per_step * p
        at, row = self._at, int(float(len(member.bins)) * self._per_step + 0.999)
        n_rows = len(at)
        if row > n_rows:
            at += [0.0] * (row - n_rows)
            n_rows = row
        if row == n_rows:
            at.append(member.hope)
            return
        at[row] = at[row] + member.hope
        if row < self._n_seen:
            self._start_over()

    def go_on(self, seqs: Sequence[int]) -> Sequence[bool]:
        if self._n_seen < len(self._at):
            self._look_back()
        n = len(seqs)
        if n == 1:
            one = self._members[seqs[0]]
            return [one.p > _HOPELESS and self._can_rise([one])]
        live = []
        for seq in seqs:
            one = self._members[seq]
            if one.p > _HOPELESS:
                live.append(one)
        if not live or not self._can_rise(live):
            return [False] * n
        return [True] * n if len(live) == n else [self._members[seq].p > _HOPELESS for seq in seqs]

    def _look_back(self) -> None:
        """Take the rows that were added into account: the best length so far, by the cost of its decode and of all drafting."""
        n_rows = len(self._at)
        if n_rows + HORIZON >= len(self._costs):
            self._table.upto(n_rows + HORIZON + _USUAL_ROWS)  # grows the list that is here, too
        costs, last, spent = self._costs, len(self._costs) - 1, self._spent_ms
        for row in range(self._n_seen + 1, n_rows + 1):
            self._total += self._at[row - 1]
            ms = costs[row] if row < last else costs[last]
            if self._total * (self._best_ms + spent) > self._best_ids * (ms + spent):
                self._best_ids, self._best_ms = self._total, ms
        self._n_seen = n_rows

    def _can_rise(self, live: list[_Member]) -> bool:
        """Whether some longer draft is expected to be worth more than the best so far, though it costs further steps; or may well be."""
        costs, per_step, last, step_ms = self._costs, self._per_step, len(self._costs) - 1, self._step_ms[len(live) - 1]
        best_ids, spent = self._best_ids, self._spent_ms
        best_ms = self._best_ms + spent
        n_steps = len(live[0].bins) if len(live) == 1 else max([len(one.bins) for one in live])
        row = n_steps * per_step + 1.999
        n_more = min(HORIZON, int(self._most / per_step + 0.999) - n_steps)
        for h in range(n_more):
            spent += step_ms
            row += per_step
            ids = self._total
            for one in live:
                ids += one.hope * one.ahead[h]
            if ids * best_ms > best_ids * ((costs[int(row)] if row < last else costs[last]) + spent):
                return True
        return self._is_worth_finding_out(live, n_steps, n_more)

    def _is_worth_finding_out(self, live: list[_Member], n_steps: int, n_more: int) -> bool:
        """Whether drafts are worth going on with while they stay sure, though they probably do not: a step is cheap, and shows it."""
        costs, per_step, last, step_ms = self._costs, self._per_step, len(self._costs) - 1, self._step_ms[len(live) - 1]
        rate = self._best_ids / (self._best_ms + self._spent_ms)
        hopes = [(one.hope, one.outlook.stay(one.text.run.level, one.bins[-1])) for one in live]
        if len(hopes) > 1:
            hopes.sort(key=_likeliest)
        row = n_steps * per_step + 1.999
        for h in range(n_more):
            row += per_step
            wanted = rate * ((costs[int(row)] if row < last else costs[last]) + self._spent_ms)
            ids, chance, steps = self._total, 1.0, 0.0
            for hope, stay in hopes:  # those that are likely to stay sure must make up for the others
                its_chance = stay.chance[h]
                if its_chance < _LIKELY:
                    break
                ids += hope * stay.n_right[h]
                chance *= its_chance
                steps = max(steps, stay.n_drafted[h])
                if chance * (ids - wanted) > rate * steps * step_ms:
                    return True
            if not steps:
                return False
        return False

    def stepped(self, n_seq: int, seconds: float) -> None:
        ms = 1e3 * seconds
        self._spent_ms += ms
        self._steps_ms += ms
        self._n_steps += 1
        self._n_stepped += n_seq

    # --- what came of it

    def proposed(self, origin: Origin, drafts: Sequence[Draft], seconds: float) -> None:
        if origin is _MODEL:
            self._policy.habit(origin).timed_at = self._policy.n_ids
        if self._timed is not None:
            self._learn_costs(self._timed, drafts[0].n_read, 1e3 * seconds)
        if not self._asked:
            return
        policy, habit, asked = self._policy, self._policy.habit(origin), self._asked
        steps_ms = self._steps_ms if origin is _MODEL else 0.0
        ms = max(1e3 * seconds - steps_ms, 0.0)
        if origin is _MODEL and self._n_steps and policy.machine.draft.ms(1) > 0:
            policy.machine.draft.observe(int(self._n_stepped / self._n_steps + 0.5), 0, steps_ms / self._n_steps)
        reads = [max(min(one.text.uses[origin].backlog(one.text), self._n_read), draft.n_read) for one, draft in zip(asked, drafts)]
        paused = policy.n_rounds > habit.called_at + 1
        habit.called_at = policy.n_rounds
        n_read, n_asked = sum(reads), len(asked)
        all_reading_ms = habit.called(ms, n_read, paused)
        rest = min(ms - all_reading_ms, MOST_TIMES * habit.usual_ms(paused) + 0.01)
        common = (rest + steps_ms) / n_asked
        pause_ms = max(rest - habit.call_ms, 0.0) / n_asked if paused and habit.call_ms else 0.0
        for member, draft, n in zip(asked, drafts, reads):
            text = member.text
            use = text.uses[origin]
            reading_ms = all_reading_ms * n / n_read if all_reading_ms else 0.0
            if reading_ms:
                use.standing.read(reading_ms, n, habit)
            use.read(text, n)
            if use.backlog(text) or draft.n_read >= self._n_read:  # it reads on, before anything can be said of its drafts
                use.due = text.due = 0
                continue
            if origin is _MODEL:
                habit.wrote(len(member.bins), len(draft.ids))
                member.calibration.drafted(member.bins, text.run)
            kind = text.kind if origin is _MODEL else draft.kind
            calibration = member.calibration if origin is _MODEL else policy.calibration(kind)
            candidates = member.lessons if calibration.is_unknown else member.candidates
            price_ms = common + reading_ms / TYPICAL_ROUNDS  # reading is done once for many rounds
            lasting_ms = price_ms - pause_ms if use.due and not member.sure_ms else price_ms
            candidates.append(self._candidate(member, origin, draft, calibration, use.odds_of(kind), price_ms, lasting_ms))
            self._guesses_ms += common + reading_ms

    def _learn_costs(self, member: _Member, n_read: int, ms: float) -> None:
        """The draft model read n_read ids of this text in ms; none where its KV holds them already, which tells nothing of costs."""
        habit, use, self._timed = self._policy.habit(_MODEL), member.text.uses[_MODEL], None
        habit.called_at = self._policy.n_rounds
        if n_read:
            habit.timed(ms, n_read, member.plain_ms)
            if habit.n_timed > FREE_TIMES:
                use.standing.charge(habit.timed_share)
            use.timed(habit.read_ms, member.text, n_read)
        else:
            use.read(member.text, use.backlog(member.text))

    def _candidate(
        self,
        member: _Member,
        origin: Origin,
        draft: Draft,
        calibration: Calibration,
        text_odds: TextOdds,
        price_ms: float,
        lasting_ms: float,
    ) -> Candidate:
        """lasting_ms: what it would cost if it were asked in each round; its value is what it would be worth then."""
        use = member.text.uses[origin]
        odds = text_odds.value * member.text.caution
        bins = [bin_of(belief) for belief in draft.p]
        chances = [chance * odds / (1.0 + chance * (odds - 1.0)) for chance in calibration.chances_of(bins)]
        use.follow(draft.ids, bins, calibration, text_odds)
        gains = gains_of(chances)
        saved_ms, k = self._best(member, gains)
        return Candidate(origin, draft, chances, gains, saved_ms, lasting_ms, price_ms, gains[k] / k if k else 0.0)

    @staticmethod
    def _best(member: _Member, gains: list[float]) -> tuple[float, int]:
        """Milliseconds that a guess is expected to save, before its own price, against writing id by id, and at what length.

        Of a group's common price each drafting member bears its share.
        """
        costs = member.table.upto(len(gains))
        plain, best, length = costs[1], 0.0, 0
        for k in range(1, len(gains)):
            saved = gains[k] * plain - costs[k + 1] + plain
            if saved > best:
                best, length = saved, k
        return best / member.size, length

    def choose(self) -> Mapping[int, Chosen]:
        for member in self._members.values():
            if len(member.candidates) > 1:
                compare(member.candidates, member.text.uses)
        for group, table, level in zip(self._groups, self._tables, self._levels()):
            if level > 1:
                self._submit(group, level, table)
            elif len(group) > 1:
                self._share([self._members[seq] for seq in group if seq in self._members], 0, 0.0)
        for member in self._members.values():
            self._learn(member)
        if not self._chosen and self._groups and self._policy.machine.target.n_alike(self._n_writing) >= STALE:
            self._chosen = dict.fromkeys(self._groups[0], _TWO_ROWS)
        return self._chosen

    def _levels(self) -> list[int]:
        """Rows of each sequence, by group: the highest ids per millisecond over all groups (Dinkelbach's iteration), or one each."""
        groups = [self._gains(group) for group in self._groups]
        costs = [table.upto(len(gains)) for table, gains in zip(self._tables, groups)]
        fixed_ms = self._guesses_ms - self._policy.machine.overhead_ms * (len(groups) - 1)
        if len(groups) == 1:
            return [_peak(groups[0], costs[0], self._n_writing, fixed_ms)]
        levels, ms = [1] * len(groups), fixed_ms + sum([cost[1] for cost in costs])
        if ms <= 0:
            return levels
        rate = _CLEAR * self._n_writing / ms
        while True:
            better, ids, ms = [], float(self._n_writing), fixed_ms
            for gains, cost in zip(groups, costs):
                n = _best_level(gains, cost, rate)
                better.append(n)
                ids += gains[n - 1]
                ms += cost[n]
            if ms <= 0 or ids <= rate * ms * _NO_GAIN:
                return levels
            levels, rate = better, ids / ms

    def _gains(self, group: Sequence[int]) -> list[float]:
        """Ids expected beyond one each, by the number of drafted rows of each sequence."""
        drafting = [self._members[seq] for seq in group if seq in self._members and self._members[seq].candidates]
        return merged([merged([one.gains for one in member.candidates], max) for member in drafting], sum)

    def _submit(self, group: Sequence[int], level: int, table: Table) -> None:
        """Cut the group's drafts to this level; who drafts bears its price, by what is expected of it."""
        k = level - 1
        n_rows, ms = table.level(level)
        n_rows = n_rows if len(group) > 1 or n_rows > level else 0
        drafting: list[_Member] = []
        gains: list[float] = []
        for seq in group:
            member = self._members.get(seq)
            draft = NO_DRAFT
            if member is not None and member.candidates:
                best = best_of(member.candidates, k)
                draft, is_whole = best.draft, k >= len(best.gains) - 1
                draft = draft if is_whole else draft.first(k)
                drafting += (member,)
                gains += (best.gains[-1] if is_whole else best.gains[k],)
            if draft.ids or n_rows:
                self._chosen[seq] = Chosen(draft, n_rows)
        total = sum(gains)
        per_id = ms / total if total > 0 else 0.0
        for member, gain in zip(drafting, gains):
            member.text.spent_ms += per_id * gain
        if len(group) > 1:
            self._share(drafting, k, table.upto(1)[1] / len(group) - per_id)

    @staticmethod
    def _share(drafting: Sequence[_Member], k: int, per_id: float) -> None:
        """Several share a pass of k rows more: each of their guesses is expected to save per_id milliseconds with each id.

        One that was made after a pause counts as if the others' were like it: each alone could not pay for the rows of all, and a group
        that was left alone would be left alone for ever.
        """
        for member in drafting:
            for one in member.candidates:
                use = member.text.uses[one.origin]
                if use.due == 0 and not use.is_paid:
                    one.shared_ms = per_id * (one.gains[k] if k < len(one.gains) else one.gains[-1])

    def _learn(self, member: _Member) -> None:
        text, policy = member.text, self._policy
        if member.size:
            text.plain_ms = member.plain_ms
        for one in (*member.candidates, *member.lessons):
            use = text.uses[one.origin]
            if not use.is_paid:
                text.spent_ms += one.price
            use.is_paid = False
            step_ms = self._step_ms[0] if one.origin is _MODEL else 0.0
            use.judged(one.worth, one.value, text, policy.habit(one.origin), text.plain_ms, step_ms)
        due = -1
        text.usual = 0.0
        for use in text.uses.values():
            if use.standing.birth > text.usual:
                text.usual = use.standing.birth
            if due < 0 or use.due < due:
                due = use.due
        if due > text.n and _MODEL in text.uses:
            due = min(due, text.n + max(policy.untimed(text.plain_ms), 1))
        text.due = max(due, 0)


def _likeliest(hope: tuple[float, Stay]) -> float:
    return -hope[1].chance[0]


def _peak(gains: list[float], costs: list[float], n_writing: int, spent_ms: float) -> int:
    """Rows of each sequence with the most ids per millisecond, where there is one group; one, unless others are clearly better."""
    ms = costs[1] + spent_ms
    if ms <= 0:
        return 1
    best, most = 1, _CLEAR * n_writing / ms
    for k in range(1, len(gains)):
        ms = costs[k + 1] + spent_ms
        if ms <= 0:
            return 1
        rate = (n_writing + gains[k]) / ms
        if rate > most:
            best, most = k + 1, rate
    return best


def _best_level(gains: list[float], costs: list[float], rate: float) -> int:
    """Rows of each sequence with the most ids beyond what their time is worth at this rate."""
    best, most = 1, gains[0] - rate * costs[1]
    for k in range(1, len(gains)):
        worth = gains[k] - rate * costs[k + 1]
        if worth > most:
            best, most = k + 1, worth
    return best


@lru_cache(maxsize=256)
def groups_of(seqs: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Consecutively numbered sequences, which share passes."""
    out: list[list[int]] = []
    for seq in sorted(seqs):
        if out and seq == out[-1][-1] + 1:
            out[-1].append(seq)
        else:
            out.append([seq])
    return tuple(map(tuple, out))
