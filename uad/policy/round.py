"""One round of the automatic policy: whom to ask, when to stop drafting, how much to submit, and what it was worth.

A round is worth (ids expected) / (cost of its decode + cost of its drafting). Drafting goes on while that can still rise, steps in the
curve looked past; the length at which it peaks is submitted. Arithmetic only: no clock, no model, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from uad.policy.calibration import HORIZON
from uad.policy.memory import Memory
from uad.policy.protocol import Chosen, Wish
from uad.policy.text import NEVER, Text, Use
from uad.types import Ask, Draft, Origin

_HOPELESS = 0.02  # a guess less likely than this is not worth looking behind
_NO_GAIN = 1 + 1e-9
_MOST_TIMES = 3.0  # a measured cost counts as no more than so many times the expected one
NO_DRAFT = Draft()


@dataclass(slots=True)
class Candidate:
    """A drafter's guess for one sequence. gains[k] are the ids expected to be accepted of the first k; spent_ms what it cost."""

    origin: Origin
    draft: Draft
    gains: list[float]
    spent_ms: float = 0.0


@dataclass(slots=True)
class _Member:
    """A sequence that may draft in this round. `lessons` are guesses of unknown kinds: judged by the text, but not submitted.

    While the draft model writes: what it believes of each id, and how likely all are right.
    """

    wish: Wish
    text: Text
    size: int
    candidates: list[Candidate] = field(default_factory=list)
    lessons: list[Candidate] = field(default_factory=list)
    beliefs: list[float] = field(default_factory=list)
    p: float = 1.0


