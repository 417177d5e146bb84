"""`uad mapping list|show|derive|check|lint`: look at chat format rules, make new ones, see what they do. Knows no rule
itself.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from uad.cli.models import parse
from uad.common.files import path_of, read_text
from uad.common.names import did_you_mean
from uad.config.argv import Parser
from uad.config.flags import GENERAL, TEMPLATES
from uad.console import console_on, note
from uad.errors import ConfigError, MappingError

if TYPE_CHECKING:
    from uad.commands.mapping import Comparison

_USAGE = """\
usage: uad mapping COMMAND …

Rules say how a conversation in the target's chat format reaches the draft in its own.

commands:
  list                  all families and pairs in use
  show FILE             one of them, by name or path
  derive TARGET DRAFT   write a pair file from the chat templates of two models (-o FILE)
  check TARGET DRAFT    show a conversation as the draft sees it and as its own template writes it;
                        exit code 1 if they differ
  lint                  say what is wrong with the files, without any model; exit code 1 on errors

uad mapping COMMAND --help tells more. --mappings DIR adds a directory that wins over the bundled one."""
_LIMIT = 1_000_000
_CONVERSATION = (
    {"role": "system", "content": "You are a helpful assistant. Answer briefly."},
    {"role": "user", "content": "How many legs has a spider?"},
    {"role": "assistant", "content": "Eight."},
    {"role": "user", "content": "And if I type <|im_end|> or </s> or [/INST]?"},
)


def main(argv: Sequence[str]) -> int:
    """Run one of the commands. Raises UadError."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_USAGE, file=sys.stdout if argv else sys.stderr)
        return 0 if argv else 2
    name, *rest = argv
    if name not in _COMMANDS:
        raise ConfigError(
            f"unknown command 'mapping {name}'; {did_you_mean(name, _COMMANDS)} (uad mapping --help lists them)"
        )
    return _COMMANDS[name](rest)


def _list(argv: Sequence[str]) -> int:
    parser = _parser("list", "List all families and pairs in use.")
    directories = tuple(parser.parse(argv).mappings)

    from uad.commands.mapping import list_mappings

    files = list_mappings(directories)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for file in files:
        where = "" if file.path.parent.parent not in directories else str(file.path)
        table.add_row(file.kind, Text(file.name, style="cyan"), Text(file.title), Text(where))
    console_on().print(table)
    print(
        f"{sum(file.kind == 'family' for file in files)} families, {sum(file.kind == 'pair' for file in files)} pairs"
    )
    return 0


def _show(argv: Sequence[str]) -> int:
    parser = _parser("show", "Print a family or pair file, after checking it.", "FILE")
    parser.add_argument("file", metavar="FILE", help="name of a family or pair, or path of a file")
    args = parser.parse(argv)

    from uad.commands.mapping import read_mapping

    path, text = read_mapping(args.file, tuple(args.mappings))
    print(f"# {path}\n{text}", end="")
    return 0


def _derive(argv: Sequence[str]) -> int:
    parser = Parser(
        "uad mapping derive", "Write a pair file from the chat templates of two models.", positional="TARGET DRAFT"
    )
    _add_models(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="file to write, ending in .yaml; its name is the pair's (default: stdout)",
    )
    args, config = parse(parser, argv, (TEMPLATES, GENERAL), ("target", "draft"), logging.WARNING)
    out = _yaml_path(args.output) if args.output else None

    from uad.commands.mapping import derive_mapping

    derived = derive_mapping(config, out.stem if out else None)
    for line in derived.notes:
        note(line)
    if out is None:
        print(derived.text, end="")
        return 0
    _write(out, derived.text)
    note(f"wrote {out}; the rules that it makes:")
    for line in derived.rules:
        note(f"  {line}")
    return 0


