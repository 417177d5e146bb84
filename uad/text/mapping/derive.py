"""A chat format from a model's own template: probe conversations are rendered, and what stands between their words
becomes a family.

Must not know files or pairs. Anything that the renderings do not show is said in notes, not guessed silently.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from uad.base.common.sequences import common_prefix
from uad.base.errors import InvalidRequestError
from uad.text.mapping.families import Family, PlainMessage, Turn
from uad.text.mapping.recognise import Side, bos_name, eos_name

S, U1, A1, U2, A2, U3, THOUGHT = "Szs6", "Uqa1", "Awx1", "Uqa2", "Awx2", "Uqa3", "Trt5"
_SYSTEM = PlainMessage("system", S)
_TALK = (
    PlainMessage("user", U1),
    PlainMessage("assistant", A1),
    PlainMessage("user", U2),
    PlainMessage("assistant", A2),
    PlainMessage("user", U3),
)
_THOUGHT_KEYS = ("reasoning_content", "thinking", "reasoning")
_LETTER_NAMES = r"<[^<>\s]{1,80}>|\[/?[A-Za-z_][^\[\]\s]{0,80}\]"


@dataclass(frozen=True)
class Derived:
    """A format and what to say about it. `exact`: it renders every probe conversation as the template does."""

    family: Family
    notes: tuple[str, ...]
    exact: bool


@dataclass(frozen=True)
class _Texts:
    """The texts between the words of the probe: before the first user, user to answer, answer to user, after the last
    user.
    """

    head: str
    to_answer: str
    to_user: str
    tail: str
    system: tuple[str, str] | None
    is_steady: bool


def derive(side: Side) -> Derived:
    """The format of a model's own template. Raises InvalidRequestError where it renders no plain conversation in
    order.
    """
    probe = _Probe(side)
    with_system = probe.texts((_SYSTEM, *_TALK))
    without = probe.texts(_TALK)
    texts = without or with_system
    if texts is None:
        raise InvalidRequestError("its chat template does not render a plain conversation in order", "chat_template")
    notes = (
        []
        if texts.is_steady
        else ["later turns are written differently from the first; the format follows the later ones"]
    )
    turns = _turns(probe, texts)
    family = _family(side, probe, turns, texts, with_system, notes)
    family = replace(family, reasoning=_reasoning(probe, family))
    exact = probe.agrees(family, with_system is not None, without is not None)
    if not exact:
        notes.append("some conversations are rendered differently from the template")
    return Derived(family, tuple(notes), exact)


class _Probe:
    """Renderings of one template."""

    def __init__(self, side: Side) -> None:
        self.render = side.render
        self.bos, self.eos = bos_name(side.vocab), eos_name(side.vocab)
        names = sorted((name for name in side.vocab.specials if name), key=len, reverse=True)
        self._atoms = re.compile("|".join([*map(re.escape, names), _LETTER_NAMES, "."]), re.DOTALL)

    def texts(self, messages: Sequence[PlainMessage]) -> _Texts | None:
        """The rendering taken apart, or None where it fails or does not have all words once and in order."""
        text = self.render(messages)
        words = (U1, A1, U2, A2, U3)
        if text is None or any(text.count(word) != 1 for word in words):
            return None
        pieces = re.split("|".join(words), text)
        if re.findall("|".join(words), text) != list(words):
            return None
        head, answer, user, answer_2, user_2, tail = pieces
        before, separator, after = head.partition(S)
        system = (before, after) if separator else None
        return _Texts(head, answer_2, user_2, tail, system, answer == answer_2 and user == user_2)

    def after(self, messages: Sequence[PlainMessage], word: str) -> str:
        """The text after the last word where no answer is asked for; empty where that cannot be rendered."""
        return (self.render(messages, prompt=False) or "").rpartition(word)[2]

    def common(self, a: str, b: str, at_end: bool = False) -> int:
        """Characters of the common beginning, or end, never inside a name."""
        # "<|im_end|>" and "<|im_start|>" have "<|im_" in common as letters, and nothing as names.
        step = -1 if at_end else 1
        first, second = self._atoms.findall(a)[::step], self._atoms.findall(b)[::step]
        return sum(map(len, first[: common_prefix(first, second)]))

    def agrees(self, family: Family, with_system: bool, without: bool) -> bool:
        """Whether the family renders the probes as the template does."""
        probes: list[tuple[PlainMessage, ...]] = [(_SYSTEM, *_TALK)] if with_system else []
        probes += [_TALK] if without else []
        probes += [probe[:-2] for probe in probes]
        return all(
            family.render(probe, self.bos, self.eos, add_generation_prompt=True) == self.render(probe)
            for probe in probes
        )


@dataclass(frozen=True)
class _DerivedTurns:
    user: Turn
    assistant: Turn
    prompt: str


def _turns(probe: _Probe, texts: _Texts) -> _DerivedTurns:
    """Where one turn ends and the next begins: what is there without a generation prompt, and what is there before the
    first user.
    """
    # ChatML: user to answer is "<|im_end|>\n<|im_start|>assistant\n". After the last user stands "<|im_end|>\n" if no
    # answer is asked for: what is common to both ends the user's turn, the rest starts an answer. Answer to user is
    # "<|im_end|>\n<|im_start|>user\n", and after a last answer stands "<|im_end|>\n": so that ends an answer. The end
    # of the head, "<|im_start|>user\n", starts a user's turn, and bounds the answer's end from below (`earliest`) for
    # templates that write nothing after a last answer.
    closed = probe.after(_TALK, U3) or probe.after((_SYSTEM, *_TALK), U3)
    n = min(probe.common(texts.to_answer, closed), probe.common(texts.to_answer, texts.tail))
    user_end, start, prompt = texts.to_answer[:n], texts.to_answer[n:], texts.tail[n:]
    answered = probe.after(_TALK[:-1], A2) or probe.after((_SYSTEM, *_TALK[:-1]), A2)
    earliest = len(texts.to_user) - probe.common(texts.to_user, texts.head, at_end=True)
    n = max(probe.common(texts.to_user, answered), earliest)
    if n == earliest < len(user_end) and texts.to_user.startswith(user_end):
        n = len(user_end)
    return _DerivedTurns(Turn(texts.to_user[n:], user_end), Turn(start, texts.to_user[:n]), prompt)


def _family(
    side: Side, probe: _Probe, turns: _DerivedTurns, texts: _Texts, with_system: _Texts | None, notes: list[str]
) -> Family:
    head = texts.head[: len(texts.head) - len(turns.user.start)] if texts.head.endswith(turns.user.start) else ""
    if texts.system is not None:
        head = probe.bos if texts.system[0].startswith(probe.bos) else ""
    begin = probe.bos if probe.bos and head.startswith(probe.bos) else ""
    mode, system = _system(probe, turns, with_system, begin, notes)
    family = Family(
        name="derived",
        title=f"derived from the chat template of {side.name}",
        path=Path("derived"),
        specials=(),
        begin="{bos}" if begin else "",
        system=mode,
        roles={"system": system, "user": turns.user, "assistant": turns.assistant},
        no_system=head[len(begin) :],
    )
    return family if turns.prompt == family.opening else replace(family, prompt=turns.prompt)


def _system(
    probe: _Probe, turns: _DerivedTurns, texts: _Texts | None, begin: str, notes: list[str]
) -> tuple[str, Turn]:
    """How a system message is expressed, and what stands around it."""
    if texts is None:
        text = probe.render((_SYSTEM, *_TALK))
        why = "refuses system messages" if text is None else "moves words around where there is a system message"
        notes.append(f"the template {why}; here they stand in front of the first user message")
        return "prefix", Turn("", "\n\n")
    if texts.system is None:
        if S in (probe.render((_SYSTEM, *_TALK)) or ""):
            notes.append(
                "the template puts the system message after the first user message; a stream cannot, here it stands "
                "in front"
            )
            return "prefix", Turn("", "\n\n")
        notes.append("the template leaves system messages out")
        return "drop", Turn()
    before, after = texts.system[0].removeprefix(begin), texts.system[1]
    if turns.user.start and before.startswith(turns.user.start) and not after.endswith(turns.user.start):
        return "prefix", Turn(before[len(turns.user.start) :], after)
    if not after.endswith(turns.user.start):
        notes.append("the first user message after a system message begins differently")
        return "turn", Turn(before, after)
    return "turn", Turn(before, after[: len(after) - len(turns.user.start)])


def _reasoning(probe: _Probe, family: Family) -> Turn | None:
    """The marks around thoughts, from a message that has some, or from the way the template asks for an answer."""
    lead, rest = family.roles["user"].end + family.opening, family.roles["assistant"].start[len(family.opening) :]
    for key in _THOUGHT_KEYS:
        for system in ((), (_SYSTEM,)):
            text = probe.render((*system, *_TALK[:2]), prompt=False, extra={key: THOUGHT}) or ""
            match = re.search(f"{U1}{re.escape(lead)}(.*){THOUGHT}(.+){A1}", text, re.DOTALL)
            if match and (match[1] or rest):
                return Turn(match[1], match[2])
    asked = family.asking[len(family.opening) :]
    if not asked and re.fullmatch(r"</[^<>]+>\s*", rest) and f"<{rest.strip()[2:]}" in family.opening:
        return Turn("", rest)
    name = re.fullmatch(r"\s*<([^<>/\s]+)>\s*", asked)
    if name is None:
        return None
    return Turn(asked, f"\n</{name[1]}>\n\n" if asked.endswith("\n") else f"</{name[1]}>")
