"""Chat formats as data: one YAML file per family, read strictly, and the plain rendering of a conversation in a family.

Must not know any vocabulary: names of specials are only text here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from uad.base.common.files import is_folder
from uad.base.common.names import meant_or_known
from uad.base.common.sequences import common_prefix
from uad.base.common.yaml_fields import Fields, load_all, read_yaml
from uad.base.errors import MappingError

KINDS = ("families", "pairs", "calls")
"""The folders of a directory of mappings."""
ROLES = ("system", "developer", "user", "assistant", "tool")
SYSTEM_MODES = ("turn", "prefix", "drop")
REASONING, TOOL_CALL = "reasoning", "tool_call"
"""Spans inside an answer."""
FORMAT_KEYS = ("begin", "system", "no_system", "roles", REASONING, TOOL_CALL)
_KEYS = ("family", "title", "specials", *FORMAT_KEYS, "thought", "write_only", "notes", "example")
_NO_THOUGHT = re.compile(r"(?:<think>\s*)?</think>\s*$")
"""The mark that says that an answer has no thoughts; it stands where thoughts might have begun."""
_NAMES = re.compile(r"\{[be]os\}|<[^<>\s]{1,80}>|\[[^\[\]\s]{1,80}\]")


@dataclass(frozen=True)
class Turn:
    """The texts before and after the content of one role. `{bos}` and `{eos}` stand for the vocabulary's own."""

    start: str = ""
    end: str = ""


@dataclass(frozen=True)
class ThoughtFormat:
    """The marks around thoughts in a model's own answers.

    `drop` are texts around answers that are no part of them. Thoughts may begin `anywhere`, not only at the front.
    """

    start: str = "<think>"
    end: str = "</think>"
    drop: tuple[str, ...] = ()
    anywhere: bool = False

    def markers(self) -> Iterator[str]:
        """Every text of the format that a model may write as a special token."""
        yield from (self.start, self.end, *self.drop)


@dataclass(frozen=True)
class PlainMessage:
    """`reasoning` is what an assistant thought before it answered."""

    role: str
    content: str
    reasoning: str = ""


@dataclass(frozen=True)
class Example:
    """A conversation and how it looks in the family, without a generation prompt; the test of the file."""

    messages: tuple[PlainMessage, ...]
    text: str


