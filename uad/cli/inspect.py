"""`uad inspect`: what two models have in common, how text is translated between them, and with --measure what the draft
is worth.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from uad.cli.models import parse
from uad.common.files import path_of, read_text
from uad.config import Config
from uad.config.argv import Parser
from uad.config.flags import CONTEXT, DRAFT, DRAFTING, GENERAL, MODEL, TEMPLATES, TOKENIZERS
from uad.console import console_on, progress
from uad.errors import ConfigError
from uad.hub import fetched

if TYPE_CHECKING:
    from uad.commands.measure import Line, PairMeasures, SampleText

_DESCRIPTION = """Show what two models have in common: vocabularies, chat formats, the rules that apply, what cannot be
translated.

With --measure, how well the draft foretells the target: KL divergence and agreement of the likeliest tokens where both
have a token boundary, over the tokens that both can express and for the next byte; accepted tokens, and the speed-up to
expect on this machine."""
_EPILOG = "example: uad inspect TARGET.gguf DRAFT.gguf --measure"
_WORKLOADS, _PER_WORKLOAD = ("chat", "code", "copy-edit", "story"), 3
_PIECE, _PIECES, _OWN_PIECES = 800, 3, 12
_LIMIT = 10_000_000


def main(argv: Sequence[str]) -> int:
    """Print the report. Raises UadError."""
    parser = Parser("uad inspect", _DESCRIPTION, _EPILOG, "[TARGET DRAFT]")
    parser.add_argument("target", metavar="TARGET", nargs="?", help="GGUF file of the target model")
    parser.add_argument("draft", metavar="DRAFT", nargs="?", help="GGUF file of the draft model")
    parser.add_argument(
        "--measure", action="store_true", help="measure how well the draft foretells the target (seconds to minutes)"
    )
    parser.add_argument(
        "--text", metavar="FILE", help="measure on this text, and on what the target writes after it; implies --measure"
    )
    parser.add_argument("--json", action="store_true", help="with --measure: print one line of JSON")
    groups = (MODEL, CONTEXT, DRAFT, DRAFTING, TOKENIZERS, TEMPLATES, GENERAL)
    args, config = parse(
        parser, argv, groups, ("target", "draft"), logging.WARNING if "--json" in argv else logging.INFO
    )
    if args.json and not (args.measure or args.text):
        raise ConfigError("--json: only measurements are printed as JSON; add --measure")
    if config.draft is None:
        raise ConfigError("inspect needs a target and a draft; name both files, or give --hf-repo and --hf-repo-draft")
    with progress(sys.stderr) as report:
        config = fetched(config, report)
    if args.measure or args.text:
        _measure(config, args.text, args.json)
        return 0

    from uad.runtime import inspect_pair

    print_sections(inspect_pair(config).sections, Console())
    return 0


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


# --- measuring


def _measure(config: Config, text: str | None, as_json: bool) -> None:
    from uad.commands.measure import measure_pair

    samples = _own_samples(path_of(text)) if text else _bundled_samples()
    with progress(sys.stderr) as report:
        found = measure_pair(config, samples, report)
    _show(found, as_json)


def _bundled_samples() -> list[SampleText]:
    """Prompts of the bench for the target to answer or continue, and its texts to read."""
    from uad.bench.workloads import PROMPT_DIR, load
    from uad.commands.measure import Form, SampleText, chunks

    samples = []
    for name in _WORKLOADS:
        prompts = load(name).head(_PER_WORKLOAD).prompts
        samples += [SampleText(name, prompt.text, Form.CHAT if prompt.chat else Form.CONTINUE) for prompt in prompts]
    for file in sorted((PROMPT_DIR.parent / "texts").glob("*.txt")):
        text = read_text(file)
        samples += [SampleText(f"{file.stem} text, read", piece, Form.READ) for piece in chunks(text, _PIECE, _PIECES)]
    return samples


def _own_samples(path: Path) -> list[SampleText]:
    """A file in pieces, each to be read, and its first half to be continued."""
    from uad.commands.measure import Form, SampleText, chunks

    text = read_text(path, _LIMIT)
    pieces = [piece for piece in chunks(text, _PIECE, _OWN_PIECES) if piece.strip()]
    if not pieces:
        raise ConfigError(f"--text {path}: holds no text")
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
