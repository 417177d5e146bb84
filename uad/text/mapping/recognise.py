"""Which family a model uses: its own template renders a probe conversation, and each family does; the most alike
wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz

from uad.base.errors import InvalidRequestError
from uad.text.mapping.families import Family, PlainMessage
from uad.text.templates.render import render
from uad.text.vocab.table import VocabTable

THRESHOLD = 0.8
_QUESTION, _ANSWER, _MORE = "Qzq7", "Aza8", "Qzq9"
_PROBE = (PlainMessage("user", _QUESTION), PlainMessage("assistant", _ANSWER), PlainMessage("user", _MORE))
_SYSTEM = PlainMessage("system", "Szs6")
_RenderedProbes = list[tuple[tuple[PlainMessage, ...], str]]
"""Probe conversations and what a template writes for them."""


@dataclass(frozen=True)
class Side:
    """One model: its vocabulary, its chat template if it has one, and a name for messages."""

    vocab: VocabTable
    chat_template: str | None
    name: str

    def render(
        self, messages: Sequence[PlainMessage], prompt: bool = True, extra: Mapping[str, str] | None = None
    ) -> str | None:
        """The text that its template writes for a conversation, or None where the template refuses it. `extra` are
        fields of the last message.
        """
        asked: list[dict[str, object]] = [{"role": message.role, "content": message.content} for message in messages]
        asked[-1] |= extra or {}
        bos, eos = bos_name(self.vocab), eos_name(self.vocab)
        try:
            return render(self.chat_template or "", asked, bos=bos, eos=eos, add_generation_prompt=prompt).text
        except InvalidRequestError:
            return None


@dataclass(frozen=True)
class Recognition:
    """The family found (None: no known format), how sure (0 to 1), and why in one line. `is_exact`: turns are written
    exactly so.
    """

    family: Family | None
    score: float
    reason: str
    is_exact: bool = True


def recognise(side: Side, families: Mapping[str, Family]) -> Recognition:
    """The family of a model, by what its template renders, or by its specials alone where it has none."""
    candidates = [family for family in families.values() if not family.write_only]
    if not side.chat_template:
        return _by_specials(side, candidates, "it has no chat template")
    texts = ((messages, side.render(messages)) for messages in ((_SYSTEM, *_PROBE), _PROBE))
    rendered: _RenderedProbes = [(messages, text) for messages, text in texts if text is not None]
    if not rendered:
        return _by_specials(side, candidates, "its chat template cannot render a plain conversation")
    return _by_rendering(side, candidates, rendered)


def _by_rendering(side: Side, candidates: list[Family], rendered: _RenderedProbes) -> Recognition:
    scored = [
        (
            _likeness(side, family, rendered),
            _share(side, family),
            _tells_system(side, family, rendered),
            _plainness(family),
            family,
        )
        for family in candidates
    ]
    if not scored:
        return Recognition(None, 0.0, "there are no families")
    likeness, present, *_, family = max(scored, key=lambda entry: entry[:-1])
    score = round(0.9 * likeness + 0.1 * present, 3)
    if score < THRESHOLD:
        return Recognition(None, score, f"its template is like no known format (nearest: {family.name}, {score:.2f})")
    how = "exactly" if likeness == 1 else f"{likeness:.0%}"
    return Recognition(
        family, score, f"its template renders a conversation {how} as {family.name} does", is_exact=likeness == 1
    )


def _by_specials(side: Side, candidates: list[Family], why: str) -> Recognition:
    full = [family for family in candidates if family.specials and _share(side, family) == 1]
    if not full:
        return Recognition(None, 0.0, f"{why}, and no family has all its specials in the vocabulary")
    family = max(full, key=_plainness)
    return Recognition(family, 0.8, f"{why}; the vocabulary has {', '.join(family.specials)}")


def _plainness(family: Family) -> tuple[int, bool, int, str]:
    """An order of families that fit equally: first the one that asks for most specials, then the one without
    peculiarities.
    """
    return len(family.specials), family.reasoning is None, -len(family.name), family.name


def _tells_system(side: Side, family: Family, rendered: _RenderedProbes) -> bool:
    """Whether the system message is written as the family writes it."""
    turn = family.roles["system"]
    own = f"{turn.start}{_SYSTEM.content}{turn.end}".replace("{bos}", bos_name(side.vocab)).replace(
        "{eos}", eos_name(side.vocab)
    )
    return any(own in text for messages, text in rendered if _SYSTEM in messages)


def _share(side: Side, family: Family) -> float:
    """The share of a family's specials that the vocabulary has."""
    has = [name in side.vocab.specials for name in family.specials]
    return sum(has) / len(has) if has else 1.0


def _likeness(side: Side, family: Family, rendered: _RenderedProbes) -> float:
    """How alike the renderings are, from the user's first message on: what comes before (dates, tool preambles) says
    little.
    """
    # Of "<|user|>\nQ…" and "<|user|>Q…" the bodies from Q on are compared whole; the 16 characters before Q only tell
    # families apart whose bodies are the same: so they count for 5 % there, and not at all elsewhere.
    scores = []
    for messages, text in rendered:
        own = family.render(messages, bos_name(side.vocab), eos_name(side.vocab), add_generation_prompt=True)
        body = fuzz.ratio(_body(text), _body(own)) / 100
        opening = fuzz.partial_ratio(_head(own), _head(text)) / 100 if _head(own) else 1.0
        scores.append(body if body < 1 else 0.95 * body + 0.05 * opening)
    return max(scores)


def _body(text: str) -> str:
    return text[max(text.find(_QUESTION), 0) :].rstrip()


def _head(text: str) -> str:
    """The text right before the user's first message."""
    return text[: max(text.find(_QUESTION), 0)][-16:]


def bos_name(vocab: VocabTable) -> str:
    """How BOS is written in a template; empty without a BOS."""
    return vocab.special_names.get(vocab.bos, "") if vocab.bos is not None else ""


def eos_name(vocab: VocabTable) -> str:
    """How EOS is written in a template; empty without an EOS."""
    return vocab.special_names.get(vocab.eos, "") if vocab.eos is not None else ""
