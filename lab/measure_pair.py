"""How well a draft foretells a target: `python lab/measure_pair.py TARGET DRAFT [--text FILE] [--json]`.

KL divergence and agreement of the likeliest tokens where both have a token boundary, over the tokens that both can
express and for the next byte; accepted tokens, and the speed-up to expect on this machine.

The target answers or continues prompts greedily; then both models read what it wrote, each in its own tokens and its
own chat format (by the rules that drafting uses), and agreement compares. The body is the target's
own greedy answer. So the tokens at which a greedy draft goes on rightly are those that would be accepted, with two
simplifications that lie on different sides: a guess that ends inside the draft's usual token counts as right, and
where a target's token ends inside a draft's, healing and salvage are left out.
"""

from __future__ import annotations

import enum
import json
import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from agreement import DraftComparison, Reading, Tally, Track, predict
from rich.table import Table
from rich.text import Text

from uad.base.common.files import path_of, read_text
from uad.base.config import Config, ModelConfig
from uad.base.config.argv import Parser
from uad.base.config.flags import CONTEXT, DRAFT, DRAFTING, GENERAL, MODEL, TEMPLATES, TOKENIZERS
from uad.base.console import console_on
from uad.base.console import progress as shown
from uad.base.errors import ConfigError
from uad.base.types import Rows, SpecPolicy
from uad.engine.policy.cost import CostCurve
from uad.llama.context import Context
from uad.llama.head_file import head_in, refuse_alone
from uad.runtime.costs import profile
from uad.runtime.costs.fit import fitted_beside
from uad.runtime.costs.profile_store import curve
from uad.runtime.models import open_model, side, template_options
from uad.runtime.plan import plan as planned
from uad.runtime.target import Progress
from uad.text.mapping.plan import plan
from uad.text.mapping.rules import CompiledRules, Item, normalise
from uad.text.prompts import Prompts
from uad.text.vocab.encode import Encoder
from uad.tools.bench.gain import PER_WORKLOAD, PIECE, WORKLOADS, chunks, pieces_of
from uad.tools.bench.workloads import PROMPT_DIR, load
from uad.tools.cli import run
from uad.tools.cli.models import parse

GROUPS = (MODEL, CONTEXT, DRAFT, DRAFTING, TOKENIZERS, TEMPLATES, GENERAL)
_PIECES = 3
_N_SEQ = 4
_N_CTX = 2048
_N_WRITTEN = 64
_CHUNK = 48
_TINY_MS = 3.0
_TARGET_SECONDS, _DRAFT_SECONDS = 1.5, 0.5


class Form(enum.Enum):
    """What is done with a text: the target answers it as a user's turn, continues it, or both models just read it."""

    CHAT = "chat"
    CONTINUE = "continue"
    READ = "read"


@dataclass(frozen=True, slots=True)
class SampleText:
    """One text; those of a kind share a row of the result."""

    kind: str
    text: str
    form: Form


@dataclass(frozen=True, slots=True)
class Line:
    """The result for one kind of text, shares from 0 to 1.

    places: compared places (see agreement); `kl` and `kl_byte` are means over them, in nats. same: the
    likeliest tokens are the same bytes; alike: one begins with the other. *_mass: the probability that lies on tokens
    which both can express. The rest is None where the target wrote nothing: `accepted` tokens of those it wrote, and by
    replay with the best fixed length: that length, tokens per pass, speed-up.
    """

    kind: str
    n_tokens: int
    n_places: int
    kl: float
    kl_byte: float
    same: float
    alike: float
    target_mass: float
    draft_mass: float
    accepted: float | None
    length: int | None
    per_round: float | None
    speed_up: float | None


@dataclass(frozen=True, slots=True)
class PairMeasures:
    """One line per kind of text, the last one over all that the target wrote if it wrote several kinds. `notes` are
    lines for people.
    """

    target: str
    draft: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...]


def measure_pair(config: Config, samples: Sequence[SampleText], progress: Progress) -> PairMeasures:
    """Loads both models and measures. Raises ModelLoadError or MappingError; ConfigError without a draft, or where no
    text can be used.
    """
    with _OpenPair(planned(config).config, progress) as pair:
        return pair.measure(samples)


@dataclass(frozen=True, slots=True)
class _CutText:
    """A prompt in target ids and what follows it, which the target wrote or which only is read."""

    kind: str
    prompt: tuple[int, ...]
    body: tuple[int, ...]
    written: bool


