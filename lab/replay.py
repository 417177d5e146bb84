"""Run a policy on recorded rounds, with time counted: `python lab/replay.py RECORDING.json.gz ... --costs NAME`.

A policy sees what it would see in the loop: beliefs step by step, verdicts, and times with noise. Decodes cost what a
curve says. A table has the speed over plain decoding by category, and two bounds: the best for a policy that knows how
many ids are right (oracle), and one that knows how often such beliefs are right (calibrated). Takes seconds. Runs no
model.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, count
from math import exp
from operator import mul
from pathlib import Path
from statistics import geometric_mean, mean
from zlib import crc32

from curves import KERNELS, Curve, curves
from hindsight import Hindsight
from rounds import Answer, Guess, Recording, read

from uad.base.types import MODELS, Ask, Commit, Draft, Origin, SpecPolicy, SpeculativeParams
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine
from uad.engine.policy.protocol import Chosen, Decoded, Drafted, Ended, Policy, Wish

MODEL = str(Origin.MODEL)
NOISE = 0.03  # of the logarithm of a decode's time
_LUCK = 65_521
"""Times that are drawn for one order of the answers; a prime, so that places do not repeat in step."""
_DECODE, _LOOK, _CALL, _READ, _STEP = range(5)
LONGEST = 48
WINDOW = 256
READ_AGAIN = 16  # as in uad.llama.memory


@dataclass
class Text:
    """One answer that is being written. `covered`: up to which id of it each draft model's last draft reaches, as far
    as it is right. n_pending: its ids that the target's memory does not hold.
    """

    answer: Answer
    seq: int = 0
    t: int = 1
    covered: dict[str, int] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)
    n_pending: int = 1
    ms: float = 0.0
    n_drafted: int = 0
    n_accepted: int = 0
    n_passes: int = 0

    key: int = field(init=False)
    """A number of the answer, for its luck."""

    def __post_init__(self) -> None:
        self.key = crc32(self.answer.name.encode())

    @property
    def is_over(self) -> bool:
        return self.t >= len(self.answer.ids)


class Replay:
    """Rounds of a policy over texts that run side by side, on one machine."""

    def __init__(
        self,
        policy: Policy,
        curve: Curve,
        params: SpeculativeParams,
        seed: int,
        origins: Sequence[str],
        temperature: float,
    ) -> None:
        self._policy = policy
        self._curve = curve
        self._params = params
        rng = random.Random(seed)
        self._luck = [exp(rng.gauss(0.0, NOISE)) for _ in range(_LUCK)]
        self._origins = origins
        self._temperature = temperature
        self._changes: list[float] = []  # what the next single rows take longer

    def run(self, texts: Sequence[Text], n_seq: int) -> float:
        """Writes all of them, n_seq at a time, and returns how long that took without the last ones, beside which slots
        are empty, over the same time without drafts. Each is charged its share of the rounds that it takes part in.
        """
        waiting, free, live = list(texts), list(range(n_seq)), list[Text]()
        spent = plain = 0.0
        while waiting or live:
            while waiting and free:
                live.append(self._begin(waiting.pop(0), free.pop(0)))
            before = sum(text.t for text in live)
            ms = self._round(live)
            if len(live) == n_seq:
                spent += ms
                plain += (
                    (sum(text.t for text in live) - before)
                    * (self._curve.target_ms(n_seq) + self._curve.loop_ms)
                    / n_seq
                )
            for text in live:
                text.ms += ms / len(live)
                text.n_passes += 1
            for text in [text for text in live if text.is_over]:
                self._policy.observe(Ended(text.seq))
                free.append(text.seq)
            live = [text for text in live if not text.is_over]
        return plain / spent

    def _begin(self, text: Text, seq: int) -> Text:
        text.seq = seq
        text.unread = dict.fromkeys(self._origins, min(text.answer.n_prompt, WINDOW) + 1)
        text.covered = dict.fromkeys(self._origins, 0)
        self._policy.begin(seq, text.answer.n_prompt, self._temperature)
        self._policy.observe(Commit(seq, text.answer.ids[:1]))
        return text

    def _noise(self, what: int, text: Text, n: int = 0) -> float:
        """How much longer than usual something takes at this place of a text: the same for every policy, so that two of
        them are compared under the same luck. n: of several such things there.
        """
        return self._luck[(text.key + 7919 * text.t + 104729 * what + 1299709 * n) % _LUCK]

    def _round(self, live: Sequence[Text]) -> float:
        wishes = [
            Wish(
                one.seq,
                self._params,
                self._room(one),
                one.answer.n_prompt + one.t,
                len(one.answer.ids) - one.t,
                one.n_pending,
            )
            for one in live
        ]
        spent = 0.0
        chosen: Mapping[int, Chosen] = {}
        if not self._policy.plan(wishes):
            for origin in self._origins:
                asks = self._policy.asks(Origin(origin))
                if asks:
                    ms, drafts = self._propose(origin, asks, {one.seq: one for one in live})
                    self._policy.observe(Drafted(Origin(origin), drafts, ms / 1e3))
                    spent += ms
            chosen = self._policy.choose()
        picked = {one.seq: chosen[one.seq].draft if one.seq in chosen else Draft() for one in live}
        pending = {one.seq: one.n_pending for one in live}
        rows = {
            seq: max(pending[seq] + len(draft.ids), chosen[seq].n_rows if seq in chosen else 0)
            for seq, draft in picked.items()
        }
        for seq, draft in picked.items():
            if len(draft.ids) > self._curve.n_free:
                spent += self._curve.keep_ms
                if pending[seq] > READ_AGAIN:
                    spent += self._curve.target_ms(pending[seq] - 1)
                    rows[seq] -= pending[seq] - 1
        decode, passes = 0.0, []
        done = 0
        for n in sorted(set(rows.values())):  # equal lengths share a pass
            n_seq = sum(one >= n for one in rows.values())
            passes.append((n_seq, n - done))
            decode += self._decode_ms(n_seq * (n - done)) * self._noise(_DECODE, live[0], n_seq * (n - done))
            done = n
        depth = sum(one.answer.n_prompt + one.t for one in live) // len(live)
        self._policy.observe(Decoded(passes, depth, decode / 1e3))
        for one in live:
            self._commit(one, picked[one.seq])
        return spent + decode + self._curve.loop_ms

    def _decode_ms(self, n: int) -> float:
        if n > 1:
            self._changes = list(self._curve.changes)
        elif self._changes:
            return self._curve.target_ms(1) + self._changes.pop(0)
        return self._curve.target_ms(n)

    @staticmethod
    def _room(text: Text) -> int:
        return max(min(len(text.answer.ids) - text.t - 1, LONGEST), 0)

    def _propose(self, origin: str, asks: Sequence[Ask], texts: dict[int, Text]) -> tuple[float, list[Draft]]:
        if origin not in MODELS:
            ms = self._curve.look_ms * self._noise(_LOOK, texts[asks[0].seq])
            return ms, [self._looked_up(origin, texts[ask.seq], ask) for ask in asks]
        return self._write(origin, asks, texts)

    def _looked_up(self, origin: str, text: Text, ask: Ask) -> Draft:
        guess = text.answer.guesses[origin][text.t]
        return Draft(guess.ids, guess.p, Origin(origin), kind=guess.kind).first(min(ask.n_max, LONGEST))

    def _write(self, origin: str, asks: Sequence[Ask], texts: dict[int, Text]) -> tuple[float, list[Draft]]:
        """A draft model reads what it has not read, then writes for all of them in lockstep, as long as the policy
        lets it.
        """
        first_text, curve = texts[asks[0].seq], self._curve.of(origin)
        ms, n_read, n_written, live = curve.call_ms * self._noise(_CALL, first_text), {}, {}, []
        more, wrote, steps = self._policy.more, list[tuple[int, float]](), list[tuple[int, float]]()
        for ask in asks:
            text, guess = texts[ask.seq], texts[ask.seq].answer.guesses[origin][texts[ask.seq].t]
            unread = text.unread[origin]
            n_read[ask.seq] = n = min(unread, ask.n_read or unread)
            text.unread[origin] -= n
            ms += curve.read_ms * max(n - 1, 0) * self._noise(_READ, text)
            n_written[ask.seq] = 0
            if text.unread[origin] or ask.n_max <= 0:
                continue
            free = min(max(text.covered[origin] - text.t, 0), len(guess.written))
            wrote += [(ask.seq, p) for p in guess.written[:free]]
            n_written[ask.seq] = free
            live.append(ask)
        if not live:  # the last id that was read is a decode of its own
            ms += curve.step_ms(1) * self._noise(_STEP, first_text)
        first = True
        for n_step in count(1):
            live = [ask for ask in live if self._has_more(origin, texts[ask.seq], n_written[ask.seq], ask)]
            left = [ask.seq for ask in live if n_written[ask.seq] or not first]  # else an id is written in any case
            goes_on = dict(zip(left, more(left, wrote, steps), strict=True))
            wrote, steps = [], []
            live = [ask for ask in live if goes_on.get(ask.seq, True)]
            if not live:
                break
            step = curve.step_ms(len(live)) * self._noise(_STEP, first_text, n_step)
            ms += step
            if not first:
                steps.append((len(live), step / 1e3))
            first = False
            going = []
            for ask in live:
                p = texts[ask.seq].answer.guesses[origin][texts[ask.seq].t].written[n_written[ask.seq]]
                if p >= ask.p_min:
                    wrote.append((ask.seq, p))
                    n_written[ask.seq] += 1
                    going.append(ask)
            live = going
        drafts = []
        for ask in asks:
            text = texts[ask.seq]
            guess = text.answer.guesses[origin][text.t]
            n = min(guess.n_after(n_written[ask.seq]), ask.n_max)
            if not text.unread[origin]:
                text.covered[origin] = text.t + min(n, guess.n_right)
            draft = Draft(guess.ids[:n], guess.p[:n], Origin(origin), n_read=n_read[ask.seq])
            drafts.append(self._chained(text, draft, ask.n_max))
        return ms, drafts

    @staticmethod
    def _chained(text: Text, draft: Draft, n_max: int) -> Draft:
        """The draft continued by what the text offers after it, as far as that was recorded: after what is right."""
        at, looked_up = text.t + len(draft.ids), text.answer.guesses.get(Origin.SUFFIX, ())
        if not draft.ids or at >= len(looked_up) or not looked_up[at].ids:
            return draft
        tail = looked_up[at]
        ids, p = (draft.ids + tail.ids)[:n_max], (draft.p + tail.p)[:n_max]
        return replace(draft, ids=ids, p=p, kind=tail.kind or str(Origin.SUFFIX), n_tail=len(ids) - len(draft.ids))

    @staticmethod
    def _has_more(origin: str, text: Text, n: int, ask: Ask) -> bool:
        guess = text.answer.guesses[origin][text.t]
        return n < len(guess.written) and guess.n_after(n) < ask.n_max

    def _commit(self, text: Text, draft: Draft) -> None:
        rest = text.answer.ids[text.t :]
        n = 0
        while n < len(draft.ids) and n < len(rest) - 1 and draft.ids[n] == rest[n]:
            n += 1
        ids = rest[: n + 1]
        for origin, covered in text.covered.items():  # accepted guesses are in the draft's KV
            text.unread[origin] += text.t + len(ids) - min(max(covered, text.t), text.t + len(ids))
        text.t += len(ids)
        is_back = n < len(draft.ids) > self._curve.n_free
        text.n_pending = (text.n_pending if text.n_pending <= READ_AGAIN else 1) + len(ids) if is_back else 1
        text.n_drafted += len(draft.ids)
        text.n_accepted += n
        self._policy.observe(Commit(text.seq, ids, len(draft.ids), n))


def oracle_ms(answer: Answer, curve: Curve) -> float:
    """The time for this answer with the draft model and what was looked up, for a policy that knows what is right.
    Left-over guesses are written again, and no prompt is read.
    """
    n = len(answer.ids)
    best = [0.0] * (n + 1)
    for t in range(n - 1, 0, -1):
        ways = [curve.target_ms(1) + curve.loop_ms + best[t + 1]]
        for origin, guesses in answer.guesses.items():
            for k in range(1, min(guesses[t].n_right, n - t - 1) + 1):
                ways.append(
                    curve.target_ms(k + 1) + curve.loop_ms + _draft_ms(origin, guesses[t], k, curve) + best[t + k + 1]
                )
        best[t] = min(ways)
    return best[1]


def _draft_ms(origin: str, guess: Guess, k: int, curve: Curve) -> float:
    if origin != MODEL:
        return curve.look_ms
    steps = max(k * len(guess.written) / max(len(guess.ids), 1), 1.0)
    return curve.call_ms + steps * curve.step_ms(1)


def hindsight_of(answers: Sequence[Answer]) -> dict[str, Hindsight]:
    """How often beliefs of each drafter were right, over all answers."""
    return {
        origin: Hindsight(
            (p, k < guess.n_right)
            for one in answers
            for t, guess in enumerate(one.guesses.get(origin, ()))
            for k, p in enumerate(guess.p[: min(guess.n_right + 1, len(one.ids) - t)])
        )
        for origin in {origin for one in answers for origin in one.guesses}
    }


def calibrated_ms(answer: Answer, curve: Curve, known: Mapping[str, Hindsight]) -> float:
    """The time for this answer, for a policy that goes by calibrated beliefs and knows this answer's best rate, and
    whether the draft model is worth asking in it. Beliefs are paid for: the step that shows that the next id is not
    worth submitting, too.
    """
    n, plain = len(answer.ids), curve.target_ms(1) + curve.loop_ms
    best = (n - 1) * plain
    for origins in ({MODEL}, {*answer.guesses} - {MODEL}, {*answer.guesses}):
        guesses = {origin: one for origin, one in answer.guesses.items() if origin in origins}
        spent = (n - 1) * plain
        for _ in range(4):
            spent = _by_belief(guesses, n, curve, known, spent / (n - 1))
            spent += curve.read_ms * min(answer.n_prompt, WINDOW) if MODEL in guesses else 0.0
            best = min(best, spent)
    return best


def _by_belief(
    guesses: Mapping[str, Sequence[Guess]], n: int, curve: Curve, known: Mapping[str, Hindsight], rate: float
) -> float:
    spent, t, covered = 0.0, 1, 1
    while t < n:
        most, ms, n_right, asked_ms = 0.0, curve.target_ms(1), 0, 0.0
        for origin, all_guesses in guesses.items():
            guess = all_guesses[t]
            gains = list(accumulate(accumulate(map(known[origin].share, guess.p), mul)))[: max(n - t - 1, 0)]
            # guesses that are left over, or looked up
            free = max(covered - t, 0) if origin == MODEL else len(gains) + 1
            steps = [max(k + 2 - free, 0) * curve.step_ms(1) for k in range(len(gains))]
            worth = [
                rate * gain - curve.target_ms(k + 2) + curve.target_ms(1) - steps[k] for k, gain in enumerate(gains)
            ]
            k = max(range(len(worth)), key=worth.__getitem__) + 1 if worth and max(worth) > 0 else 0
            if origin == MODEL:
                asked_ms += curve.call_ms + max(min(k + 1, len(gains)) - free, 0) * curve.step_ms(1)
                covered = t + min(k + 1, guess.n_right)
            else:
                asked_ms += curve.look_ms
            if k and worth[k - 1] > most:
                most, ms, n_right = worth[k - 1], curve.target_ms(k + 1), min(k, guess.n_right)
        spent += ms + asked_ms + curve.loop_ms
        t += n_right + 1
    return spent


@dataclass
class Score:
    """Speeds over plain decoding of one run: by answer, in the order in which they were begun. Answers that were
    written side by side have that of all of them together.
    """

    texts: list[Text] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    def by_category(self) -> dict[str, float]:
        out: dict[str, list[float]] = {}
        for text, ratio in zip(self.texts, self.ratios, strict=True):
            out.setdefault(text.answer.category, []).append(ratio)
        return {category: geometric_mean(ratios) for category, ratios in out.items()}

    @property
    def mean(self) -> float:
        return geometric_mean(self.ratios)


def score(
    recording: Recording,
    curve: Curve,
    make: Callable[[Curve], Policy],
    params: SpeculativeParams,
    seed: int,
    n_seq: int,
    origins: Sequence[str],
) -> Score:
    """One run over all answers in an order that the seed says, n_seq at a time."""
    answers = [one for one in recording.answers if len(one.ids) > 2]
    random.Random(seed).shuffle(answers)
    replay = Replay(make(curve), curve, params, seed, origins, recording.temperature)
    texts = [Text(answer) for answer in answers]
    ratio = replay.run(texts, n_seq)
    plain_ms = curve.target_ms(1) + curve.loop_ms
    return Score(texts, [(len(one.answer.ids) - 1) * plain_ms / one.ms if n_seq == 1 else ratio for one in texts])


def automatic(curve: Curve) -> AutoPolicy:
    """The policy as the server makes it, on a machine that was measured well."""
    target = CostCurve([CostSample(n, 0, curve.target_ms(n)) for n in range(1, 65)])
    steps = {
        origin: CostCurve([CostSample(n, 0, own.step_ms(n)) for n in range(1, 9)])
        for origin, own in zip(MODELS, (curve, *curve.beside), strict=False)
    }
    return AutoPolicy(Machine(target, steps, n_free=curve.n_free, keep_ms=curve.keep_ms), window=WINDOW)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, nargs="+")
    parser.add_argument(
        "--costs", default="", help="names of lab/curves.py with commas between them (default: all that fit)"
    )
    parser.add_argument("--curves", type=Path, default=KERNELS, help="a file like lab/kernels.csv, instead of that")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--types", default="suffix,draft-simple")
    parser.add_argument(
        "--fixed", metavar="N:P", help="a fixed length and least probability instead of the automatic policy"
    )
    parser.add_argument("--bounds", action="store_true")
    parser.add_argument(
        "--memory",
        default="",
        metavar="N:SHARE",
        help="of a draft N ids are taken back at no cost, more for this share of T(1)",
    )
    args = parser.parse_args()
    if args.seeds < 1:
        parser.error("--seeds: how many orders of the answers, 1 at least")
    wanted = args.costs.split(",") if args.costs else []
    make: Callable[[Curve], Policy] = automatic
    params = SpeculativeParams()
    if args.fixed:
        n, _, p = args.fixed.partition(":")
        params = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=int(n), p_min=float(p or 0.0))
        make = lambda curve: AutoPolicy()  # noqa: E731
    for path in args.recordings:
        recording = read(path)
        origins = [one for one in args.types.split(",") if one in recording.answers[0].guesses]
        fitting = list(curves(recording, wanted, args.curves))
        if missing := set(wanted) - {curve.name for curve in fitting}:
            parser.error(f"--costs: there is no curve {', '.join(sorted(missing))}; without --costs all are shown")
        for curve in fitting:
            if args.memory:
                curve = curve.with_memory(*args.memory.split(":"))
            scores = [
                score(recording, curve, make, params, seed, args.sequences, origins) for seed in range(args.seeds)
            ]
            print(line(path.name.removesuffix(".json.gz"), curve, recording, scores, args.bounds), flush=True)
    return 0


def line(name: str, curve: Curve, recording: Recording, scores: Sequence[Score], bounds: bool) -> str:
    """Means over the seeds: of all, worst category, worst answer; then by category."""
    categories = {key: geometric_mean([one.by_category()[key] for one in scores]) for key in scores[0].by_category()}
    worst = mean(min(one.ratios) for one in scores)
    whole = geometric_mean([one.mean for one in scores])
    out = f"{name:>34} {curve.name:>10}: {whole:.3f}  category {min(categories.values()):.3f}  answer {worst:.3f}"
    if bounds:
        known = hindsight_of(recording.answers)
        answers = [one for one in recording.answers if len(one.ids) > 2]
        plain = [(len(one.ids) - 1) * (curve.target_ms(1) + curve.loop_ms) for one in answers]
        best = geometric_mean([ms / oracle_ms(one, curve) for one, ms in zip(answers, plain, strict=True)])
        fair = geometric_mean([ms / calibrated_ms(one, curve, known) for one, ms in zip(answers, plain, strict=True)])
        out += f"  calibrated {fair:.3f}  oracle {best:.3f}"
    return out + "  " + " ".join(f"{key[:5]} {value:.2f}" for key, value in sorted(categories.items()))


if __name__ == "__main__":
    sys.exit(main())
