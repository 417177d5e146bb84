"""How an answer writes tool calls and thoughts, as data. Knows no text, no template and no vocabulary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

BODIES = ("json", "list", "named", "tagged", "python", "gemma")
"""One JSON object; a JSON list of objects; a name and JSON arguments; a name and arguments in tags; Python calls;
Gemma's own.
"""


@dataclass(frozen=True)
class Keys:
    """The members of a call that is a JSON object. An empty `name`: its only member is the arguments, under the tool's
    name.
    """

    name: str = "name"
    arguments: str = "arguments"
    id: str = "id"


@dataclass(frozen=True)
class Tags:
    """Arguments in tags: `key` + name + `key_end` + value + `value_end`.

    What ends the name may say that the value is text (`text_ends`) or JSON (`json_ends`); after `key_end` the tool's
    schema does. `value` stands before each value. `{key}` in `value_end` is the argument's name. `lines`: values stand
    on lines of their own. `cdata`: they may be in XML's sections for text. `nested`: what tags begin with that lists
    and objects are written in.
    """

    key: str
    key_end: str = ""
    text_ends: tuple[str, ...] = ()
    json_ends: tuple[str, ...] = ()
    value: str = ""
    value_end: str = ""
    lines: bool = False
    cdata: bool = False
    nested: str = ""

    @property
    def key_ends(self) -> tuple[str, ...]:
        """All texts that may end an argument's name: `key_end` unless empty, then `text_ends` and `json_ends`."""
        return (*([self.key_end] if self.key_end else []), *self.text_ends, *self.json_ends)


@dataclass(frozen=True)
class CallFormat:
    """One way to write tool calls.

    `begin` and `finish` stand around all calls, `start` and `end` around each. A call may come without `begin` where it
    has a `start`. A format without either begins with its first brace, and only where the answer does; `prefixes` may
    stand before that. `head` takes apart what stands between `start` and `name_end`: groups `name` and perhaps `id`.
    `channels`: the answer is harmony's. `plain`: the first `start` is in the prompt, and this says that content follows
    it. `hints` are texts in templates that tell tools but write no calls. `lazy` are texts with which calls begin and
    prose does not, where `begin` and `start` could be prose; `{name}` is the tool's. `example` is an answer that calls
    `look_up` with the word "tea" and the number 3.
    """

    name: str
    title: str
    body: str
    begin: str = ""
    finish: str = ""
    start: str = ""
    end: str = ""
    name_end: str = ""
    head: str = ""
    prefixes: tuple[str, ...] = ()
    keys: Keys = Keys()
    tags: Tags | None = None
    channels: bool = False
    plain: str = ""
    hints: tuple[str, ...] = ()
    lazy: tuple[str, ...] = ()
    example: str = ""

    @property
    def is_bare(self) -> bool:
        """Whether no marker says that a call begins."""
        return not (self.begin or self.start or self.channels)

    def openers(self) -> tuple[str, ...]:
        """What a call may begin with, for one that has markers."""
        return tuple(dict.fromkeys(text for text in (self.begin, self.start) if text))

    def markers(self) -> Iterator[str]:
        """Every text of the format that a model may write as a special token."""
        yield from (
            text for text in (self.begin, self.finish, self.start, self.end, self.name_end, *self.prefixes) if text
        )
        yield self.head.replace("\\", "")
        if self.tags is not None:
            yield from (
                text for text in (self.tags.key, *self.tags.key_ends, self.tags.value, self.tags.value_end) if text
            )
        if self.channels:
            yield from CHANNEL_MARKERS
        if self.body == "gemma":
            yield QUOTE


CHANNEL_MARKERS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>")
"""Of harmony: every message of an answer has a header, which names its channel and whom it is for."""
QUOTE = '<|"|>'
"""Stands around Gemma's strings."""


@dataclass(frozen=True)
class ThoughtFormat:
    """What stands around thoughts. `drop` are texts around answers that are no part of them."""

    start: str = "<think>"
    end: str = "</think>"
    drop: tuple[str, ...] = ()
    anywhere: bool = False

    def markers(self) -> Iterator[str]:
        """Every text of the format that a model may write as a special token."""
        yield from (self.start, self.end, *self.drop)


ANALYSIS = ThoughtFormat("<|channel|>analysis<|message|>", "<|end|>", anywhere=True)
"""Thoughts in harmony: messages of a channel of their own."""


@dataclass(frozen=True)
class AnswerFormat:
    """How one model's answers are written. Calls may be in any of several formats; the first is the one that the prompt
    asks for.

    `hidden` are names of the vocabulary's control tokens, which an answer does not show by itself. thinks: the model is
    known to write thoughts.
    """

    calls: tuple[CallFormat, ...] = ()
    thought: ThoughtFormat = ThoughtFormat()
    hidden: tuple[str, ...] = ()
    thinks: bool = False

    def shown(self, with_calls: bool) -> tuple[str, ...]:
        """Names of control tokens that the text has to show, since markers are made of them."""
        formats = [one for one in self.calls if with_calls or one.channels]
        markers = [marker for one in formats for marker in one.markers()] + [*self.thought.markers()]
        return tuple(name for name in self.hidden if name and any(name in marker for marker in markers))

    @property
    def marks(self) -> ThoughtFormat:
        """What stands around thoughts in the text of an answer, headers of messages included."""
        return ANALYSIS if self.channels else self.thought

    @property
    def channels(self) -> bool:
        """Whether an answer consists of messages with headers."""
        return any(format_.channels for format_ in self.calls)

    def opens_thought(self, prompt: str) -> bool:
        """Whether a prompt ends in a thought that has begun. White space at its end does not count."""
        return prompt.rstrip().endswith(self.thought.start.rstrip())

    def continues_thought(self, prefill: str) -> bool:
        """Whether the beginning of an answer is a thought that has not ended."""
        start, end = self.thought.start.strip(), self.thought.end.strip()
        return prefill.lstrip().startswith(start) and end not in prefill


def head_of(format_: CallFormat, text: str) -> tuple[str, str]:
    """The name and the id in what stands between a call's start and its arguments; the id is empty where there is
    none.
    """
    if not format_.head:
        return text.strip(), ""
    found = re.fullmatch(format_.head, text.strip())
    if found is None:
        return "", ""
    groups = found.groupdict()
    return groups["name"].strip(), groups.get("id") or ""
