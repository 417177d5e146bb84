"""Pair files: explicit replacements for certain models, formats of their own where no family will do, and when they
apply.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from uad.common.yaml_fields import Fields, read_yaml
from uad.mapping.compile import Replacement
from uad.mapping.families import FORMAT_KEYS, Family, read_format
from uad.mapping.recognise import Recognition, Side

PAIR_KEYS = ("pair", "target", "draft", "formats", "replace", "notes")
_MATCH = ("family", "name", "specials")


@dataclass(frozen=True)
class Match:
    """Conditions on one side; all that are given must hold. `name` is a pattern with * and ?, compared without case."""

    family: str | None
    name: str | None
    specials: tuple[str, ...]

    def holds(self, side: Side, recognition: Recognition) -> bool:
        """Whether a model meets all conditions; one of no known family counts as "plain"."""
        family = recognition.family.name if recognition.family else "plain"
        if self.family is not None and self.family != family:
            return False
        if self.name is not None and not fnmatchcase(side.name.lower(), self.name.lower()):
            return False
        return all(name in side.vocab.specials for name in self.specials)

    @property
    def weight(self) -> int:
        """How particular the conditions are: a name says more than specials, those more than a family."""
        return 4 * (self.name is not None) + 2 * bool(self.specials) + (self.family is not None)


@dataclass(frozen=True)
class Pair:
    """One pair file. `formats` are (target's, draft's), used instead of the families that were recognised."""

    name: str
    path: Path
    target: Match
    draft: Match
    replace: tuple[Replacement, ...]
    formats: tuple[Family | None, Family | None] = (None, None)


def load_pair(path: Path) -> Pair:
    """One pair file. Raises MappingError that names file, line, column and what was expected."""
    fields = Fields(path, read_yaml(path), PAIR_KEYS)
    name = fields.text("pair")
    if name != path.stem:
        raise fields.fail("pair", f"the pair is called '{name}' but the file '{path.name}'; they must agree")
    rules = tuple(_rule(rule) for rule in fields.children("replace", ("target", "draft")))
    formats = _formats(fields, name)
    if not rules and formats == (None, None):
        raise fields.fail("replace", "'replace' has no rules; expected a list of {target: ..., draft: ...}")
    return Pair(name, path, _match(fields, "target"), _match(fields, "draft"), rules, formats)


def _formats(fields: Fields, name: str) -> tuple[Family | None, Family | None]:
    if not fields.has("formats"):
        return None, None
    formats = fields.child("formats", ("target", "draft"))
    found = [
        _format(formats.child(key, FORMAT_KEYS), f"{name}/{key}") if formats.has(key) else None
        for key in ("target", "draft")
    ]
    return found[0], found[1]


def _format(fields: Fields, name: str) -> Family:
    return Family(name=name, title=f"from pair {name}", path=fields.path, specials=(), **vars(read_format(fields)))


def _rule(fields: Fields) -> Replacement:
    target = fields.text("target")
    if not target:
        raise fields.fail("target", "'target' is empty; it must name what is to be replaced")
    return Replacement(target, fields.text("draft"), fields.where("target"), layer=1)


def _match(fields: Fields, key: str) -> Match:
    match = fields.child(key, _MATCH)
    found = Match(
        match.text("family") if match.has("family") else None,
        match.text("name") if match.has("name") else None,
        match.texts("specials"),
    )
    if not found.weight:
        raise fields.fail(key, f"'{key}' has no condition; give at least one of {', '.join(_MATCH)}")
    return found


def load_pairs(directories: Iterable[Path]) -> dict[str, Pair]:
    """All pair files; an earlier directory wins over a later one with the same file name."""
    pairs: dict[str, Pair] = {}
    for directory in directories:
        for path in sorted((directory / "pairs").glob("*.yaml")):
            if path.stem not in pairs:
                pairs[path.stem] = load_pair(path)
    return pairs


def matching(pairs: Iterable[Pair], target: tuple[Side, Recognition], draft: tuple[Side, Recognition]) -> list[Pair]:
    """The pairs that apply, the most particular first; of equals, the one from the earlier directory."""
    found = [pair for pair in pairs if pair.target.holds(*target) and pair.draft.holds(*draft)]
    return sorted(found, key=lambda pair: -(pair.target.weight + pair.draft.weight))
