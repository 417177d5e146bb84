"""The cost and the loss of crossing from one vocabulary to another: `python lab/translate.py --pair TARGET DRAFT`.
Runs no model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

import crossing
import ideal
from rich.console import Console
from rich.table import Table

from uad.base.common.files import path_of
from uad.base.config.argv import Parser, typed
from uad.base.config.kinds import integer
from uad.base.console import Bar, console_on
from uad.base.errors import ConfigError
from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable
from uad.tools.bench.workloads import PROMPT_DIR
from uad.tools.cli import run
from uad.tools.cli.cost_plot import check

LoadVocab = Callable[[Path], VocabTable]

_TEXTS = PROMPT_DIR.parent / "texts"
_CONTEXTS = (1024, 8192, 32768, 131072)
_PROFILED = 16
_HEAD = (
    *("target", "draft", "bytes per token", "one to one", "accepted, naive", "accepted, ours"),
    *("bytes per draft token, naive", "bytes per draft token, ours", "bytes per used draft token, ours"),
)


DESCRIPTION = """Measure the crossing between two vocabularies: cost per round at several context lengths, and what is
lost.

Losses are those of an ideal drafter, which proposes exactly the bytes that the target will write, cut into 8 of its own
tokens. The naive method beside it encodes the draft's bytes alone, and the whole context in every round. The last line
is JSON."""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line. Raises ConfigError."""
    parser = Parser("lab/translate.py", DESCRIPTION)
    parser.add_argument(
        "--pair",
        nargs=2,
        metavar=("TARGET", "DRAFT"),
        type=path_of,
        action="append",
        default=[],
        help="two GGUF files, with weights or vocabularies only: measure cost by context, likeness and losses; "
        "repeatable",
    )
    parser.add_argument(
        "--vocabs", metavar="DIR", type=path_of, help="losses for every ordered pair of the .gguf files in a folder"
    )
    parser.add_argument(
        "--text",
        metavar="FILE",
        type=path_of,
        action="append",
        default=[],
        help="text to measure on; repeatable (default: code and mixed scripts)",
    )
    parser.add_argument(
        "--contexts",
        metavar="N,N",
        default=",".join(map(str, _CONTEXTS)),
        help="context lengths in draft tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds", metavar="N", type=typed(integer(1)), default=400, help="rounds per cell (default: %(default)s)"
    )
    parser.add_argument(
        "--plot",
        metavar="FILE",
        type=path_of,
        help="draw cost against context, ours beside the naive method's (.png, .svg)",
    )
    parser.add_argument(
        "--profile", action="store_true", help="show what a round calls, and how often, behind each context"
    )
    parser.add_argument("--markdown", metavar="FILE", type=path_of, help="write the table of losses as Markdown")
    return parser.parse(argv)


@dataclass(frozen=True, slots=True)
class Loss:
    """The ideal drafter's loss between two vocabularies, over all texts."""

    target: str
    draft: str
    kinship: crossing.Kinship
    result: ideal.Result


def main(argv: Sequence[str]) -> int:
    """Measure and print; the last line on stdout is JSON. Raises ConfigError or ModelLoadError."""
    from uad.llama.vocab import load_vocab

    args = parse(argv)
    contexts = _contexts(args.contexts)
    texts = _texts(args.text)
    folder = sorted(args.vocabs.glob("*.gguf")) if args.vocabs else []
    if not args.pair and len(folder) < 2:
        raise ConfigError(
            f"no two .gguf files in {args.vocabs}"
            if args.vocabs
            else "nothing to measure: give --pair TARGET DRAFT, or --vocabs DIR"
        )
    if args.markdown and not args.markdown.absolute().parent.is_dir():
        raise ConfigError(f"--markdown {args.markdown}: there is no directory {args.markdown.parent}")
    if args.plot:
        if not args.pair:
            raise ConfigError("--plot draws cost against context: give at least one --pair")
        check(args.plot)
    pairs = list(dict.fromkeys([*map(tuple, args.pair), *((a, b) for a in folder for b in folder if a != b)]))
    vocabularies = _Vocabularies(load_vocab, texts)
    with Bar(sys.stderr, len(pairs) + len(args.pair) * len(contexts)) as bar:
        losses = [loss for target, draft in pairs if (loss := _loss(vocabularies, target, draft, args.rounds, bar))]
        curves = [_curve(vocabularies, target, draft, contexts, args.rounds, bar) for target, draft in args.pair]
    profiles = (
        [_profile(vocabularies, target, draft, contexts, args.rounds) for target, draft in args.pair]
        if args.profile
        else []
    )
    console = console_on()
    _print(console, losses, curves, vocabularies.skipped)
    for name, by_context in profiles:
        console.print(_profile_table(name, by_context))
    if args.markdown:
        _write(args.markdown, markdown(losses))
    if args.plot:
        from crossing_plot import draw

        draw(curves, args.plot)
    print(json_line(curves, losses), flush=True)
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--markdown {path}: cannot be written ({error.strerror})") from None


