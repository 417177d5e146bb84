"""`uad inspect`: what two models have in common, and how text is translated between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from uad.cli.models import parse
from uad.config.argv import Parser
from uad.config.flags import GENERAL, TEMPLATES

_DESCRIPTION = "Show what two models have in common: vocabularies, chat formats, the rules that apply, what cannot be translated."
_EPILOG = "example: uad inspect samples/target-chatml.gguf samples/draft-zephyr.gguf"


def main(argv: Sequence[str]) -> int:
    """Print the report. Raises UadError."""
    parser = Parser("uad inspect", _DESCRIPTION, _EPILOG, "TARGET DRAFT")
    parser.add_argument("target", metavar="TARGET", help="GGUF file of the target model")
    parser.add_argument("draft", metavar="DRAFT", help="GGUF file of the draft model")
    _, config = parse(parser, argv, (TEMPLATES, GENERAL), ("target", "draft"))

    from uad.runtime import inspect_pair

    print_sections(inspect_pair(config).sections, Console())
    return 0


def print_sections(sections: Iterable[tuple[str, Sequence[tuple[str, str]]]], console: Console) -> None:
    """One table per section: (heading, rows of (name, value)). Values may hold anything, so none is read as rich markup."""
    for heading, rows in sections:
        table = Table(title=Text(heading), title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 2, 0, 2))
        table.add_column(no_wrap=True, style="cyan")
        table.add_column(overflow="fold")
        for name, value in rows:
            table.add_row(Text(name), Text(value))
        console.print(table, "")
