"""Every ordered pair of real templates: the target's rendering, translated, against the draft's own rendering of the same conversation.

Equal means equal to the character, up to where the draft's template asks for an answer: there it may already write what belongs to the
answer (thoughts, a channel, a recipient), which the rules write when the target's own first token has told which.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from templates_real import BOS, CONVERSATIONS, EOS, Real, real_templates
from templates_toys import named

from uad.templates.compile import compile_rules
from uad.templates.derive import Derived, derive
from uad.templates.families import Family, Message, Turn
from uad.templates.patterns import normalise
from uad.templates.prompt import encode_parts
from uad.templates.seams import Part
from uad.vocab.table import VocabTable


@dataclass(frozen=True)
class Cell:
    """One pair and conversation: what came out and what should have. `asked` is how the draft's template asks for an answer, `begun` what an
    answer may begin with instead when the rules write it."""

    target: str
    draft: str
    conversation: str
    got: str
    wanted: str
    asked: str
    begun: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        return self.got == self.wanted

    @property
    def is_equal(self) -> bool:
        """The same, apart from what the draft's template writes of the answer itself."""
        return self.is_same or any(self.got == self.wanted.removesuffix(self.asked) + begun for begun in self.begun)


@lru_cache
def derived() -> dict[str, Derived]:
    return {name: derive(real.side) for name, real in real_templates().items()}


def translate(target: Real, draft: Real, read: Family | None, write: Family, text: str) -> str:
    rules = compile_rules(target.side.vocab, draft.side.vocab, read, write)
    stream = rules.stream()
    ids = encode_parts([Part(text, True)], target.side.vocab, target.side.vocab.tokenize)
    return named(normalise([*stream.feed(ids), *stream.flush()]), draft.side.vocab)


def asking(family: Family) -> tuple[str, tuple[str, ...]]:
    """How the family asks for an answer, and the ways in which one begins: open, without thoughts, with thoughts."""
    thoughts = family.reasoning.start if family.reasoning else ""
    begun = (family.opening, family.roles["assistant"].start, family.opening + thoughts)
    return plain(family.asking), tuple(plain(text) for text in begun)


def plain(text: str) -> str:
    return text.replace("{bos}", BOS).replace("{eos}", EOS)


def derived_cells() -> list[Cell]:
    """All pairs by derived rules; conversations that one of the two templates refuses are left out."""
    cells = []
    for a, target in real_templates().items():
        for b, draft in real_templates().items():
            if a == b:
                continue
            for conversation in CONVERSATIONS:
                text, wanted = target.texts[conversation], draft.texts[conversation]
                if text is None or wanted is None:
                    continue
                got = translate(target, draft, derived()[a].family, derived()[b].family, text)
                cells.append(Cell(a, b, conversation, got, wanted, *asking(derived()[b].family)))
    return cells
