"""`uad inspect`: what two models have in common, how text is translated between them, and with --measure what drafting
gains.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from uad.base.common.files import is_folder, path_of
from uad.base.config import HEAD_TYPE, Config, ModelConfig
from uad.base.config.argv import Parser
from uad.base.config.flags import CONTEXT, DRAFT, DRAFTING, GENERAL, MODEL, TEMPLATES, TOKENIZERS
from uad.base.console import progress
from uad.base.errors import ConfigError
from uad.tools.cli import cost_plot, pairs
from uad.tools.cli.models import parse
from uad.tools.hub import fetched

if TYPE_CHECKING:
    import argparse

    from uad.llama.head_file import HeadFile
    from uad.llama.model import Model
    from uad.text.vocab.encode import Encoder

_DESCRIPTION = """Show what two models have in common: vocabularies, chat formats, the rules that apply, what cannot be
translated.

With --measure, what drafting gains on this machine: a server is started with these flags, answers a few prompts with
drafts and without, and is stopped. `uad bench requests` compares servers."""
_EPILOG = "example: uad inspect TARGET.gguf DRAFT.gguf --measure"
_GROUPS = (MODEL, CONTEXT, DRAFT, DRAFTING, TOKENIZERS, TEMPLATES, GENERAL)


def main(argv: Sequence[str]) -> int:
    """Print the report. Raises UadError."""
    parser = Parser("uad inspect", _DESCRIPTION, _EPILOG, "[TARGET DRAFT]")
    _add_flags(parser)
    if "--all" in argv or any(word.startswith("--all=") for word in argv):
        return _inspect_all(argv)
    args, config = parse(
        parser, argv, _GROUPS, ("target", "draft"), logging.WARNING if "--json" in argv else logging.INFO
    )
    if args.plot is not None:
        raise ConfigError("--plot: only the pairs of a folder are drawn; add --all FOLDER")
    if args.json and not (args.measure or args.text):
        raise ConfigError("--json: only measurements are printed as JSON; add --measure")
    if config.draft is None:
        raise ConfigError("inspect needs a target and a draft; name both files, or give --hf-repo and --hf-repo-draft")
    with progress(sys.stderr) as report:
        config = fetched(config, report)
    if args.measure or args.text:
        _measure(argv, args, config)
        return 0
    print_sections(inspect_pair(config), Console())
    return 0


def _inspect_all(argv: Sequence[str]) -> int:
    """The pairs of a folder, in a table and in a picture. Raises ConfigError."""
    parser = Parser("uad inspect", _DESCRIPTION, _EPILOG, "--all FOLDER")
    _add_flags(parser)
    args = parser.parse(argv)
    if args.measure or args.text or args.json:
        raise ConfigError("--all shows what is known of a folder; --measure, --text and --json are of one pair")
    folder, plot = path_of(args.all), None if args.plot is None else path_of(args.plot)
    if not is_folder(folder):
        raise ConfigError(f"--all: {folder} is not a directory")
    if plot is not None:
        cost_plot.check(plot)
    matrix = pairs.matrix_of(folder)
    pairs.print_matrix(matrix, Console())
    if plot is not None:
        pairs.draw_matrix(matrix, plot)
    return 0


def _add_flags(parser: Parser) -> None:
    """The command's own."""
    parser.add_argument(
        "--all", metavar="FOLDER", help="show what each model of a folder would gain from each smaller one in it"
    )
    parser.add_argument("--plot", metavar="FILE", help="with --all: draw that, as .png, .svg or .pdf")
    parser.add_argument(
        "--measure", action="store_true", help="measure what drafting gains, on a server with these flags (minutes)"
    )
    parser.add_argument(
        "--text", metavar="FILE", help="let the target continue pieces of this text instead; implies --measure"
    )
    parser.add_argument("--json", action="store_true", help="with --measure: print one line of JSON")


def print_sections(sections: Iterable[tuple[str, Sequence[tuple[str, str]]]], console: Console) -> None:
    """One table per section: (heading, rows of (name, value)). Values may hold anything, so none is read as rich
    markup.
    """
    for heading, rows in sections:
        table = Table(
            title=Text(heading),
            title_justify="left",
            title_style="bold",
            show_header=False,
            box=None,
            padding=(0, 2, 0, 2),
        )
        table.add_column(no_wrap=True, style="cyan")
        table.add_column(overflow="fold")
        for name, value in rows:
            table.add_row(Text(name), Text(value))
        console.print(table, "")


