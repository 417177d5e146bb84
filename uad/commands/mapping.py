"""Mapping rules for `uad mapping`: the models of a configuration opened only to ask for their vocabularies and chat
templates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from uad.calls.files import lint_calls, load_all_calls, load_calls
from uad.common.files import path_of
from uad.common.names import meant_or_known
from uad.common.yaml_fields import read_text
from uad.config import Config
from uad.errors import ConfigError, InvalidRequestError, MappingError
from uad.llama.model import Model
from uad.mapping import emit
from uad.mapping.check import Comparison, compare
from uad.mapping.compile import compile_rules
from uad.mapping.derive import Derived, derive
from uad.mapping.families import bundled_mappings, load_families, load_family
from uad.mapping.lint import Finding, lint
from uad.mapping.pairs import load_pair, load_pairs
from uad.mapping.recognise import Side
from uad.runtime.open import side, template_options
from uad.runtime.remote import connected

__all__ = [
    "Comparison",
    "DerivedPair",
    "Finding",
    "MappingFile",
    "check_mapping",
    "derive_mapping",
    "lint_mappings",
    "list_mappings",
    "read_mapping",
]


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
    path = path_of(name)
    if not path.is_file():
        known = {file.name: file.path for file in reversed(list_mappings(directories))}
        if name not in known:
            raise MappingError(
                f"there is no mapping file '{name}'; {meant_or_known(name, list(known))} (uad mapping list shows all)"
            )
        path = known[name]
    text = read_text(path)
    keys = [line.partition(":")[0] for line in text.splitlines()]
    (load_pair if "pair" in keys else load_calls if "calls" in keys else load_family)(path)
    return path, text


def lint_mappings(directories: Sequence[Path]) -> tuple[int, tuple[Finding, ...]]:
    """The number of files and what is wrong with them."""
    everywhere = (*directories, bundled_mappings())
    n_files, findings = lint(everywhere)
    n_calls, errors = lint_calls(everywhere)
    return n_files + n_calls, (*findings, *(Finding(error, is_error=True) for error in errors))


def derive_mapping(config: Config, name: str | None = None) -> DerivedPair:
    """A pair file from the templates of both models. Raises MappingError where a model has none that can be read."""
    with _sides(config) as (target, draft):
        formats = [_derive(side) for side in (target, draft)]
        pair = name or emit.pair_name(target.name, draft.name)
        rules = compile_rules(target.vocab, draft.vocab, formats[0].family, formats[1].family)
        notes = [
            f"{side.name}: {note}" for side, found in zip((target, draft), formats, strict=True) for note in found.notes
        ]
        text = emit.pair_text(pair, (target.name, formats[0]), (draft.name, formats[1]))
        return DerivedPair(text, (*notes, *(f"warning: {warning}" for warning in rules.warnings)), rules.lines)


def check_mapping(config: Config, messages: Sequence[Mapping[str, object]]) -> Comparison:
    """What the draft sees of a conversation against what its own template writes. Raises MappingError or
    InvalidRequestError.
    """
    with _sides(config) as (target, draft):
        return compare(target, draft, template_options(config), messages)


def _derive(side: Side) -> Derived:
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
    config = connected(config)
    if config.draft is None:
        raise ConfigError("a target and a draft are needed")
    with Model(config.target, "target") as target, Model(config.draft, "draft") as draft:
        yield side(target, config.templates.chat_template), side(draft)


def _applies(path: Path) -> str:
    pair = load_pair(path)
    sides = []
    for match in (pair.target, pair.draft):
        said = [
            match.family and f"family {match.family}",
            match.name and f"name {match.name}",
            " ".join(match.specials),
        ]
        sides.append(", ".join(word for word in said if word))
    return f"target {sides[0]}; draft {sides[1]}"