def _contexts(given: str) -> list[int]:
    try:
        contexts = [int(word) for word in given.split(",")]
    except ValueError:
        raise ConfigError(f"--contexts {given!r}: write whole numbers with commas between them") from None
    if min(contexts) < 64:
        raise ConfigError(f"--contexts {given!r}: a context has at least 64 tokens")
    return contexts


def _texts(paths: Sequence[Path]) -> list[bytes]:
    try:
        texts = [path.read_bytes() for path in paths or sorted(_TEXTS.glob("*.txt"))]
    except OSError as error:
        raise ConfigError(f"--text {error.filename}: cannot be read ({error.strerror})") from None
    for path, text in zip(paths, texts, strict=False):
        if len(text) < 1000:
            raise ConfigError(f"--text {path}: {len(text)} bytes are too few to measure on; 1000 are needed")
    return texts


class _Vocabularies:
    """Vocabularies with the texts encoded, each loaded once. `skipped` names those that cannot give the texts back."""

    def __init__(self, load: LoadVocab, texts: list[bytes]) -> None:
        self._load = load
        self.texts = texts
        self._known: dict[Path, list[ideal.Side]] = {}
        self.skipped: dict[str, None] = {}

    def sides(self, path: Path) -> list[ideal.Side] | None:
        """One side per text; None where llama.cpp's tokenization of a text loses some of it."""
        if path not in self._known:
            encoder = Encoder(self._load(path))
            self._known[path] = [ideal.Side.of(encoder, text) for text in self.texts]
            if any(encoder.vocab.join(encoder.vocab.tokenize(text)) != text for text in self.texts):
                self.skipped[name_of(path)] = None
        return None if name_of(path) in self.skipped else self._known[path]

    def halves(self) -> tuple[bytes, bytes]:
        """The first halves of all texts, to stand before; and the second, to be written."""
        halves = [(text[: len(text) // 2], text[len(text) // 2 :]) for text in self.texts]
        return b"".join(first for first, _ in halves), b"".join(second for _, second in halves)

    def encoder(self, path: Path) -> Encoder:
        """An encoder of its own, without a memory."""
        self.sides(path)
        return Encoder(self._known[path][0].encoder.vocab)


def name_of(path: Path) -> str:
    """A vocabulary's short name."""
    return path.stem.removeprefix("ggml-vocab-")


def _loss(vocabularies: _Vocabularies, target: Path, draft: Path, n_rounds: int, bar: Bar) -> Loss | None:
    bar.at(f"{name_of(target)} with {name_of(draft)}")
    ours, theirs = vocabularies.sides(target), vocabularies.sides(draft)
    bar.step()
    if ours is None or theirs is None:
        return None
    names = f"{name_of(target)} {name_of(draft)}"
    sides = list(zip(ours, theirs, vocabularies.texts, strict=True))
    results = [ideal.run(a, b, text, n_rounds, f"{names} {i}") for i, (a, b, text) in enumerate(sides)]
    return Loss(
        name_of(target),
        name_of(draft),
        _mean_kinship(crossing.kinship(a, b) for a, b, _ in sides),
        reduce(add, results),
    )


def _mean_kinship(all_: Iterable[crossing.Kinship]) -> crossing.Kinship:
    kin = list(all_)
    return crossing.Kinship(
        sum(one.bytes_per_target_token for one in kin) / len(kin),
        sum(one.bytes_per_draft_token for one in kin) / len(kin),
        sum(one.one_to_one for one in kin) / len(kin),
    )


def _curve(
    vocabularies: _Vocabularies, target: Path, draft: Path, contexts: Sequence[int], n_rounds: int, bar: Bar
) -> crossing.Curve:
    name = f"{name_of(target)} + {name_of(draft)}"
    encoders = vocabularies.encoder(target), vocabularies.encoder(draft)
    seen, text = vocabularies.halves()
    costs = []
    crossing.measure(*encoders, seen, text, min(contexts), 20)  # tables are made when first asked for
    for n_ctx in contexts:
        bar.at(f"{name} behind {n_ctx} tokens")
        costs.append(crossing.measure(*encoders, seen, text, n_ctx, n_rounds))
        bar.step()
    return crossing.Curve(name, tuple(costs))


Profile = dict[int, dict[str, crossing.Spent]]


def _profile(
    vocabularies: _Vocabularies, target: Path, draft: Path, contexts: Sequence[int], n_rounds: int
) -> tuple[str, Profile]:
    encoders = vocabularies.encoder(target), vocabularies.encoder(draft)
    seen, text = vocabularies.halves()
    by_context = {n_ctx: crossing.profile(*encoders, seen, text, n_ctx, n_rounds) for n_ctx in contexts}
    return f"{name_of(target)} + {name_of(draft)}", by_context


def _profile_table(name: str, by_context: Profile) -> Table:
    """Calls per round and microseconds, function by function; the heaviest first."""
    table = Table(f"{name}: calls / µs per round", *(f"{n_ctx:,}" for n_ctx in by_context))
    first = next(iter(by_context.values()))
    own = [name for name in first if not name.startswith("crossing.")]
    nothing = crossing.Spent(0.0, 0.0)
    for function in sorted(own, key=lambda function: -first[function].us)[:_PROFILED]:
        spent = [found.get(function, nothing) for found in by_context.values()]
        table.add_row(function, *(f"{one.n_calls:.1f} / {one.us:.0f}" for one in spent))
    return table


def _print(console: Console, losses: Sequence[Loss], curves: Sequence[crossing.Curve], skipped: Iterable[str]) -> None:
    if losses:
        table = Table(*_HEAD)
        for loss in losses:
            table.add_row(*_cells(loss))
        console.print(table)
        console.print(summary(losses), highlight=False)
    if curves:
        table = Table("pair", "context", "µs per round", "warm", "cold", "naive", "words known")
        for curve in curves:
            for cost in curve.costs:
                numbers = (f"{us:,.0f}" for us in (cost.us, cost.warm_us, cost.cold_us, cost.naive_us))
                table.add_row(curve.pair, f"{cost.n_ctx:,}", *numbers, f"{cost.cache_hit:.0%}")
        console.print(table)
    for name in skipped:
        console.print(f"{name}: its tokenizer does not give the texts back; left out", highlight=False)


def _cells(loss: Loss) -> tuple[str, ...]:
    kin, result = loss.kinship, loss.result
    return (
        loss.target,
        loss.draft,
        f"{kin.bytes_per_target_token:.2f} / {kin.bytes_per_draft_token:.2f}",
        f"{kin.one_to_one:.0%}",
        f"{result.naive.share:.4f}",
        f"{result.ours.share:.4f}",
        f"{result.naive.per_drafted:.3f}",
        f"{result.ours.per_drafted:.3f}",
        f"{result.ours.per_used:.3f}",
    )


def summary(losses: Sequence[Loss]) -> str:
    """Averages and worst pairs, one sentence each."""
    naive = [loss.result.naive.share for loss in losses]
    ours = [loss.result.ours.share for loss in losses]
    worst = min(losses, key=lambda loss: loss.result.ours.share)
    total = reduce(add, (loss.result for loss in losses))
    below = _n_below(losses, lambda result: (result.ours.per_used, result.naive.per_used))
    below_all = _n_below(losses, lambda result: (result.all.per_drafted, result.naive.per_drafted))
    return (
        f"{len(losses)} pairs. Accepted share of the proposed target tokens: {sum(ours) / len(ours):.4f} on average, "
        f"{worst.result.ours.share:.4f} in the worst pair ({worst.target} with {worst.draft}); "
        f"naive {sum(naive) / len(naive):.4f} and {min(naive):.4f}. "
        f"Accepted bytes per draft token used: {total.ours.per_used:.3f} (naive {total.naive.per_used:.3f}; below it "
        f"in {below} pairs); "
        f"per draft token written {total.ours.per_drafted:.3f}. With every id proposed, however doubtful, the share is "
        f"{total.all.share:.4f} and the bytes are {total.all.per_drafted:.3f} per draft token written (below naive in "
        f"{below_all} pairs)."
    )


def _n_below(losses: Sequence[Loss], of: Callable[[ideal.Result], tuple[float, float]]) -> int:
    """In how many pairs the first number lies below the second."""
    return sum(ours < naive for ours, naive in (of(loss.result) for loss in losses))


def markdown(losses: Sequence[Loss]) -> str:
    """The table of losses."""
    rows = [_HEAD, ("---",) * len(_HEAD), *(_cells(loss) for loss in losses)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([summary(losses), "", *lines, ""])


def json_line(curves: Sequence[crossing.Curve], losses: Sequence[Loss]) -> str:
    """The last line: medians are of a text read for the first time; of several pairs the worst counts."""
    rounds = [
        {
            "pair": curve.pair,
            "n_ctx": cost.n_ctx,
            "median_us": round(cost.us, 1),
            "warm_us": round(cost.warm_us, 1),
            "cold_us": round(cost.cold_us, 1),
            "naive_us": round(cost.naive_us, 1),
            "cache_hit": round(cost.cache_hit, 4),
        }
        for curve in curves
        for cost in curve.costs
    ]
    at_32k = [cost.us for curve in curves for cost in curve.costs if cost.n_ctx == crossing.REFERENCE[1]]
    shares = [loss.result.ours.share for loss in losses]
    return json.dumps(
        {
            "rounds": rounds,
            "median_us_32k": round(max(at_32k), 1) if at_32k else None,
            "flatness": round(max(curve.flatness for curve in curves), 3) if curves else None,
            "accepted_share": round(sum(shares) / len(shares), 4) if shares else None,
            "accepted_share_worst": round(min(shares), 4) if shares else None,
        }
    )


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
