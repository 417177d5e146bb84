"""Where message content ends and template text begins: contents are replaced by private markers, rendered, and put
back. Text that a template left out is noticed on the way: each message's text is looked for in the prompt.

White space at a text's ends may differ, JSON is as good as plain, and thoughts of earlier answers may be missing:
templates leave those out.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from uad.text.templates.sandbox import Budget

_OPEN, _CLOSE = "\ue0f0", "\ue0f1"
_MARK = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")
_PLAIN = re.compile(r"[\w .,:/-]*")
_BRACKETS = re.compile(r"[<>\[\]|]")
_TAG = r"(?:\w+:)?think(?:ing)?(?::\w+)?"
THOUGHTS_BEGIN = rf"<{_TAG}>|\[THINK\]|<\|START_THINKING\|>|<\|channel>(?:thought)?"
THOUGHTS_END = rf"</{_TAG}>|\[/THINK\]|<\|END_THINKING\|>|<channel\|>"
"""Patterns of the tags around thoughts, in the formats that have some."""
_THOUGHT_TAGS = re.compile(f"({THOUGHTS_BEGIN}|{THOUGHTS_END})")
_CONTENT_KEYS = ("content", "text")
_LOOKS_SPECIAL = re.compile(r"<[^<>\s]{1,80}>|\[[^\[\]\s]{1,80}\]")
_BREAKS = re.compile(r"\n|/(?:no_?)?think")
"""Separators of the pieces of a text that must all be there: line ends, and the switches that templates take out of
texts.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A run of a prompt. Specials are parsed only where it is trusted."""

    text: str
    trusted: bool


@dataclass
class Masked:
    """Values with their untrusted strings replaced by markers; `contents[i]` belongs to marker i."""

    values: dict[str, Any] = field(default_factory=dict)
    contents: list[str] = field(default_factory=list)

    def mark(self, text: str) -> str:
        self.contents.append(text)
        return f"{_OPEN}{len(self.contents) - 1}{_CLOSE}"


@dataclass(frozen=True, slots=True)
class Found:
    """A rendering taken apart. `shown[i]` is what stands there of content i; contents that the template leaves out are
    missing.
    """

    parts: tuple[Part, ...]
    shown: Mapping[int, str]


def mask(values: Mapping[str, object], split_thoughts: bool = False) -> Masked:
    """Contents are always masked; others (tool arguments, names) only where they hold more than plain words: templates
    compare those.

    split_thoughts leaves one end of thoughts in the assistant's messages as it is, and the tag before it, for templates
    that take thoughts out by them. Other tags in them are text.
    """
    masked = Masked()
    masked.values = {key: _mask(value, key, masked, split_thoughts) for key, value in values.items()}
    return masked


def _mask(value: Any, key: str, masked: Masked, split: bool) -> Any:
    if isinstance(value, str):
        untouched = key == "role" or not value or (key not in _CONTENT_KEYS and _PLAIN.fullmatch(value))
        return value if untouched else masked.mark(value)
    if isinstance(value, Mapping):
        masked_items = {
            _mask_name(str(name), masked): _mask(item, str(name), masked, split) for name, item in value.items()
        }
        content = value.get("content")
        if split and value.get("role") == "assistant" and isinstance(content, str) and _THOUGHT_TAGS.search(content):
            masked_items["content"] = _mask_around_tags(content, masked)
        return masked_items
    if isinstance(value, Sequence):
        return [_mask(item, key, masked, split) for item in value]
    return value


def _mask_name(name: str, masked: Masked) -> str:
    """Names of arguments and of a tool's parameters come from outside, too; no template asks for one that is no plain
    word.
    """
    return name if _PLAIN.fullmatch(name) else masked.mark(name)


def _mask_around_tags(content: str, masked: Masked) -> str:
    """The first two tags, or the only one, stay; what stands between is masked."""
    pieces = _THOUGHT_TAGS.split(content, maxsplit=2)
    if len(pieces) == 5 and pieces[1] == pieces[3]:
        pieces = [*pieces[:2], "".join(pieces[2:])]
    return "".join(piece if at % 2 or not piece.strip() else masked.mark(piece) for at, piece in enumerate(pieces))


def find_parts(text: str, skeleton: str, masked: Masked) -> Found | None:
    """The parts of text if it is the skeleton with contents put back, each as it is, stripped, or as JSON; None if it
    is not.
    """
    # The user says " <b> " and the template writes "<user>" + content|trim + "</user>". Masked, it renders the skeleton
    # "<user>" 0 "</user>", with 0 for the content: the template's own text is "<user>" and "</user>", whatever the user
    # wrote. The real rendering is "<user><b></user>", which fits with content 0 stripped. So "<b>" is what the user
    # said.
    pieces = _MARK.split(skeleton)
    fixed, order = pieces[0::2], [int(index) for index in pieces[1::2]]
    if any(index >= len(masked.contents) for index in order) or not text.startswith(fixed[0]):
        return None
    chosen = _walk(text, fixed, [_variants(masked.contents[index]) for index in order])
    if chosen is None:
        return None
    parts = [Part(fixed[0], True)]
    for content, after in zip(chosen, fixed[1:], strict=True):
        parts += [Part(content, False), Part(after, True)]
    return Found(merge(parts), dict(zip(order, chosen, strict=True)))


def put_back(skeleton: str, masked: Masked) -> Found:
    """The skeleton with each content in it as it is; a marker without a content is left out."""
    pieces = _MARK.split(skeleton)
    shown = {int(index): masked.contents[int(index)] for index in pieces[1::2] if int(index) < len(masked.contents)}
    parts = [Part(shown.get(int(piece), "") if at % 2 else piece, at % 2 == 0) for at, piece in enumerate(pieces)]
    return Found(merge(parts), shown)


def marks(masked_text: str) -> list[int]:
    """The numbers of the contents that a masked text holds."""
    return [int(index) for index in _MARK.findall(masked_text)]


def without_thoughts(text: str) -> str:
    """An assistant's text (masked or not) without what may be thoughts, since templates leave those out: from the first
    tag of one (or the beginning, if thoughts only end) to the last end, and everything after a beginning that has
    none.
    """
    ends = [tag.end() for tag in re.finditer(THOUGHTS_END, text)]
    begins = [tag.start() for tag in re.finditer(THOUGHTS_BEGIN, text)]
    start = ends[-1] if ends else 0
    front = text[: begins[0]] if ends and begins and begins[0] < ends[0] else ""
    return front + text[start : next((at for at in begins if at >= start), len(text))]


def quoted(content: str) -> str:
    """A content as JSON has it, without the quotation marks around it."""
    return json.dumps(content, ensure_ascii=False)[1:-1]


def _variants(content: str) -> list[str]:
    """Forms that templates commonly give a content: stripped, without the thinking in front, or quoted as JSON."""
    answer = content.rsplit("</think>", 1)[-1]
    whole = (content, content.strip(), content.lstrip(), content.rstrip(), content.strip("\n"))
    return list(dict.fromkeys((*whole, answer, answer.lstrip("\n"), answer.strip(), quoted(content))))


def _walk(text: str, fixed: list[str], variants: list[list[str]]) -> list[str] | None:
    """One variant per marker so that all pieces join to text. Keeps, for each place that can be reached, one way to
    it.
    """
    # Several variants may fit at first: of "a\n" both "a" and "a\n", where the template's text goes on with "\n". So
    # for each place that is reached, how it was reached is kept, as in a search by breadth: no way is gone twice, and
    # at the end they are followed backwards. It takes (markers x variants x places), not variants to the power of
    # markers.
    ways: list[dict[int, tuple[int, str]]] = [{len(fixed[0]): (0, "")}]
    for choices, after in zip(variants, fixed[1:], strict=True):
        reached: dict[int, tuple[int, str]] = {}
        for at, choice in itertools.product(ways[-1], choices):
            end = at + len(choice)
            if text.startswith(choice, at) and text.startswith(after, end):
                reached.setdefault(end + len(after), (at, choice))
        ways.append(reached)
    if len(text) not in ways[-1]:
        return None
    chosen = []
    at = len(text)
    for way in reversed(ways[1:]):
        at, choice = way[at]
        chosen.append(choice)
    return chosen[::-1]


def search_parts(text: str, masked: Masked) -> tuple[Part, ...]:
    """The fallback for templates that transform their input: contents that hold brackets are untrusted wherever they
    occur.

    Text that looks like a special and occurs in a content that cannot be found whole is untrusted wherever it occurs. A
    broken prompt for the user who typed it is better than a special that a user wrote.
    """
    needles: set[str] = set()
    for content in masked.contents:
        if not _BRACKETS.search(content):
            continue
        shown = next((variant for variant in _variants(content) if variant and variant in text), "")
        needles.update({shown} - {""})
        needles.update(_LOOKS_SPECIAL.findall(content.replace(shown, "\n") if shown else content))
    if not needles:
        return merge([Part(text, True)])
    pattern = re.compile("|".join(re.escape(needle) for needle in sorted(needles, key=len, reverse=True)))
    parts: list[Part] = []
    at = 0
    for match in pattern.finditer(text):
        parts += [Part(text[at : match.start()], True), Part(match.group(), False)]
        at = match.end()
    return merge([*parts, Part(text[at:], True)])


def merge(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Neighbouring parts of the same trust as one, so that a special may lie across them; without empty ones."""
    out: list[Part] = []
    for part in parts:
        if not part.text:
            continue
        if out and out[-1].trusted == part.trusted:
            out[-1] = Part(out[-1].text + part.text, part.trusted)
        else:
            out.append(part)
    return tuple(out)