def _measure(argv: Sequence[str], args: argparse.Namespace, config: Config) -> None:
    """A short bench of `uad serve` with the flags of this command."""
    from uad.tools.bench.gain import bundled_prompts, measure, prompts_of
    from uad.tools.bench.serving import serving

    workloads = prompts_of(path_of(args.text)) if args.text else bundled_prompts()
    own = Parser("uad inspect", "")
    _add_flags(own)
    words = own.split(argv)[1]
    keys = config.server.api_keys  # of a file of --config
    with serving(words, os.environ, keys[0] if keys else None) as client:
        measure(client, workloads, sys.stdout, sys.stderr, args.json)


# --- what two models have in common


_PROSE = (
    "The old sailor walked past the stone bridge at dusk, counted seven apples and wrote: "
    "“naïve café, 東京, привет, 😀”. "
    "Nobody answered; the winter of 1997 had been long, and the river was 3.5 metres higher than usual.\n\n"
)

_CODE = '''
from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

_LIMIT = 4096


@dataclass(slots=True)
class Inventory:
    """Items by name, with how many of each are in stock."""

    path: Path
    items: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, count: int = 1) -> None:
        if count < 0 or len(name) > _LIMIT:
            raise ValueError(f"cannot add {count} of {name!r}")
        self.items[name] = self.items.get(name, 0) + count

    def total(self, *, skip: frozenset[str] = frozenset()) -> float:
        return sum(0.5 * n for name, n in sorted(self.items.items()) if name not in skip)

    def save(self) -> None:
        with open(self.path, "w", encoding="utf-8") as out:
            json.dump({"version": 2, "items": self.items}, out, indent=4)  # readable by people, too


def main(argv: list[str]) -> int:
    stock = Inventory(Path(argv[1]) if len(argv) > 1 else Path("stock.json"))
    for i, line in enumerate(["apples=12", "pears=7", "# nothing"]):
        if not line.startswith("#"):
            name, _, count = line.partition("=")
            stock.add(name.strip(), int(count))
        elif i == 0:
            return 1
    print(stock.total(), sep="\\t")
    stock.save()
    return 0
'''