class _OpenPair:
    """Both models, open."""

    def __init__(self, config: Config, progress: Progress) -> None:
        if config.draft is None:
            raise ConfigError("measuring needs a target and a draft")
        for role, path in (("target", config.target.path), ("draft", config.draft.path)):
            refuse_alone(head_in(path), f"{role} {path}")
        self._progress = progress
        self._n_max = replace(config.drafting.defaults, policy=SpecPolicy.FIXED).longest
        self.notes: list[str] = []
        with ExitStack() as stack:
            target = stack.enter_context(
                open_model(config.target, "target", lambda share: progress("loading target", share))
            )
            draft = stack.enter_context(
                open_model(config.draft, "draft", lambda share: progress("loading draft", share))
            )
            n_ctx = min(config.target.n_ctx or _N_CTX, target.info.n_ctx_train)
            own = fitted_beside(replace(config.target, n_ctx=n_ctx * _N_SEQ), "target", _N_SEQ, config.fit)
            self._target = stack.enter_context(Context(target, own, _N_SEQ, "target"))
            n_ctx = min(config.draft.n_ctx or n_ctx, draft.info.n_ctx_train)
            self._draft = stack.enter_context(
                Context(draft, fitted_beside(replace(config.draft, n_ctx=n_ctx), "draft", 1, config.fit), 1, "draft")
            )
            self._draft.choose_threads(config.draft)
            self._names = target.info.desc, draft.info.desc
            options = template_options(config)
            self._rules = plan(side(target, config.templates.chat_template), side(draft), options).rules
            self._encoders = Encoder(target.vocab), Encoder(draft.vocab)
            self._prompts = Prompts(
                target.vocab, self._encoders[0], config.templates, target.info.chat_template, target.info.desc
            )
            self._curves = self._measure_curves(config.target, config.draft)
            self._stack = stack.pop_all()

    def __enter__(self) -> _OpenPair:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def measure(self, samples: Sequence[SampleText]) -> PairMeasures:
        comparison = DraftComparison(self._rules)
        tallies: dict[str, Tally] = {}
        texts = self._texts(samples)
        for i, text in enumerate(texts):
            self._progress("comparing", (i + 1) / len(texts))
            if (found := self._compare(comparison, text)) is not None:
                tallies.setdefault(text.kind, Tally()).add(found)
        if not any(tally.n_places for tally in tallies.values()):
            raise ConfigError(
                "no text was long enough, or short enough for the contexts, to compare the models on; try another "
                "--text"
            )
        written = [tally for tally in tallies.values() if tally.runs]
        if len(written) > 1:
            total = tallies["all written"] = Tally()
            for tally in written:
                total.add(tally)
        lines = tuple(self._line(kind, tally) for kind, tally in tallies.items() if tally.n_places)
        return PairMeasures(*self._names, lines, tuple(dict.fromkeys(self.notes)))

    def _measure_curves(self, target: ModelConfig, draft: ModelConfig) -> tuple[CostCurve, CostCurve]:
        """What decodes cost, stored or measured now."""
        out = []
        sizes = range(1, self._n_max + 2)
        for role, context, config, seconds in (
            ("target", self._target, target, _TARGET_SECONDS),
            ("draft", self._draft, draft, _DRAFT_SECONDS),
        ):
            samples, stored = curve(context, config, role, sizes, seconds)
            out.append(CostCurve(samples))
            how = "as stored by `uad profile`" if stored else "measured for a moment; `uad profile` gives a better one"
            self.notes.append(f"cost curve of the {role}: {how}")
            if (spread := profile.spread(samples)) > profile.BUSY:
                self.notes.append(
                    f"the machine is busy: decodes of the {role} differ by a factor of {spread:.1f}; the speed-up is "
                    "hardly foretold"
                )
        if (ms := out[0].ms(1)) < _TINY_MS:
            self.notes.append(
                f"a token of this target takes {ms:.1f} ms: what is not counted here, such as translation, weighs as "
                "much"
            )
        return out[0], out[1]

    # --- texts

    def _texts(self, samples: Sequence[SampleText]) -> list[_CutText]:
        read = [sample for sample in samples if sample.form is Form.READ]
        texts = [
            _CutText(s.kind, tuple(self._plain("")), tuple(self._encoders[0].encode(s.text.encode())), written=False)
            for s in read
        ]
        asked = [(s.kind, self._prompt(s)) for s in samples if s.form is not Form.READ]
        fitting = [(kind, prompt) for kind, prompt in asked if prompt and len(prompt) + _N_WRITTEN < self._target.n_ctx]
        self._note_left_out(len(asked) - len(fitting), "too long for the target's context")
        bodies = self._write([prompt for _, prompt in fitting])
        texts += [
            _CutText(kind, tuple(prompt), tuple(body), written=True)
            for (kind, prompt), body in zip(fitting, bodies, strict=True)
            if body
        ]
        return texts

    def _prompt(self, sample: SampleText) -> list[int]:
        if sample.form is Form.CHAT:
            return self._prompts.chat([{"role": "user", "content": sample.text.strip()}], {}, True)
        return self._plain(sample.text)

    def _plain(self, text: str) -> list[int]:
        return self._prompts.tokenize(text, add_special=True, parse_special=False)

    def _write(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        """Greedy answers, several side by side."""
        bodies: list[list[int]] = []
        for at in range(0, len(prompts), _N_SEQ):
            bodies += self._write_some(prompts[at : at + _N_SEQ])
            self._progress("writing with the target", min(at + _N_SEQ, len(prompts)) / len(prompts))
        return bodies

    def _write_some(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        context, eog = self._target, self._rules.target.eog
        last: dict[int, int] = {}
        for seq, prompt in enumerate(prompts):
            _read_prompt(context, seq, prompt[:-1])
            context.decode([Rows(seq, len(prompt) - 1, prompt[-1:], 1)])
            last[seq] = int(context.logits()[0].argmax())
        bodies: list[list[int]] = [[] for _ in prompts]
        for step in range(_N_WRITTEN):
            last = {seq: id_ for seq, id_ in last.items() if id_ not in eog}
            for seq, id_ in last.items():
                bodies[seq].append(id_)
            if not last or step == _N_WRITTEN - 1:
                break
            context.decode([Rows(seq, len(prompts[seq]) + step, (id_,), 1) for seq, id_ in last.items()])
            last = {seq: int(row.argmax()) for seq, row in zip(last, context.logits(), strict=True)}
        for seq in range(len(prompts)):
            context.clear(seq)
        return bodies

    # --- comparing

    def _compare(self, comparison: DraftComparison, text: _CutText) -> Tally | None:
        body = self._rules.target.join(text.body)
        target = target_track(self._rules, text.prompt, text.body)
        draft = draft_track(self._rules, self._encoders[1], text.prompt, text.body)
        if draft is None or any(self._rules.target.is_special(id_) for id_ in text.body):
            self._note_left_out(1, "whose markers the rules rewrite")
            return None
        if len(target.ids) >= self._target.n_ctx or len(draft.ids) >= self._draft.n_ctx:
            self._note_left_out(1, "too long for a context")
            return None
        return comparison.text(
            body, target, draft, _rows(self._target, target), _rows(self._draft, draft), text.written
        )

    def _note_left_out(self, n: int, why: str) -> None:
        if n:
            self.notes.append(f"left out: texts {why}")

    def _line(self, kind: str, tally: Tally) -> Line:
        n = tally.n_places
        tokens = [one for run in tally.runs for one in run]
        found = (
            predict(tally.runs, tally.n_draft / max(tally.n_target, 1), *self._curves, self._n_max) if tokens else None
        )
        return Line(
            kind,
            n_tokens=tally.n_target,
            n_places=n,
            kl=tally.kl / n,
            kl_byte=tally.kl_byte / n,
            same=tally.n_same / n,
            alike=tally.n_alike / n,
            target_mass=tally.target_mass / n,
            draft_mass=tally.draft_mass / n,
            accepted=sum(tokens) / len(tokens) if tokens else None,
            length=found.length if found else None,
            per_round=found.per_round if found else None,
            speed_up=found.speed_up if found else None,
        )


def target_track(rules: CompiledRules, prompt: Sequence[int], body: Sequence[int]) -> Track:
    """The target's ids, and where each ends in the body."""
    ends = [-1] * len(prompt)
    if ends:
        ends[-1] = 0
    at = 0
    for id_ in body:
        at += len(rules.target.pieces[id_])
        ends.append(at)
    return Track((*prompt, *body), tuple(ends))


def draft_track(rules: CompiledRules, draft: Encoder, prompt: Sequence[int], body: Sequence[int]) -> Track | None:
    """The same text as the draft sees it, through the rules; None where the body does not reach it byte for byte."""
    stream = rules.stream()
    items: list[Item] = normalise([*stream.feed(prompt), *stream.feed(body), *stream.flush()])
    data = rules.target.join(tuple(body))
    last = items[-1] if items else b""
    if (
        not isinstance(last, bytes)
        or not last
        or not (last.endswith(data) or (data.startswith(b" ") and last.endswith(data[1:])))
    ):
        return None
    ids: list[int] = []
    for item in items[:-1]:
        ids += draft.encode(item) if isinstance(item, bytes) else [item]
    at = len(data) - len(last)
    ends = [-1] * len(ids)
    if ends and at == 0:
        ends[-1] = 0
    own = draft.encode(last)
    if draft.vocab.join(own) != last:
        return None
    for id_ in own:
        at += len(draft.vocab.pieces[id_])
        ends.append(max(at, -1))
    return Track((*ids, *own), tuple(ends))


def _rows(context: Context, track: Track) -> Reading:
    """The logits after every id that ends in the body."""
    context.clear(0)
    _read_prompt(context, 0, track.ids[: track.first])
    for at in range(track.first, len(track.ids), _CHUNK):
        ids = track.ids[at : at + _CHUNK]
        context.decode([Rows(0, at, ids, len(ids))])
        yield from zip(track.ends[at : at + len(ids)], context.logits(), strict=True)
    context.clear(0)


def _read_prompt(context: Context, seq: int, ids: Sequence[int]) -> None:
    for at in range(0, len(ids), context.n_batch):
        part = ids[at : at + context.n_batch]
        context.decode([Rows(seq, at, part, 0)])


# --- the command


def main(argv: Sequence[str]) -> int:
    """Print a table or, with --json, one line. Raises UadError."""
    parser = Parser("lab/measure_pair.py", "How well a draft foretells a target.", "", "TARGET DRAFT")
    parser.add_argument("target", metavar="TARGET", help="GGUF file of the target model")
    parser.add_argument("draft", metavar="DRAFT", help="GGUF file of the draft model")
    parser.add_argument("--text", metavar="FILE", help="read this text, and what the target writes after it")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    args, config = parse(parser, argv, GROUPS, ("target", "draft"), logging.WARNING)
    samples = _own_samples(path_of(args.text)) if args.text else _bundled_samples()
    with shown(sys.stderr) as report:
        _show(measure_pair(config, samples, report), args.json)
    return 0


def _bundled_samples() -> list[SampleText]:
    """Prompts of the bench for the target to answer or continue, and its texts to read."""
    samples = []
    for name in WORKLOADS:
        prompts = load(name).head(PER_WORKLOAD).prompts
        samples += [SampleText(name, prompt.text, Form.CHAT if prompt.chat else Form.CONTINUE) for prompt in prompts]
    for file in sorted((PROMPT_DIR.parent / "texts").glob("*.txt")):
        text = read_text(file)
        samples += [SampleText(f"{file.stem} text, read", piece, Form.READ) for piece in chunks(text, PIECE, _PIECES)]
    return samples


def _own_samples(path: Path) -> list[SampleText]:
    """A file in pieces, each to be read, and its first half to be continued."""
    pieces = pieces_of(path)
    read = [SampleText("text, read", piece, Form.READ) for piece in pieces]
    return read + [SampleText("text, continued", piece[: max(len(piece) // 2, 1)], Form.CONTINUE) for piece in pieces]


def _show(found: PairMeasures, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(found)))
        return
    console = console_on()
    console.print(_table(found))
    for note in found.notes:
        console.print(Text(note), soft_wrap=True)
    console.print(Text(_verdict(found.lines[-1], found.lines)), soft_wrap=True)


def _table(found: PairMeasures) -> Table:
    title = Text(f"{found.draft} as a draft for {found.target}")
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    table.add_column("text", style="cyan")
    for name in (
        "tokens",
        "places",
        "KL",
        "KL byte",
        "top 1",
        "alike",
        "mass t/d",
        "accepted",
        "length",
        "per pass",
        "speed-up",
    ):
        table.add_column(name, justify="right")
    for line in found.lines:
        table.add_row(
            Text(line.kind),
            f"{line.n_tokens:,}",
            f"{line.n_places:,}",
            f"{line.kl:.2f}",
            f"{line.kl_byte:.2f}",
            f"{line.same:.0%}",
            f"{line.alike:.0%}",
            f"{line.target_mass:.0%}/{line.draft_mass:.0%}",
            "" if line.accepted is None else f"{line.accepted:.0%}",
            "" if line.length is None else str(line.length),
            "" if line.per_round is None else f"{line.per_round:.1f}",
            Text("") if line.speed_up is None else Text(f"{line.speed_up:.2f}", _style(line.speed_up)),
        )
    return table


def _style(speed_up: float) -> str:
    return "green" if speed_up >= 1.3 else "yellow" if speed_up > 1.0 else "red"


def _verdict(last: Line, lines: Sequence[Line]) -> str:
    written = [line for line in lines if line.speed_up is not None]
    if not written or last.speed_up is None:
        return "the target wrote nothing, so no speed-up can be foretold"
    low, high = min(line.speed_up or 1.0 for line in written), max(line.speed_up or 1.0 for line in written)
    if high <= 1.0:
        return "this draft will not pay on this machine"
    return (
        f"expected speed-up on this machine, greedy, one sequence, best fixed length: {last.speed_up:.2f} "
        f"({low:.2f} to {high:.2f})"
    )


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
