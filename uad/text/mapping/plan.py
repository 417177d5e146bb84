"""The rules of one target and one draft: command line over pair files over families over derived formats over plain
text.

With the lines printed at start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from uad.base.errors import InvalidRequestError, MappingError
from uad.text.mapping.compile import Replacement, compile_rules
from uad.text.mapping.derive import derive
from uad.text.mapping.families import Family, bundled_mappings, find_family, load_families
from uad.text.mapping.pairs import Pair, load_pairs, matching
from uad.text.mapping.patterns import parse_rule
from uad.text.mapping.recognise import Recognition, Side, recognise
from uad.text.mapping.rules import CompiledRules
from uad.text.templates.sandbox import compile_template

__all__ = ["MappingPlan", "Options", "Recognition", "Side", "format_of", "plan", "usable_template"]


@dataclass(frozen=True)
class Options:
    """The user's options for rules. `mappings` are directories that win over the bundled one, `replace` are (TARGET,
    DRAFT) pairs.
    """

    mappings: tuple[Path, ...] = ()
    replace: tuple[tuple[str, str], ...] = ()
    target_family: str | None = None
    draft_family: str | None = None


@dataclass(frozen=True)
class MappingPlan:
    """Compiled rules, what was recognised, and the lines to print at start."""

    rules: CompiledRules
    target_family: Recognition
    draft_family: Recognition
    notes: tuple[str, ...]


def plan(target: Side, draft: Side, options: Options) -> MappingPlan:
    """Finds and compiles the rules. Raises MappingError for broken files and rules, also for those that this pair would
    not use.
    """
    directories = (*options.mappings, bundled_mappings())
    families = load_families(directories)
    read = _family(target, families, options.target_family, "--target-family")
    write = _family(draft, families, options.draft_family, "--draft-family")
    pair, skipped = _choose_pair(
        matching(load_pairs(directories).values(), (target, read), (draft, write)), target, draft
    )
    read, write = _pair_format(pair, 0, read), _pair_format(pair, 1, write)
    replace = [Replacement(old, new, f"--spec-replace {index}") for index, (old, new) in enumerate(options.replace, 1)]
    rules = compile_rules(
        target.vocab,
        draft.vocab,
        read.family,
        write.family or find_family(families, "plain"),
        [*replace, *(pair.replace if pair else ())],
        target.chat_template,
    )
    notes = [_note("target", target, read), _note("draft", draft, write), *skipped]
    notes.append(_source(options, pair, read, rules))
    notes += [f"warning: {warning}" for warning in rules.warnings]
    return MappingPlan(rules, read, write, tuple(notes))


def usable_template(side: Side, options: Options) -> tuple[str, str]:
    """The chat template of a model, and an empty line. For a model without one, or with one that is no Jinja: its
    family's by its specials, else plain text, and a line that says so.
    """
    why = f"warning: {side.name} has no chat template, as base models that were not trained for chats"
    way_out = "; --chat-template-file gives it one"
    if side.chat_template is not None:
        try:
            compile_template(side.chat_template)
        except InvalidRequestError as error:
            why, way_out = f"warning: {side.name}: {error}", "; give another template with --chat-template-file"
        else:
            return side.chat_template, ""
    families = load_families((*options.mappings, bundled_mappings()))
    recognised = _family(replace(side, chat_template=None), families, options.target_family, "--target-family")
    family = recognised.family or find_family(families, "plain")
    return family.template(), f"{why}; messages are written in the format {family.name}{way_out}"


def _family(side: Side, families: dict[str, Family], override: str | None, flag: str) -> Recognition:
    if override is None:
        return format_of(side, families)
    try:
        return Recognition(find_family(families, override), 1.0, f"given by {flag}")
    except MappingError as error:
        raise MappingError(f"{flag}: {error}") from None


def format_of(side: Side, families: Mapping[str, Family]) -> Recognition:
    """The recognised format if that fits; else the format of the model's own template, where one can be derived."""
    recognised = recognise(side, families)
    if not side.chat_template or (recognised.family is not None and recognised.is_exact):
        return recognised
    try:
        derived = derive(side)
    except InvalidRequestError as error:
        return (
            recognised
            if recognised.family is not None
            else Recognition(None, recognised.score, f"{recognised.reason}; {error}, so text passes as it is")
        )
    # A family that is like the template but not the same is better than a derived one that is not exact either: the
    # family is known to work for models. An exact derived one is the template itself.
    if recognised.family is not None and not derived.exact:
        return recognised
    why = f"like {recognised.family.name}, but not the same" if recognised.family is not None else "of no known format"
    return Recognition(
        derived.family, 1.0, "; ".join((f"its template is {why}, so the format is derived from it", *derived.notes))
    )


def _pair_format(pair: Pair | None, at: int, recognised: Recognition) -> Recognition:
    format_ = pair.formats[at] if pair is not None else None
    return recognised if pair is None or format_ is None else Recognition(format_, 1.0, f"given by pair {pair.name}")


def _choose_pair(pairs: list[Pair], target: Side, draft: Side) -> tuple[Pair | None, list[str]]:
    """The first pair whose specials both vocabularies have; a line for each that was passed over."""
    skipped: list[str] = []
    for pair in pairs:
        try:
            for rule in pair.replace:
                parse_rule(rule.target, target.vocab, rule.where)
                parse_rule(rule.draft, draft.vocab, rule.where)
        except MappingError as error:
            skipped.append(f"pair {pair.name} is not used: {error}")
        else:
            return pair, skipped
    return None, skipped


def _note(what: str, side: Side, recognised: Recognition) -> str:
    family = recognised.family.name if recognised.family else "no known chat format"
    return f"{what} {side.name}: {family} (score {recognised.score:.2f}: {recognised.reason})"


def _source(options: Options, pair: Pair | None, read: Recognition, rules: CompiledRules) -> str:
    sources = [f"{len(options.replace)} from --spec-replace"] if options.replace else []
    if pair is not None:
        sources.append(f"pair {pair.name} ({pair.path})")
    if read.family is not None and not read.family.write_only:
        sources.append(f"families {read.family.name} -> {rules.format.family.name}")
    return (
        f"rules: {', then '.join(sources)}"
        if sources
        else "rules: none; text passes as it is and the target's specials are left out"
    )