@dataclass(frozen=True)
class Family:
    """One chat format."""

    name: str
    title: str
    path: Path
    specials: tuple[str, ...]
    begin: str
    system: str
    """How a system message is expressed: as its own turn, as a prefix of the first user turn (then the turn of `system`
    is what stands around it there), or not at all.
    """
    roles: dict[str, Turn]
    write_only: bool = False
    """It is never looked for in a target's stream."""
    notes: str = ""
    example: Example | None = None
    no_system: str = ""
    """The text in the place of a system message where a conversation has none."""
    prompt: str | None = None
    """The text that asks for an answer, where that is not the start of the assistant's turn."""
    reasoning: Turn | None = None
    """The marks around thoughts inside an assistant's turn, after `opening`. Without a start, all text that follows is
    a thought.
    """
    tool_call: Turn | None = None
    """The same for tool calls."""
    thought: ThoughtFormat | None = None
    """The marks around thoughts in a model's own answer, where those are not `reasoning`."""

    @property
    def opening(self) -> str:
        """The beginning that an assistant's turn has whether it is asked for, answered, or thought about first."""
        start = self.roles["assistant"].start
        if self.prompt is None:
            return _NO_THOUGHT.sub("", start).rstrip(" ")
        n = common_prefix(start, self.prompt)
        inside = [
            match.start()
            for text in (start, self.prompt)
            for match in _NAMES.finditer(text)
            if match.start() < n < match.end()
        ]
        return _NO_THOUGHT.sub("", start[: min(inside, default=n)])

    @property
    def spans(self) -> dict[str, Turn]:
        """The marks around thoughts and tool calls inside an answer, where the format has them."""
        spans = {REASONING: self.reasoning, TOOL_CALL: self.tool_call}
        return {name: wrap for name, wrap in spans.items() if wrap is not None}

    @property
    def asking(self) -> str:
        """The generation prompt."""
        return self.opening if self.prompt is None else self.prompt

    def role_of(self, role: str) -> str:
        """The role of this family that a turn of any role is written as."""
        if role in self.roles:
            return role
        return "system" if role == "developer" else "user"

    def render(
        self, messages: Sequence[PlainMessage], bos: str = "", eos: str = "", add_generation_prompt: bool = False
    ) -> str:
        """A conversation in this format, contents unchanged."""
        out = [self.begin]
        carried = False
        if messages and self.role_of(messages[0].role) != "system":
            out.append(self.no_system)
        for message in messages:
            role = self.role_of(message.role)
            turn = self.roles[role]
            if role == "system" and self.system == "drop":
                continue
            if role == "system" and self.system == "prefix":
                out += ["" if carried else self.roles["user"].start, turn.start, message.content, turn.end]
                carried = True
                continue
            start = self._start(role, message)
            if carried:
                out += [] if role == "user" else [self.roles["user"].end, *start]
            else:
                out += start
            out += [message.content, turn.end]
            carried = False
        if add_generation_prompt:
            out.append(self.asking)
        return "".join(piece.replace("{bos}", bos).replace("{eos}", eos) for piece in out)

    def _start(self, role: str, message: PlainMessage) -> list[str]:
        if role != "assistant" or not message.reasoning or self.reasoning is None:
            return [self.roles[role].start]
        return [self.opening, self.reasoning.start, message.reasoning, self.reasoning.end]

    def template(self) -> str:
        """A Jinja chat template of this format, for models that come without one."""
        literal = {role: (turn.start, turn.end) for role, turn in self.roles.items()}
        values = {"TURNS": literal, "MODE": self.system, "BEGIN": self.begin, "NONE": self.no_system}
        values["PROMPT"] = self.asking
        return re.sub("@([A-Z]+)@", lambda match: json.dumps(values[match[1]]), _TEMPLATE)


_TEMPLATE = """\
{%- macro put(text) -%}{{ text | replace('{bos}', bos_token) | replace('{eos}', eos_token) }}{%- endmacro -%}
{%- set turns = @TURNS@ -%}
{%- set ns = namespace(carried=false) -%}
{{- put(@BEGIN@) -}}
{%- set system = ['system'] if 'developer' in turns else ['system', 'developer'] -%}
{%- if messages and messages[0].role not in system -%}
{{- put(@NONE@) -}}
{%- endif -%}
{%- for m in messages -%}
{%- set role = m.role if m.role in turns else ('system' if m.role == 'developer' else 'user') -%}
{%- set turn = turns[role] -%}
{%- if role == 'system' and @MODE@ == 'drop' -%}
{%- elif role == 'system' and @MODE@ == 'prefix' -%}
{{- (put(turns['user'][0]) if not ns.carried else '') + put(turn[0]) + m.content + put(turn[1]) -}}
{%- set ns.carried = true -%}
{%- else -%}
{{- put(turn[0]) if not ns.carried else ('' if role == 'user' else put(turns['user'][1]) + put(turn[0])) -}}
{{- (m.content if m.content else '') + put(turn[1]) -}}
{%- set ns.carried = false -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- put(@PROMPT@) -}}{%- endif -%}"""


def bundled_mappings() -> Path:
    """The mappings that come with uad: inside the installed package, or at the root of a source checkout."""
    packaged = Path(str(resources.files("uad"))) / "_mappings"
    return packaged if is_folder(packaged) else Path(str(resources.files("uad"))).parent / "mappings"


