"""One conversation both ways: the target's prompt translated, and the draft's own. Must not know a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from uad.base.errors import InvalidRequestError
from uad.text.mapping.families import Family, Turn
from uad.text.mapping.patterns import Item, encode_parts, items_of, named, normalise, parse_marker
from uad.text.mapping.plan import Options, plan, usable_template
from uad.text.mapping.recognise import Side, bos_name, eos_name
from uad.text.mapping.rules import symbols
from uad.text.templates.conversation import Talk, converse
from uad.text.vocab.table import VocabTable


@dataclass(frozen=True)
class Comparison:
    """`translated` is what the draft gets to see of the target's prompt, `own` what its own template writes; specials
    by name.
    """

    notes: tuple[str, ...]
    prompt: str
    translated: str
    own: str
    is_same: bool
    is_same_to_answer: bool


def compare(target: Side, draft: Side, options: Options, messages: Sequence[Mapping[str, object]]) -> Comparison:
    """Both ways of one conversation. Raises MappingError for broken rules, InvalidRequestError where a template refuses
    the messages.
    """
    result = plan(target, draft, options)
    ids = _prompt(target, options, messages)
    stream = result.rules.stream()
    translated = normalise([*stream.feed(ids), *stream.flush()])
    own = items_of(_prompt(draft, Options(options.mappings, target_family=options.draft_family), messages), draft.vocab)
    return Comparison(
        notes=result.notes,
        prompt=named(items_of(ids, target.vocab), target.vocab),
        translated=named(translated, draft.vocab),
        own=named(own, draft.vocab),
        is_same=translated == own,
        is_same_to_answer=same_to_answer(translated, own, result.rules.format.family, draft.vocab),
    )


def same_to_answer(translated: Sequence[Item], own: Sequence[Item], family: Family, vocab: VocabTable) -> bool:
    """Whether both are the same up to how the answer begins: the rules write that when the target's first token has
    shown what comes.
    """
    thoughts = family.reasoning or Turn()
    opening = family.opening
    begun = (
        family.asking,
        opening,
        family.roles["assistant"].start,
        opening + thoughts.start,
        opening + thoughts.start + thoughts.end,
    )
    asked, *ways = [tuple(symbols(parse_marker(text, vocab))) for text in (family.asking, *begun)]
    seen, wanted = tuple(symbols(translated)), tuple(symbols(own))
    body = wanted[: len(wanted) - len(asked)]
    return wanted[len(body) :] == asked and any(seen == body + way for way in ways)


def _prompt(side: Side, options: Options, messages: Sequence[Mapping[str, object]]) -> list[int]:
    template, _ = usable_template(side, options)
    try:
        parts = converse(messages, Talk(template, bos_name(side.vocab), eos_name(side.vocab))).parts
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{side.name}: {error}", error.param) from None
    return encode_parts(parts, side.vocab, side.vocab.tokenize)