class AutoRound:
    """The decisions of one round."""

    def __init__(self, policy: Memory, due: Sequence[Wish], wishes: Sequence[Wish]) -> None:
        self._policy = policy
        writing = [wish for wish in wishes if wish.room >= 0]
        self._groups = groups_of([wish.seq for wish in writing])
        sizes = {seq: len(group) for group in self._groups for seq in group}
        self._members = {wish.seq: _Member(wish, policy.text(wish.seq), sizes.get(wish.seq, 0)) for wish in due}
        self._n_writing = len(writing)
        self._depth = sum(wish.depth for wish in writing) // len(writing) if writing else 0
        most = max((wish.params.n_max for wish in due), default=0)
        self._costs = policy.machine.table(tuple(map(len, self._groups)), self._depth).upto(most + HORIZON + 2)
        self._asked: list[Ask] = []
        self._origin = Origin.TARGET
        self._chosen: dict[int, Chosen] = {}
        self._spent_ms = 0.0  # on drafts so far
        self._steps_ms = 0.0  # of that, in steps of the draft model
        self._n_steps = 0
        self._n_stepped = 0  # ids of all sequences in them
        self._at: list[float] = [0.0]  # ids expected from row k of all sequences together
        self._n_seen = 1  # rows that are part of the best so far
        self._changed_from = NEVER
        self._best_ids = float(self._n_writing)
        self._best_ms = self._costs[1]
        self._total = self._best_ids
        self._calibration = policy.calibration(Origin.MODEL)
        self._per_step = 1.0

    # --- whom to ask

    def asks(self, origin: Origin) -> Sequence[Ask]:
        self._origin = origin
        self._asked = []
        for member in self._members.values():
            ask = self._ask_of(member, origin)
            if ask is not None:
                self._asked.append(ask)
        if self._asked and origin is Origin.MODEL:
            habit = self._policy.habit(origin)
            self._per_step = habit.ids_per_step
            self._spent_ms += habit.call_ms
        return self._asked

    def _ask_of(self, member: _Member, origin: Origin) -> Ask | None:
        wish, text = member.wish, member.text
        use = self._policy.use(text, origin, wish.depth)
        if wish.room < 0:  # it reads its prompt: a drafter that is likely to be used reads along
            if origin is not Origin.MODEL or not use.awake:
                return None
            use.backlog = 0
            return Ask(wish.seq, 0)
        if text.n < use.due or self._is_beaten(member, use, origin):
            return None
        return Ask(wish.seq, min(wish.params.n_max, wish.room) if origin is Origin.MODEL else wish.room)

    def _is_beaten(self, member: _Member, use: Use, origin: Origin) -> bool:
        """Whether a free guess promises more than the draft model's usually do."""
        if origin is not Origin.MODEL or not member.candidates:
            return False
        return max(self._value(member, one) for one in member.candidates) > max(use.value, 0.0)

    # --- while the draft model writes

    def wrote(self, seq: int, p: float) -> None:
        member = self._members[seq]
        if member.wish.room < 0:
            return
        member.beliefs.append(p)
        member.p *= self._probability(member, p)
        row = max(int(len(member.beliefs) * self._per_step + 0.999), 1)
        at = self._at
        while len(at) <= row:
            at.append(0.0)
        at[row] += self._per_step * member.p
        if row < self._changed_from:
            self._changed_from = row

    def _probability(self, member: _Member, belief: float) -> float:
        missed = (1.0 - self._calibration.probability(belief)) * member.text.factor(Origin.MODEL).value
        return 1.0 - missed if missed < 1.0 else 0.0

    def go_on(self, seqs: Sequence[int]) -> Sequence[bool]:
        self._look_back()
        live = [self._members[seq] for seq in seqs]
        hopeful = [one.wish.room > 0 and one.p > _HOPELESS for one in live]
        if not any(hopeful) or not self._can_rise([one for one, hope in zip(live, hopeful, strict=True) if hope]):
            return [False] * len(live)
        return hopeful

    def _look_back(self) -> None:
        """Take the rows that were added into account: the best length so far, by the cost of its decode and of all drafting."""
        at, costs, spent = self._at, self._costs, self._spent_ms
        if self._changed_from < self._n_seen:
            self._n_seen = 1
            self._total = self._best_ids = float(self._n_writing)
            self._best_ms = costs[1]
        for row in range(self._n_seen, len(at)):
            self._total += at[row]
            ms = costs[1 + row] if 1 + row < len(costs) else costs[-1]
            if self._total * (self._best_ms + spent) > self._best_ids * (ms + spent):
                self._best_ids, self._best_ms = self._total, ms
        self._n_seen, self._changed_from = len(at), NEVER

    def _can_rise(self, live: Sequence[_Member]) -> bool:
        """Whether some longer draft is expected to be worth more than the best so far, though it costs further steps."""
        costs, per_step, last = self._costs, self._per_step, len(self._costs) - 1
        best_ids, best_ms = self._best_ids, self._best_ms + self._spent_ms
        step_ms = self._policy.machine.draft.ms(len(live))
        n_steps = max(len(one.beliefs) for one in live)
        hopes = [(per_step * one.p, self._calibration.ahead(one.beliefs[-1] if one.beliefs else 1.0)) for one in live]
        total, spent, row = self._total, self._spent_ms, n_steps * per_step + 1.999
        for h in range(HORIZON):
            spent += step_ms
            row += per_step
            ids = total
            for weight, expected in hopes:
                ids += weight * expected[h]
            if ids * best_ms > best_ids * (costs[min(int(row), last)] + spent):
                return True
        return False

    def stepped(self, n_seq: int, seconds: float) -> None:
        ms = 1e3 * seconds
        self._spent_ms += ms
        self._steps_ms += ms
        self._n_steps += 1
        self._n_stepped += n_seq

    # --- what came of it

    def proposed(self, origin: Origin, drafts: Sequence[Draft], seconds: float) -> None:
        if not self._asked:
            return
        policy, ms = self._policy, 1e3 * seconds
        if origin is Origin.MODEL and self._n_steps and policy.machine.draft.ms(1) > 0:
            policy.machine.draft.observe(round(self._n_stepped / self._n_steps), 0, self._steps_ms / self._n_steps)
        habit = policy.habit(origin)
        asked = [self._members[ask.seq] for ask in self._asked]
        reading = [member for member in asked if member.wish.room < 0]
        for member in reading:
            member.text.reading_ms += ms / len(asked)
        backlog = max(member.text.uses[origin].backlog for member in asked)
        if not reading:
            habit.called(max(ms - (self._steps_ms if origin is Origin.MODEL else 0.0), 0.0), backlog)
        share = min(ms, _MOST_TIMES * (habit.cost(backlog, 0.0) + self._steps_ms) + 0.01) / len(asked)
        for member, draft in zip(asked, drafts, strict=True):
            text = member.text
            text.uses[origin].backlog = 0
            if member.wish.room < 0:
                continue
            if text.reading_ms:
                habit.read(text.reading_ms, text.n_prompt)
                text.reading_ms = 0.0
            if origin is Origin.MODEL:
                habit.wrote(len(member.beliefs), len(draft.ids))
                self._calibration.drafted(member.beliefs)
            candidate = self._candidate(member, origin, draft, share)
            (member.lessons if policy.calibration(draft.kind).is_unknown else member.candidates).append(candidate)

    def _candidate(self, member: _Member, origin: Origin, draft: Draft, spent_ms: float) -> Candidate:
        calibration = self._policy.calibration(draft.kind)
        factor = member.text.factor(draft.kind)
        gains, gain, product = [0.0], 0.0, 1.0
        for belief in draft.p:
            missed = (1.0 - calibration.probability(belief)) * factor.value
            product *= 1.0 - missed if missed < 1.0 else 0.0
            gain += product
            gains.append(gain)
        member.text.uses[origin].follow(draft, calibration, factor)
        return Candidate(origin, draft, gains, spent_ms)

    def choose(self) -> Mapping[int, Chosen]:
        spent = sum(one.spent_ms for member in self._members.values() for one in (*member.candidates, *member.lessons))
        levels = self._levels(spent)
        for group, level in zip(self._groups, levels, strict=True):
            if level > 1:
                self._submit(group, level)
        for member in self._members.values():
            self._learn(member)
        return self._chosen

    def _levels(self, spent: float) -> list[int]:
        """Rows of each sequence, by group: the highest ids per millisecond over all groups (Dinkelbach's iteration)."""
        groups = [self._gains(group) for group in self._groups]
        machine, depth = self._policy.machine, self._depth
        costs = [machine.table((len(group),), depth).upto(len(gains)) for group, gains in zip(self._groups, groups, strict=True)]
        fixed_ms = spent - machine.overhead_ms * (len(groups) - 1)
        levels, rate = [1] * len(groups), 0.0
        while True:
            ids = self._n_writing + sum(gains[n - 1] for gains, n in zip(groups, levels, strict=True))
            ms = sum(cost[n] for cost, n in zip(costs, levels, strict=True)) + fixed_ms
            if ms <= 0 or ids <= rate * ms * _NO_GAIN:
                return levels
            rate = ids / ms
            better = [_best_level(gains, cost, rate) for gains, cost in zip(groups, costs, strict=True)]
            if better == levels:
                return levels
            levels = better

    def _gains(self, group: Sequence[int]) -> list[float]:
        """Ids expected beyond one each, by the number of drafted rows of each sequence."""
        best = [self._best_of(self._members[seq]) for seq in group if seq in self._members and self._members[seq].candidates]
        longest = max((len(gains) for gains in best), default=1)
        return [sum(gains[min(k, len(gains) - 1)] for gains in best) for k in range(longest)]

    @staticmethod
    def _best_of(member: _Member) -> list[float]:
        if len(member.candidates) == 1:
            return member.candidates[0].gains
        longest = max(len(one.gains) for one in member.candidates)
        return [max(one.gains[min(k, len(one.gains) - 1)] for one in member.candidates) for k in range(longest)]

    def _submit(self, group: Sequence[int], level: int) -> None:
        rows = self._policy.machine.table((len(group),), self._depth).rows(level)
        n_rows = rows if len(group) > 1 or rows > level else 0
        for seq in group:
            member = self._members.get(seq)
            draft = NO_DRAFT
            if member is not None and member.candidates:
                k = level - 1
                best = max(member.candidates, key=lambda one: one.gains[min(k, len(one.gains) - 1)])
                draft = cut(best.draft, k)
            if draft.ids or n_rows:
                self._chosen[seq] = Chosen(draft, n_rows)

    def _value(self, member: _Member, one: Candidate) -> float:
        """Milliseconds that this guess is expected to save, at its best length, against writing id by id.

        Of a group's common price each drafting member bears its share.
        """
        costs = self._policy.machine.table((member.size,), self._depth).upto(len(one.gains))
        plain = costs[1]
        k = _best_level(one.gains, costs, 1 / plain if plain > 0 else 0.0) - 1
        return (one.gains[k] * plain - (costs[1 + k] - plain)) / member.size - one.spent_ms

    def _learn(self, member: _Member) -> None:
        if member.wish.room < 0:
            return
        text, policy = member.text, self._policy
        plain = policy.machine.table((member.size,), self._depth).upto(1)[1] / member.size
        for one in (*member.candidates, *member.lessons):
            use = text.uses[one.origin]
            step = policy.step_ms(one.origin, 1)
            use.judged(self._value(member, one), text.n, policy.habit(one.origin), plain, step)
        text.due = min((use.due for use in text.uses.values()), default=0)


def _best_level(gains: Sequence[float], costs: Sequence[float], rate: float) -> int:
    """Rows of each sequence with the most ids beyond what their time is worth at this rate."""
    best, level = gains[0] - rate * costs[1], 1
    for k in range(1, len(gains)):
        value = gains[k] - rate * costs[1 + k]
        if value > best:
            best, level = value, 1 + k
    return level


def groups_of(seqs: Sequence[int]) -> list[list[int]]:
    """Consecutively numbered sequences, which share passes."""
    out: list[list[int]] = []
    for seq in sorted(seqs):
        if out and seq == out[-1][-1] + 1:
            out[-1].append(seq)
        else:
            out.append([seq])
    return out


def cut(draft: Draft, k: int) -> Draft:
    """The first k ids of a draft."""
    if k >= len(draft.ids):
        return draft
    return Draft(draft.ids[:k], draft.p[:k], draft.origin, min(draft.n_salvaged, k), draft.healed and k > 0, draft.kind)