def load_family(path: Path) -> Family:
    """One family file. Raises MappingError that names file, line, column and what was expected."""
    fields = Fields(path, read_yaml(path), _KEYS)
    return read_format(
        fields,
        name=fields.name("family", "family"),
        title=fields.text("title"),
        specials=fields.texts("specials"),
        write_only=fields.flag("write_only"),
        notes=fields.text("notes", ""),
        example=_example(fields) if fields.has("example") else None,
        thought=_thought(fields) if fields.has("thought") else None,
    )


def read_format(fields: Fields, **others: Any) -> Family:
    """A family from the keys of FORMAT_KEYS, which pairs have as well, and its other fields."""
    roles = fields.child("roles", ROLES)
    assistant = roles.child("assistant", ("start", "end", "prompt")) if roles.has("assistant") else None
    return Family(
        path=fields.path,
        begin=fields.text("begin", ""),
        system=fields.choice("system", SYSTEM_MODES, "turn"),
        no_system=fields.text("no_system", ""),
        roles=_roles(fields),
        prompt=assistant.text("prompt") if assistant is not None and assistant.has("prompt") else None,
        reasoning=_wrap(fields, REASONING),
        tool_call=_wrap(fields, TOOL_CALL),
        **others,
    )


def _wrap(fields: Fields, key: str) -> Turn | None:
    if not fields.has(key):
        return None
    wrap = fields.child(key, ("start", "end"))
    for side in ("start", "end"):
        if not wrap.text(side) and (key, side) != (REASONING, "start"):
            raise wrap.fail(side, f"'{side}' is empty; what stands around {key} must be seen to be followed")
    return Turn(wrap.text("start"), wrap.text("end"))


def _thought(fields: Fields) -> ThoughtFormat:
    marks = fields.child("thought", ("start", "end", "drop", "anywhere"))
    if not marks.text("end"):
        raise marks.fail("end", "'end' is empty; the end of thoughts must be seen to be followed")
    return ThoughtFormat(marks.text("start"), marks.text("end"), marks.texts("drop"), marks.flag("anywhere"))


def _roles(fields: Fields) -> dict[str, Turn]:
    roles = fields.child("roles", ROLES)
    by_role = {}
    for role in roles.given:
        turn = roles.child(role, ("start", "end", "prompt") if role == "assistant" else ("start", "end"))
        by_role[role] = Turn(turn.text("start", ""), turn.text("end", ""))
    for role in ("system", "user", "assistant"):
        if role not in by_role:
            raise fields.fail("roles", f"the role '{role}' is missing; give its 'start' and 'end' (they may be empty)")
    if not (by_role["user"].start or by_role["user"].end or by_role["assistant"].start):
        raise fields.fail("roles", "nothing stands between the user's text and the assistant's; give a start or an end")
    return by_role


def _example(fields: Fields) -> Example:
    example = fields.child("example", ("messages", "text"))
    messages = []
    for item in example.children("messages", (*ROLES, "reasoning")):
        thought = item.text("reasoning", "")
        messages += [PlainMessage(role, item.text(role), thought) for role in item.given if role != "reasoning"]
    return Example(tuple(messages), example.text("text"))


def load_families(directories: Iterable[Path]) -> dict[str, Family]:
    """All families of the directories (each with a `families` folder or none); an earlier directory wins over a later
    one.
    """
    directories = tuple(directories)
    for directory in directories:
        if why := why_no_mappings(directory):
            raise MappingError(why)
    return load_all(directories, "families", load_family)


def why_no_mappings(directory: Path) -> str:
    """Why this is no directory of mappings; "" where it is one."""
    if not is_folder(directory):
        return f"{directory}: no such directory of mappings"
    if not any(is_folder(directory / kind) for kind in KINDS):
        return f"{directory}: none of the folders {', '.join(KINDS)} is in it, where files of mappings lie"
    return ""


def find_family(families: Mapping[str, Family], name: str) -> Family:
    """A family by name; an unknown one is an error that names the nearest."""
    if name not in families:
        raise MappingError(f"there is no chat format family '{name}'; {meant_or_known(name, list(families))}")
    return families[name]
