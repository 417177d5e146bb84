"""Finds all that is wrong with mapping files at once, without any model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from uad.base.common.names import meant_or_known
from uad.base.common.yaml_fields import files_of, read_text
from uad.base.errors import MappingError
from uad.text.mapping.compile import refuse_cycles
from uad.text.mapping.families import Family, load_family, why_no_mappings
from uad.text.mapping.pairs import Pair, load_pair

_T = TypeVar("_T", Family, Pair)


@dataclass(frozen=True)
class Finding:
    """One complaint; the text starts with file, line and column. An error keeps uad from starting, the rest is
    advice.
    """

    text: str
    is_error: bool = False


def lint(directories: Sequence[Path]) -> tuple[int, tuple[Finding, ...]]:
    """How many files there are, and the findings. Later directories give way to earlier ones, as at start."""
    findings = [Finding(why, is_error=True) for directory in directories if (why := why_no_mappings(directory))]
    families = _load(directories, "families", load_family, findings)
    pairs = _load(directories, "pairs", load_pair, findings)
    for family in families:
        findings += _family(family)
    for family, other in _doubles(families, _shape):
        text = f"ambiguous: the same format as {other.path}; neither is preferred for a reason"
        findings.append(Finding(f"{family.path}:1:1: {text}"))
    names = sorted(family.name for family in families)
    for pair in pairs:
        findings += _pair(pair, names)
    for pair, first in _doubles(pairs, lambda pair: (pair.target, pair.draft)):
        text = f"unreachable: applies to the same models as {first.path}, which comes first"
        findings.append(Finding(f"{pair.path}:1:1: {text}"))
    return sum(1 for kind in ("families", "pairs") for _ in files_of(directories, kind)), tuple(findings)


def _load(directories: Sequence[Path], kind: str, load: Callable[[Path], _T], findings: list[Finding]) -> list[_T]:
    loaded: dict[str, _T] = {}
    for path in files_of(directories, kind):
        if path.stem in loaded:
            findings.append(Finding(f"{path}:1:1: never used; {loaded[path.stem].path} has the same name and wins"))
            continue
        try:
            loaded[path.stem] = load(path)
        except MappingError as error:
            findings.append(Finding(str(error), is_error=True))
    return list(loaded.values())


def _doubles(items: Iterable[_T], shape: Callable[[_T], object]) -> Iterator[tuple[_T, _T]]:
    """Each item of a shape that came before, with the first of that shape."""
    seen: dict[str, _T] = {}
    for item in items:
        first = seen.setdefault(repr(shape(item)), item)
        if first is not item:
            yield item, first


def _shape(family: Family) -> object:
    """All that makes a family read and write as it does."""
    roles = sorted(family.roles.items())
    return family.begin, family.system, family.no_system, family.prompt, roles, family.reasoning


def _family(family: Family) -> Iterator[Finding]:
    path = family.path
    starts: dict[str, str] = {}
    for role, turn in family.roles.items():
        other = starts.setdefault(turn.start, role)
        if other != role and turn.start and (role, other) != ("system", "developer"):
            yield Finding(
                f"{_line(path, role)}: ambiguous: a turn of '{role}' starts like one of '{other}'; it is read as "
                f"'{other}'"
            )
    turns = "".join(turn.start + turn.end for turn in family.roles.values())
    markers = f"{family.begin}{family.no_system}{family.prompt or ''}{turns}"
    for special in family.specials:
        if special not in markers:
            yield Finding(f"{_line(path, 'specials')}: the special {special} is in no marker of the format")
    if family.example is None:
        yield Finding(f"{path}:1:1: there is no example; it is the test of the file")
    elif (wanted := family.render(family.example.messages, "{bos}", "{eos}")) != family.example.text:
        yield Finding(f"{_line(path, 'text')}: the example is not what the format renders: {wanted!r}", is_error=True)


def _pair(pair: Pair, names: Sequence[str]) -> Iterator[Finding]:
    for match in (pair.target, pair.draft):
        if match.family is not None and match.family not in names:
            yield Finding(
                f"{pair.path}:1:1: never applies: there is no family '{match.family}'; "
                f"{meant_or_known(match.family, names)}"
            )
    try:
        refuse_cycles(pair.replace)
    except MappingError as error:
        yield Finding(str(error), is_error=True)
    for at, rule in enumerate(pair.replace):
        for earlier in pair.replace[:at]:
            if earlier.target == rule.target and earlier.draft != rule.draft:
                text = (
                    f"ambiguous: {rule.target!r} becomes {rule.draft!r} here but {earlier.draft!r} in {earlier.where}"
                )
                yield Finding(f"{rule.where}: {text}", is_error=True)
            elif earlier.target == rule.target:
                yield Finding(f"{rule.where}: unreachable: the same rule as in {earlier.where}")


def _line(path: Path, key: str) -> str:
    """path:line:column of the first line that has this key."""
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if line.strip().startswith(f"{key}:"):
            return f"{path}:{number}:{len(line) - len(line.lstrip()) + 1}"
    return f"{path}:1:1"
