"""How an answer writes tool calls and thoughts, as data. Knows no text, no template and no vocabulary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from uad.text.mapping.families import ThoughtFormat

_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_FUNCTIONS = "functions."
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


@dataclass(frozen=True, kw_only=True)
class Tags:
    """Arguments in tags: `key` + name + `key_end` + value + `value_end`."""

    key: str
    key_end: str = ""
    """After it the tool's schema says what kind of value follows."""
    text_ends: tuple[str, ...] = ()
    """Texts that end a name before a value that is text."""
    json_ends: tuple[str, ...] = ()
    """Texts that end a name before a value that is JSON."""
    value: str = ""
    """Stands before each value."""
    value_end: str
    """`{key}` in it is the argument's name."""
    lines: bool = False
    """Values stand on lines of their own."""
    cdata: bool = False
    """Values may be in XML's sections for text."""
    nested: str = ""
    """The beginning of the tags that lists and objects are written in."""

    @property
    def key_ends(self) -> tuple[str, ...]:
        """All texts that may end an argument's name: `key_end` unless empty, then `text_ends` and `json_ends`."""
        return (*([self.key_end] if self.key_end else []), *self.text_ends, *self.json_ends)


@dataclass(frozen=True)
class CallFormat:
    """One way to write tool calls. A call may come without `begin` where it has a `start`. A format without either
    begins with its first brace, and only where the answer does.
    """

    name: str
    title: str
    body: str
    begin: str = ""
    """Stands before all calls, `finish` after them."""
    finish: str = ""
    start: str = ""
    """Stands before each call, `end` after it."""
    end: str = ""
    name_end: str = ""
    head: str = ""
    """Takes apart what stands between `start` and `name_end`: an expression with the groups `name` and perhaps `id`."""
    prefixes: tuple[str, ...] = ()
    """May stand before the first brace of a format without markers."""
    keys: Keys = Keys()
    tags: Tags | None = None
    channels: bool = False
    """The answer is harmony's."""
    plain: str = ""
    """The first `start` is in the prompt, and this says that content follows it."""
    hints: tuple[str, ...] = ()
    """Texts in templates that list tools but write no calls."""
    lazy: tuple[str, ...] = ()
    """Texts with which calls begin and prose does not, where `begin` and `start` could be prose; `{name}` is the
    tool's.
    """
    example: str = ""
    """An answer that calls `look_up` with the word "tea" and the number 3."""

    @property
    def is_bare(self) -> bool:
        """Whether no marker says that a call begins."""
        return not (self.begin or self.start or self.channels)

    def openers(self) -> tuple[str, ...]:
        """The texts that a call may begin with, for a format that has markers."""
        return tuple(dict.fromkeys(text for text in (self.begin, self.start) if text))

    def markers(self) -> Iterator[str]:
        """Every text of the format that a model may write as a special token."""
        texts = [self.begin, self.finish, self.start, self.end, self.name_end, *self.prefixes]
        texts.append(self.head.replace("\\", ""))
        if self.tags is not None:
            texts += [self.tags.key, *self.tags.key_ends, self.tags.value, self.tags.value_end]
        if self.channels:
            texts += CHANNEL_MARKERS
        if self.body == "gemma":
            texts.append(QUOTE)
        return filter(None, texts)


CHANNEL_MARKERS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>")
"""Specials of harmony: every message of an answer has a header, which names its channel and whom it is for."""
QUOTE = '<|"|>'
"""Stands around Gemma's strings."""


THINK_TAGS = ThoughtFormat()
ANALYSIS = ThoughtFormat("<|channel|>analysis<|message|>", "<|end|>", anywhere=True)
"""Thoughts in harmony: messages of a channel of their own."""


@dataclass(frozen=True)
class AnswerFormat:
    """How one model's answers are written. Calls may be in any of several formats; the first is the one that the prompt
    asks for.

    `hidden` are names of the vocabulary's control tokens, which an answer does not show by itself. thinks: the model is
    known to write thoughts. doubled: the model is shown calls in doubled braces, `{{"name": …}}`, so it may write them.
    """

    calls: tuple[CallFormat, ...] = ()
    thought: ThoughtFormat = THINK_TAGS
    hidden: tuple[str, ...] = ()
    thinks: bool = False
    doubled: bool = False

    def shown(self, with_calls: bool) -> tuple[str, ...]:
        """Names of control tokens that the text has to show, since markers are made of them."""
        formats = [format_ for format_ in self.calls if with_calls or format_.channels]
        markers = [marker for format_ in formats for marker in format_.markers()] + [*self.thought.markers()]
        return tuple(name for name in self.hidden if name and any(name in marker for marker in markers))

    def keys_of_whole(self, wanted: str) -> Keys | None:
        """The members of JSON objects that are calls where they are the whole answer; None where such an answer is
        content. wanted: auto, on or off. With auto there must be a format that writes calls as such objects.
        """
        if wanted == "off" or self.channels:
            return None
        own = (format_.keys for format_ in self.calls if format_.body in ("json", "list") and format_.keys.name)
        return next(own, None if wanted == "auto" else Keys())

    @property
    def marks(self) -> ThoughtFormat:
        """The marks around thoughts in the text of an answer, headers of messages included."""
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
        start, end = self.marks.start.strip(), self.marks.end.strip()
        return prefill.lstrip().startswith(start) and end not in prefill


def head_of(format_: CallFormat, text: str) -> tuple[str, str]:
    """The name and the id in what stands between a call's start and its arguments; the id is empty where the call has
    no id.
    """
    if not format_.head:
        return text.strip(), ""
    match = re.fullmatch(format_.head, text.strip())
    if match is None:
        return "", ""
    groups = match.groupdict()
    return groups["name"].strip(), groups.get("id") or ""


@dataclass(frozen=True)
class MessageHeader:
    """The header of a message in harmony, gpt-oss's format. `recipient` is empty for thoughts and for the user; `text`
    is all of it.
    """

    channel: str
    recipient: str
    text: str = ""

    @property
    def tool(self) -> str:
        """The name of the tool that the message calls; empty where it calls none."""
        return self.recipient.removeprefix(_FUNCTIONS) if self.recipient.startswith(_FUNCTIONS) else ""


def header_of(text: str) -> MessageHeader:
    """From the text before `<|message|>`. Of several channels the last counts."""
    channels, recipients = _CHANNEL.findall(text), _RECIPIENT.findall(text)
    recipient = recipients[-1] if recipients else ""
    return MessageHeader(channels[-1] if channels else "final", "" if recipient == "assistant" else recipient, text)