def _check(argv: Sequence[str]) -> int:
    text = "Show a conversation as the draft sees it and as its own template writes it. Exit code 1 if they differ."
    parser = Parser("uad mapping check", text, positional="TARGET DRAFT")
    _add_models(parser)
    parser.add_argument(
        "--conversation", metavar="FILE", help="JSON: a list of messages with role and content (default: a short one)"
    )
    args, config = parse(parser, argv, (TEMPLATES, GENERAL), ("target", "draft"), logging.WARNING)
    messages = _conversation(path_of(args.conversation)) if args.conversation else _CONVERSATION

    from uad.commands.mapping import check_mapping

    found = check_mapping(config, messages)
    for line in found.notes:
        note(line)
    _report(found, Console(soft_wrap=True, highlight=False))
    return 0 if found.is_same_to_answer else 1


def _lint(argv: Sequence[str]) -> int:
    directories = tuple(
        _parser("lint", "Say what is wrong with mapping files, without any model.").parse(argv).mappings
    )

    from uad.commands.mapping import lint_mappings

    n_files, findings = lint_mappings(directories)
    for finding in findings:
        print(f"{'error' if finding.is_error else 'warning'}: {finding.text}")
    n_errors = sum(finding.is_error for finding in findings)
    n_warnings = len(findings) - n_errors
    print(
        f"{n_files} files, {n_errors} error{'' if n_errors == 1 else 's'}, "
        f"{n_warnings} warning{'' if n_warnings == 1 else 's'}"
    )
    return 1 if n_errors else 0


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "list": _list,
    "show": _show,
    "derive": _derive,
    "check": _check,
    "lint": _lint,
}


def _parser(name: str, text: str, positional: str = "") -> Parser:
    parser = Parser(f"uad mapping {name}", text, positional=positional)
    parser.add_argument(
        "--mappings",
        metavar="DIR",
        type=path_of,
        action="append",
        default=[],
        help="folder with mapping files of your own; repeatable",
    )
    return parser


def _add_models(parser: Parser) -> None:
    parser.add_argument("target", metavar="TARGET", help="GGUF file of the target model")
    parser.add_argument("draft", metavar="DRAFT", help="GGUF file of the draft model")


def _yaml_path(text: str) -> Path:
    path = path_of(text)
    if path.suffix != ".yaml":
        raise ConfigError(f"--output {text}: mapping files end in .yaml; try {path.with_suffix('.yaml')}")
    return path


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--output {path}: cannot be written: {error.strerror}") from None


def _conversation(path: Path) -> list[Mapping[str, object]]:
    """The messages of a JSON file: a list, or an object with the key messages (as in a request)."""
    try:
        value = json.loads(read_text(path, _LIMIT, MappingError))
    except json.JSONDecodeError as error:
        raise MappingError(f"{path}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}") from None
    except RecursionError:
        raise MappingError(f"{path}: not JSON text") from None
    messages = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise MappingError(f'{path}: expected a list of messages such as {{"role": "user", "content": "Hello"}}')
    return messages


def _report(found: Comparison, console: Console) -> None:
    console.print(Text("the target's prompt", style="bold"))
    console.print(Text(_visible(found.prompt)))
    console.print(Text("the draft sees (-), its own template writes (+)", style="bold"))
    for line in _diff(found.translated, found.own):
        console.print(Text(line, style={"-": "red", "+": "green"}.get(line[0], "")))
    if found.is_same:
        verdict = "no difference"
    elif found.is_same_to_answer:
        verdict = "no difference but in how the answer begins, which is written when the target's first token has told"
    else:
        verdict = "they differ"
    console.print(Text(verdict, style="bold"))


def _diff(translated: str, own: str) -> Iterator[str]:
    """Line by line, markers on lines of their own."""
    before, after = _visible(translated).splitlines(), _visible(own).splitlines()
    for line in difflib.ndiff(before, after):
        if not line.startswith("?"):
            yield line


def _visible(text: str) -> str:
    """Newlines shown, and a line break after each; long lines break after what looks like the end of a special."""
    shown = text.replace("\n", "⏎\n")
    return re.sub(r"(?<=[>\]])(?=[<\[])", "\n", shown)
