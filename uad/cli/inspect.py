"""`uad inspect`: what two models have in common, how text is translated between them, and with --measure what drafting
gains.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from uad.cli.models import parse
from uad.common.files import path_of
from uad.config import Config
from uad.config.argv import Parser
from uad.config.flags import CONTEXT, DRAFT, DRAFTING, GENERAL, MODEL, TEMPLATES, TOKENIZERS
from uad.console import progress
from uad.errors import ConfigError
from uad.hub import fetched

if TYPE_CHECKING:
    import argparse

_DESCRIPTION = """Show what two models have in common: vocabularies, chat formats, the rules that apply, what cannot be
translated.

With --measure, what drafting gains on this machine: a server is started with these flags, answers a few prompts with
drafts and without, and is stopped. `uad bench` measures in more depth."""
_EPILOG = "example: uad inspect TARGET.gguf DRAFT.gguf --measure"
_GROUPS = (MODEL, CONTEXT, DRAFT, DRAFTING, TOKENIZERS, TEMPLATES, GENERAL)


def main(argv: Sequence[str]) -> int:
    """Print the report. Raises UadError."""
    parser = Parser("uad inspect", _DESCRIPTION, _EPILOG, "[TARGET DRAFT]")
    parser.add_argument("target", metavar="TARGET", nargs="?", help="GGUF file of the target model")
    parser.add_argument("draft", metavar="DRAFT", nargs="?", help="GGUF file of the draft model")
    _add_flags(parser)
    args, config = parse(
        parser, argv, _GROUPS, ("target", "draft"), logging.WARNING if "--json" in argv else logging.INFO
    )
    if args.json and not (args.measure or args.text):
        raise ConfigError("--json: only measurements are printed as JSON; add --measure")
    if config.draft is None:
        raise ConfigError("inspect needs a target and a draft; name both files, or give --hf-repo and --hf-repo-draft")
    with progress(sys.stderr) as report:
        config = fetched(config, report)
    if args.measure or args.text:
        _measure(argv, args, config)
        return 0

    from uad.commands.inspect import inspect_pair

    print_sections(inspect_pair(config).sections, Console())
    return 0


def _add_flags(parser: Parser) -> None:
    """The command's own."""
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
    from uad.bench.gain import bundled_prompts, measure, prompts_of
    from uad.bench.serving import serving

    workloads = prompts_of(path_of(args.text)) if args.text else bundled_prompts()
    own = Parser("uad inspect", "")
    _add_flags(own)
    words = own.split(argv)[1]
    for name in ("target", "draft"):
        if (path := getattr(args, name)) is not None:
            words.remove(path)
            words += [f"--{name}", path]
    keys = config.server.api_keys  # of a file of --config
    with serving(words, os.environ, keys[0] if keys else None) as client:
        measure(client, workloads, sys.stdout, sys.stderr, args.json)
