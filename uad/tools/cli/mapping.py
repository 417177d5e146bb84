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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from uad.base.common.files import is_file, is_there, path_of, read_text
from uad.base.common.names import did_you_mean, meant_or_known
from uad.base.config import Config
from uad.base.config.argv import Parser
from uad.base.config.flags import GENERAL, TEMPLATES
from uad.base.console import console_on, note
from uad.base.errors import ConfigError, InvalidRequestError, MappingError
from uad.tools.cli.models import parse

if TYPE_CHECKING:
    from uad.text.mapping.check import Comparison
    from uad.text.mapping.derive import Derived
    from uad.text.mapping.lint import Finding
    from uad.text.mapping.recognise import Side

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

    path, text = read_mapping(args.file, tuple(args.mappings))
    print(f"# {path}\n{text}", end="")
    return 0


def _derive(argv: Sequence[str]) -> int:
    parser = Parser(
        "uad mapping derive", "Write a pair file from the chat templates of two models.", positional="TARGET DRAFT"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="file to write, ending in .yaml; its name is the pair's (default: stdout)",
    )
    args, config = parse(parser, argv, (TEMPLATES, GENERAL), ("target", "draft"), logging.WARNING)
    out = _yaml_path(args.output) if args.output else None
    if out is not None and is_there(out):
        raise ConfigError(f"--output {out}: there is such a file, which may hold edits; name another one, or remove it")
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
    parser.add_argument(
        "--conversation", metavar="FILE", help="JSON: a list of messages with role and content (default: a short one)"
    )
    args, config = parse(parser, argv, (TEMPLATES, GENERAL), ("target", "draft"), logging.WARNING)
    messages = _conversation(path_of(args.conversation)) if args.conversation else _CONVERSATION

    comparison = check_mapping(config, messages)
    for line in comparison.notes:
        note(line)
    _report(comparison, Console(soft_wrap=True, highlight=False))
    return 0 if comparison.is_same_to_answer else 1


def _lint(argv: Sequence[str]) -> int:
    directories = tuple(
        _parser("lint", "Say what is wrong with mapping files, without any model.").parse(argv).mappings
    )

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


def _report(comparison: Comparison, console: Console) -> None:
    console.print(Text("the target's prompt", style="bold"))
    console.print(Text(_visible(comparison.prompt)))
    console.print(Text("the draft sees (-), its own template writes (+)", style="bold"))
    for line in _diff(comparison.translated, comparison.own):
        console.print(Text(line, style={"-": "red", "+": "green"}.get(line[0], "")))
    if comparison.is_same:
        verdict = "no difference"
    elif comparison.is_same_to_answer:
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


# --- the work: models are opened only to ask for their vocabularies and chat templates


@dataclass(frozen=True)
class MappingFile:
    """One file: its kind ("family", "pair" or "calls"), name, one line about it, and where it is."""

    kind: str
    name: str
    title: str
    path: Path


@dataclass(frozen=True)
class DerivedPair:
    """A pair file's text, what to say about it, and the rules that it makes for these two vocabularies."""

    text: str
    notes: tuple[str, ...]
    rules: tuple[str, ...]


def list_mappings(directories: Sequence[Path]) -> tuple[MappingFile, ...]:
    """All files that are in use, the user's directories first. Raises MappingError for a broken one."""
    from uad.text.calls.files import load_all_calls
    from uad.text.mapping.families import bundled_mappings, load_families
    from uad.text.mapping.pairs import load_pairs

    everywhere = (*directories, bundled_mappings())
    families = [
        MappingFile("family", family.name, family.title, family.path) for family in load_families(everywhere).values()
    ]
    pairs = [MappingFile("pair", pair.name, _applies(pair.path), pair.path) for pair in load_pairs(everywhere).values()]
    calls = [
        MappingFile("calls", name, file.format.title, file.path) for name, file in load_all_calls(everywhere).items()
    ]
    return tuple(file for files in (families, pairs, calls) for file in sorted(files, key=lambda file: file.name))


