"""Every ordered pair of real templates: the target's rendering, translated, against the draft's own rendering of the
same conversation.

By derived rules, equal means equal to the character, up to where the draft's template asks for an answer: there it may
already write what belongs to the answer (thoughts, a channel, a recipient), which the rules write when the target's own
first token has told which. By families alone, both sides may besides tell a system message of their own (dates, tools,
defaults): equal is then what is equal with that set aside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from pathlib import Path

from kit.templates_real import BOS, CONVERSATIONS, EOS, Real, real_templates
from kit.templates_toys import named, toy
from uad.text.mapping.compile import compile_rules
from uad.text.mapping.derive import Derived, derive
from uad.text.mapping.families import ROLES, Family, PlainMessage, Turn, bundled_mappings, load_families
from uad.text.mapping.patterns import encode_parts, normalise
from uad.text.mapping.recognise import bos_name, eos_name, recognise
from uad.text.templates.seams import Part

SPY = toy("spy", (BOS, EOS, *(f"<<{role}>>" for role in ROLES), "<<end>>"))
SPY_FAMILY = Family("spy", "", Path(), (), "", "turn", {role: Turn(f"<<{role}>>", "<<end>>") for role in ROLES})
"""A draft whose format shows every turn: what the rules read in a target's stream."""


@dataclass(frozen=True)
class Cell:
    """One pair and conversation: what came out and what should have. `asked` is how the draft's template asks for an
    answer, `begun` what an answer may begin with instead when the rules write it; `told` is whether both sides told the
    same conversation.
    """

    target: str
    draft: str
    conversation: str
    got: str
    wanted: str
    asked: str
    begun: tuple[str, ...]
    told: bool = True

    @property
    def is_same(self) -> bool:
        return self.told and self.got == self.wanted

    @property
    def is_equal(self) -> bool:
        """The same, apart from what the draft's template writes of the answer itself."""
        return self.told and any(
            self.got == self.wanted.removesuffix(self.asked) + begun for begun in (self.asked, *self.begun)
        )


@dataclass(frozen=True)
class Telling:
    """A template's rendering as its family reads it: the messages, and whether they are the conversation, system
    messages aside.
    """

    messages: tuple[PlainMessage, ...]
    is_faithful: bool


@lru_cache
def derived() -> dict[str, Derived]:
    return {name: derive(real.side) for name, real in real_templates().items()}


@lru_cache
def recognised() -> dict[str, Family | None]:
    families = load_families([bundled_mappings()])
    return {name: recognise(real.side, families).family for name, real in real_templates().items()}


def pairs(part: int = 1, of: int = 1) -> list[tuple[str, str, str]]:
    """(target, draft, conversation), all of them or one part of several that covers every template alike."""
    found = []
    for (i, a), (j, b) in product(enumerate(real_templates()), repeat=2):
        if a != b and (i + j) % of == part % of:
            both = [
                name for name in CONVERSATIONS if real_templates()[a].texts[name] and real_templates()[b].texts[name]
            ]
            found += [(a, b, name) for name in both]
    return found


def derived_cells(chosen: list[tuple[str, str, str]]) -> Iterator[Cell]:
    """By rules derived from both templates."""
    for a, b, conversation in chosen:
        target, draft = real_templates()[a], real_templates()[b]
        write = derived()[b].family
        got = translate(target, draft, derived()[a].family, write, target.texts[conversation] or "")
        yield Cell(a, b, conversation, got, draft.texts[conversation] or "", *asking(write, draft))


def family_cells(chosen: list[tuple[str, str, str]]) -> Iterator[Cell]:
    """By the bundled families alone; a template of no known family is unequal to all."""
    for a, b, conversation in chosen:
        target, draft = real_templates()[a], real_templates()[b]
        read, write = recognised()[a], recognised()[b]
        if read is None or write is None:
            yield Cell(a, b, conversation, "", "no family", "", (), told=False)
            continue
        source, own = telling(a, conversation), telling(b, conversation)
        fits = written(write, own.messages, draft) == draft.texts[conversation]
        got = translate(target, draft, read, write, target.texts[conversation] or "")
        wanted = written(write, source.messages, draft)
        faithful = source.is_faithful and own.is_faithful and (fits or begins(write, own.messages, draft, conversation))
        asked, begun = asking(write, draft)
        body = written(write, own.messages, draft).removesuffix(asked)
        begun += ((draft.texts[conversation] or "").removeprefix(body),)
        yield Cell(a, b, conversation, got, wanted, asked, begun, told=faithful)


def begins(family: Family, messages: tuple[PlainMessage, ...], draft: Real, conversation: str) -> bool:
    """Whether the draft's template differs from its family only in how it asks for an answer."""
    asked, begun = asking(family, draft)
    body = written(family, messages, draft).removesuffix(asked)
    text = draft.texts[conversation] or ""
    return text.startswith(body + begun[0]) and len(text) - len(body) < 120


@cache
def telling(name: str, conversation: str) -> Telling:
    """What the family of a template reads in its rendering."""
    real, family = real_templates()[name], recognised()[name]
    assert family is not None
    rules = compile_rules(real.side.vocab, SPY, family, SPY_FAMILY)
    stream = rules.stream()
    items = [*stream.feed(ids_of(real, real.texts[conversation] or "")), *stream.flush()]
    turns = named(normalise(items), SPY).removeprefix(BOS).split("<<")[1:]
    messages = tuple(PlainMessage(*turn.split(">>", 1)) for turn in turns if not turn.startswith("end>>"))[:-1]
    wanted = [message for message in CONVERSATIONS[conversation] if message.role != "system"]
    spoken = [message for message in messages if message.role not in ("system", "developer")]
    system = "".join(message.content for message in messages if message.role in ("system", "developer"))
    heard = conversation == "without" or CONVERSATIONS[conversation][0].content in system
    return Telling(messages, spoken == wanted and heard)


def written(family: Family, messages: tuple[PlainMessage, ...], real: Real) -> str:
    text = family.render(messages, bos_name(real.side.vocab), eos_name(real.side.vocab), add_generation_prompt=True)
    return BOS + text if real.side.vocab.add_bos and not text.startswith(BOS) else text


def translate(target: Real, draft: Real, read: Family | None, write: Family, text: str) -> str:
    rules = compile_rules(target.side.vocab, draft.side.vocab, read, write)
    stream = rules.stream()
    return named(normalise([*stream.feed(ids_of(target, text)), *stream.flush()]), draft.side.vocab)


def ids_of(real: Real, text: str) -> list[int]:
    return encode_parts([Part(text, True)], real.side.vocab, real.side.vocab.tokenize)


def asking(family: Family, real: Real) -> tuple[str, tuple[str, ...]]:
    """How the family asks for an answer, and the ways in which one begins: open, without thoughts, with thoughts or
    empty ones.
    """
    thoughts = family.reasoning or Turn()
    begun: tuple[str, ...] = (family.opening, family.roles["assistant"].start, family.opening + thoughts.start)
    begun += (family.opening + thoughts.start + thoughts.end,)
    names = bos_name(real.side.vocab), eos_name(real.side.vocab)
    asked, *rest = [text.replace("{bos}", names[0]).replace("{eos}", names[1]) for text in (family.asking, *begun)]
    return asked, tuple(rest)