Sections = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""For people: (heading, rows of (name, value))."""


def inspect_pair(config: Config) -> Sections:
    """Reads the headers and compares the target with each draft. Raises ModelLoadError or MappingError; ConfigError
    where no draft is given.
    """
    if config.draft is None:
        raise ConfigError("inspect needs a target and a draft")
    return tuple(chain.from_iterable(_sections(config, draft) for draft in config.drafts))


def _sections(config: Config, own: ModelConfig) -> Sections:
    from uad.llama.head_file import head_in
    from uad.runtime.models import open_model, side, template_options
    from uad.text.mapping.plan import plan

    if (head := head_in(own.path)) is not None and head.is_trained:
        return _inspect_head(config.target, own, head)
    with (
        open_model(config.target, "target", has_weights=False) as target,
        open_model(own, "draft", has_weights=False) as draft,
    ):
        rules = plan(side(target, config.templates.chat_template), side(draft), template_options(config))
        return (
            ("Target", _model_rows(target, config.target)),
            ("Draft", (*_model_rows(draft, own), *_trim_rows(draft))),
            ("Overlap", _overlap_rows(target, draft)),
            ("Chat formats", tuple(_split(note) for note in rules.notes)),
            (
                "Rules",
                tuple((f"rule {i}", line) for i, line in enumerate(rules.rules.lines, 1))
                or (("none", "text passes as it is"),),
            ),
            ("Cannot be translated", _lost_rows(target, draft, rules.rules.dropped)),
        )


def _inspect_head(target_config: ModelConfig, head_config: ModelConfig, head: HeadFile) -> Sections:
    """A head that was trained apart, and the target that it may be of. Raises what `inspect_pair` does."""
    from uad.llama.head_file import KINDS, mismatch
    from uad.runtime.models import open_model

    with (
        open_model(target_config, "target", has_weights=False) as target,
        open_model(replace(head_config, with_head=True), "head", has_weights=False) as model,
    ):
        why = head.obstacle or mismatch(head, target_config.path)
        if not why and model.vocab.texts != target.vocab.texts:
            why = "its vocabulary has other tokens than the target's"
        ours, own = target.info.chat_template, model.info.chat_template
        template = "other than the target's, or of another version: fewer guesses may be right"
        n_layers = target.meta(f"{target.info.arch}.block_count")
        rows = (
            ("kind", f"{KINDS[head.origin]}: --spec-type {head.origin}"),
            ("belongs to this target", f"no: {why}" if why else "yes"),
            ("layers that it reads", f"{', '.join(map(str, head.layers))} of {n_layers}"),
            *((("tokens of a block", str(head.n_block)),) if head.n_block else ()),
            ("chat template", "not in its file" if own is None else "the target's" if own == ours else template),
            ("trained with thoughts or without", "no file says so; a head for the other way has fewer guesses right"),
        )
        return (
            ("Target", _model_rows(target, target_config)),
            ("Head", (*_model_rows(model, head_config)[:-1], *rows)),
        )


def _split(note: str) -> tuple[str, str]:
    head, _, tail = note.partition(": ")
    return (head, tail) if tail else ("note", note)


def _model_rows(model: Model, config: ModelConfig) -> tuple[tuple[str, str], ...]:
    from uad.llama.kernels import weights

    info, vocab = model.info, model.vocab
    return (
        ("file", info.path),
        ("model", f"{info.desc}, {info.n_params / 1e6:,.1f} M parameters, {info.size / 2**20:,.0f} MiB, {info.ftype}"),
        ("weights", weights.kinds(config)),
        ("context", f"{info.n_ctx_train:,} tokens"),
        (
            "vocabulary",
            f"{info.n_vocab:,} tokens, {len(vocab.special_ids)} specials, longest {max(map(len, vocab.pieces))} bytes",
        ),
        (
            "ends of text",
            ", ".join(sorted(vocab.special_names.get(i, repr(vocab.pieces[i])) for i in vocab.eog)) or "none",
        ),
        (
            "BOS",
            f"{vocab.special_names.get(vocab.bos, '')}{' (added to prompts)' if vocab.add_bos else ''}"
            if vocab.bos is not None
            else "none",
        ),
        ("head", _head(model)),
    )


def _head(model: Model) -> str:
    """Whether the file has heads, and whether they can draft."""
    from uad.llama.head_file import KINDS, head_in

    head = head_in(model.path)
    if head is None:
        return "none"
    if head.is_trained:
        return head.obstacle or f"{KINDS[head.origin]}: --spec-type {head.origin} drafts with it"
    count = "one" if head.n_heads == 1 else f"{head.n_heads}, the first of which drafts"
    return head.obstacle or f"{count} ({head.arch}): --spec-type {HEAD_TYPE} drafts with it"


def _trim_rows(draft: Model) -> tuple[tuple[str, str], ...]:
    """A line where a smaller vocabulary would make the draft notably smaller."""
    from uad.tools.trim.cut import saving

    saved = saving(draft.path)
    return () if saved is None else (("could be smaller", saved),)


def _overlap_rows(target: Model, draft: Model) -> tuple[tuple[str, str], ...]:
    ours, theirs = set(target.vocab.by_bytes), set(draft.vocab.by_bytes)
    both = len(ours & theirs)
    return (
        ("draft tokens that the target has", f"{both:,} of {len(theirs):,} ({100 * both / max(len(theirs), 1):.0f} %)"),
        ("target tokens that the draft has", f"{both:,} of {len(ours):,} ({100 * both / max(len(ours), 1):.0f} %)"),
        ("in running prose", _running(target, draft, _PROSE * 20)),
        ("in running code", _running(target, draft, _CODE * 20)),
    )


def _running(target: Model, draft: Model, text: str) -> str:
    """How often both cut the same piece out of the same place."""
    from uad.text.vocab.encode import Encoder

    spans = [_spans(Encoder(model.vocab), text.encode()) for model in (target, draft)]
    same = len(set(spans[0]) & set(spans[1]))
    n_bytes = len(text.encode())
    return (
        f"{100 * same / len(spans[1]):.0f} % of draft tokens map one to one; "
        f"{n_bytes / len(spans[0]):.2f} bytes per target token, {n_bytes / len(spans[1]):.2f} per draft token"
    )


def _spans(encoder: Encoder, data: bytes) -> list[tuple[int, int]]:
    spans, at = [], 0
    for id_ in encoder.encode(data):
        end = at + len(encoder.vocab.pieces[id_])
        spans.append((at, end))
        at = end
    return spans


def _lost_rows(target: Model, draft: Model, dropped: frozenset[int]) -> tuple[tuple[str, str], ...]:
    names = ", ".join(sorted(target.vocab.special_names[i] for i in dropped if i in target.vocab.special_names))
    covered = {piece[0] for piece in target.vocab.by_bytes if len(piece) == 1}
    missing = [f"0x{byte:02X}" for byte in range(256) if byte not in covered]
    return (
        ("target specials that the draft never sees", names or "none"),
        ("bytes that the target has no token for", ", ".join(missing) or "none"),
    )
