"""Pair files: explicit replacements for certain models, formats of their own where no family will do, and when they
apply.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from uad.base.common.yaml_fields import Fields, field_names, load_all, read_yaml
from uad.text.mapping.compile import Replacement
from uad.text.mapping.families import FORMAT_KEYS, Family, read_format
from uad.text.mapping.recognise import Recognition, Side

PAIR_KEYS = ("pair", "target", "draft", "formats", "replace", "notes")


@dataclass(frozen=True)
class Match:
    """Conditions on one side; all that are given must hold. `name` is a pattern with * and ?, compared without case."""

    family: str | None = None
    name: str | None = None
    specials: tuple[str, ...] = ()

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
    name = fields.name("pair", "pair")
    rules = tuple(_rule(rule) for rule in fields.children("replace", ("target", "draft")))
    formats = _formats(fields, name)
    if not rules and formats == (None, None):
        raise fields.fail("replace", "'replace' has no rules; expected a list of {target: ..., draft: ...}")
    return Pair(name, path, _match(fields, "target"), _match(fields, "draft"), rules, formats)


def _formats(fields: Fields, name: str) -> tuple[Family | None, Family | None]:
    if not fields.has("formats"):
        return None, None
    formats = fields.child("formats", ("target", "draft"))
    return _format(formats, "target", name), _format(formats, "draft", name)


def _format(formats: Fields, key: str, pair: str) -> Family | None:
    if not formats.has(key):
        return None
    name = f"{pair}/{key}"
    return read_format(formats.child(key, FORMAT_KEYS), name=name, title=f"from pair {name}", specials=())


def _rule(fields: Fields) -> Replacement:
    target = fields.text("target")
    if not target:
        raise fields.fail("target", "'target' is empty; it must name what is to be replaced")
    return Replacement(target, fields.text("draft"), fields.where("target"), layer=1)


def _match(fields: Fields, key: str) -> Match:
    conditions = field_names(Match)
    match = fields.child(key, conditions).record(Match)
    if not match.weight or "" in (match.family, match.name):
        raise fields.fail(
            key, f"'{key}' has no condition, or an empty one; give at least one of {', '.join(conditions)}"
        )
    return match


def load_pairs(directories: Iterable[Path]) -> dict[str, Pair]:
    """All pair files; an earlier directory wins over a later one with the same file name."""
    return load_all(directories, "pairs", load_pair)


def matching(pairs: Iterable[Pair], target: tuple[Side, Recognition], draft: tuple[Side, Recognition]) -> list[Pair]:
    """The pairs that apply, the most particular first; of equals, the one from the earlier directory."""
    # Weights are bits: a name (4) outweighs specials and family together (2 + 1), on either side. Sorting is stable, so
    # of equals the earlier directory's stays first.
    fitting = [pair for pair in pairs if pair.target.holds(*target) and pair.draft.holds(*draft)]
    return sorted(fitting, key=lambda pair: -(pair.target.weight + pair.draft.weight))