# --- what is lost


@dataclass(frozen=True, slots=True)
class Loss:
    """A message whose text the prompt does not hold unchanged, by its number `at`. left_out: nothing of it is there.
    is_call: the text is that of one of its calls.
    """

    at: int
    left_out: bool
    is_call: bool = False


def by_marks(
    messages: Sequence[Mapping[str, object]], masked: Masked, shown: Mapping[int, str], text: str, budget: Budget
) -> tuple[Loss, ...]:
    """From the seams: `shown` says what stands in the prompt of each masked content."""
    losses = list(_lost_calls(masked, shown, text, budget))
    for at, (message, hidden) in enumerate(zip(messages, masked.values["messages"], strict=True)):
        is_answer = message.get("role") == "assistant"
        wanted = [
            number for text in _texts(hidden, is_answer) for number in marks(text) if masked.contents[number].strip()
        ]
        missing = [number for number in wanted if number not in shown]
        if missing or not (is_answer or all(_is_whole(masked.contents[number], shown[number]) for number in wanted)):
            losses.append(Loss(at, left_out=len(missing) == len(wanted)))
    return tuple(losses)


def _lost_calls(masked: Masked, shown: Mapping[int, str], text: str, budget: Budget) -> Iterator[Loss]:
    """Calls of whose arguments no text is there. Templates compare plain words, so these are looked for."""
    at = 0
    for number, message in enumerate(masked.values["messages"]):
        for call in message.get("tool_calls") or ():
            ends = []
            for value in filter(str.strip, _strings(call.get("function", {}).get("arguments"))):
                hidden = marks(value)
                ends.append(_end(value, text, at, budget) if not hidden else 0 if shown.keys() >= {*hidden} else -1)
            if ends and max(ends) < 0:
                yield Loss(number, left_out=True, is_call=True)
            at = max(at, *ends) if ends else at


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(item)