def read_mapping(name: str, directories: Sequence[Path]) -> tuple[Path, str]:
    """A file by path or by name, checked. Raises MappingError with the nearest name, or with what is wrong in the
    file.
    """
    from uad.base.common.yaml_fields import read_text as read_yaml
    from uad.text.calls.files import load_calls
    from uad.text.mapping.families import load_family
    from uad.text.mapping.pairs import load_pair

    path = path_of(name)
    if not is_file(path):
        known = {file.name: file.path for file in reversed(list_mappings(directories))}
        if name not in known:
            raise MappingError(
                f"there is no mapping file '{name}'; {meant_or_known(name, list(known))} (uad mapping list shows all)"
            )
        path = known[name]
    text = read_yaml(path)
    keys = [line.partition(":")[0] for line in text.splitlines()]
    (load_pair if "pair" in keys else load_calls if "calls" in keys else load_family)(path)
    return path, text


def lint_mappings(directories: Sequence[Path]) -> tuple[int, tuple[Finding, ...]]:
    """The number of files and what is wrong with them."""
    from uad.text.calls.files import lint_calls
    from uad.text.mapping.families import bundled_mappings
    from uad.text.mapping.lint import Finding, lint

    everywhere = (*directories, bundled_mappings())
    n_files, findings = lint(everywhere)
    n_calls, errors = lint_calls(everywhere)
    return n_files + n_calls, (*findings, *(Finding(error, is_error=True) for error in errors))


def derive_mapping(config: Config, name: str | None = None) -> DerivedPair:
    """A pair file from the templates of both models. Raises MappingError where a model has none that can be read."""
    from uad.text.mapping import emit
    from uad.text.mapping.compile import compile_rules

    with _sides(config) as (target, draft):
        formats = [_format_of(side) for side in (target, draft)]
        pair = name or emit.pair_name(target.name, draft.name)
        rules = compile_rules(target.vocab, draft.vocab, formats[0].family, formats[1].family)
        notes = [
            f"{side.name}: {note}"
            for side, recognised in zip((target, draft), formats, strict=True)
            for note in recognised.notes
        ]
        text = emit.pair_text(pair, (target.name, formats[0]), (draft.name, formats[1]))
        return DerivedPair(text, (*notes, *(f"warning: {warning}" for warning in rules.warnings)), rules.lines)


def check_mapping(config: Config, messages: Sequence[Mapping[str, object]]) -> Comparison:
    """Compare what the draft sees of a conversation with what its own template writes. Raises MappingError or
    InvalidRequestError.
    """
    from uad.runtime.models import template_options
    from uad.text.mapping.check import compare

    with _sides(config) as (target, draft):
        return compare(target, draft, template_options(config), messages)


def _format_of(side: Side) -> Derived:
    from uad.text.mapping.derive import derive

    if side.chat_template is None:
        raise MappingError(
            f"{side.name} has no chat template to derive a format from; give its family with --target-family or "
            "--draft-family"
        )
    try:
        return derive(side)
    except InvalidRequestError as error:
        raise MappingError(f"{side.name}: {error}; a family file must be written by hand (docs/mappings.md)") from None


@contextmanager
def _sides(config: Config) -> Iterator[tuple[Side, Side]]:
    from uad.llama.model import Model
    from uad.runtime.models import side

    if config.draft is None or config.more_drafts:
        raise ConfigError("a target and a draft are needed; of several drafts give one after the other")
    with (
        Model(config.target, "target", has_weights=False) as target,
        Model(config.draft, "draft", has_weights=False) as draft,
    ):
        yield side(target, config.templates.chat_template), side(draft)


def _applies(path: Path) -> str:
    from uad.text.mapping.pairs import load_pair

    pair = load_pair(path)
    sides = []
    for match in (pair.target, pair.draft):
        examples = [
            match.family and f"family {match.family}",
            match.name and f"name {match.name}",
            " ".join(match.specials),
        ]
        sides.append(", ".join(word for word in examples if word))
    return f"target {sides[0]}; draft {sides[1]}"