def by_search(messages: Sequence[Mapping[str, object]], text: str, budget: Budget) -> tuple[Loss, ...]:
    """In the prompt itself, for templates that transform what they write. Texts are looked for after the one before,
    then anywhere.
    """
    losses = []
    at = 0
    for number, message in enumerate(messages):
        budget.tick()
        for piece in _pieces(message, text):
            end = _end(piece, text, at, budget)
            if end < 0:
                losses.append(Loss(number, left_out=False))
                break
            at = max(at, end)
    return tuple(losses)


def _pieces(message: Mapping[str, object], text: str) -> Iterator[str]:
    """The pieces of a message that must be there: each text, or the pieces of one that is not there as a whole."""
    for content in _texts(message, message.get("role") == "assistant"):
        whole = content.strip()
        for piece in [whole] if whole in text else _BREAKS.split(whole):
            if piece.strip():
                yield piece.strip()


def _end(piece: str, text: str, at: int, budget: Budget) -> int:
    """Where a piece ends: after `at` if it is there, 0 if it is elsewhere, -1 if it is nowhere."""
    for form in (piece, quoted(piece)):
        end = text.find(form, at)
        if end >= 0:
            return end + len(form)
        budget.tick()  # only searches without success go over the same text again and again
        if form in text:
            return 0
    return -1


def _texts(message: Mapping[str, object], is_answer: bool) -> Iterator[str]:
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        text = part["text"] if isinstance(part, Mapping) else part
        if isinstance(text, str):
            yield without_thoughts(text) if is_answer else text


def _is_whole(content: str, shown: str) -> bool:
    return shown.strip() == content.strip() or shown.strip() in (quoted(content).strip(), quoted(content.strip()))
