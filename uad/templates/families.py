"""Chat formats as data: one YAML file per family, read strictly, and the plain rendering of a conversation in a family.

Must not know any vocabulary: names of specials are only text here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from uad.errors import MappingError
from uad.templates.yamlfile import Fields, nearest, read_yaml

ROLES = ("system", "developer", "user", "assistant", "tool")
SYSTEM_MODES = ("turn", "prefix", "drop")
_KEYS = ("family", "title", "specials", "begin", "system", "roles", "write_only", "notes", "example")


@dataclass(frozen=True)
class Turn:
    """What stands before and after the content of one role. `{bos}` and `{eos}` stand for the vocabulary's own."""

    start: str = ""
    end: str = ""


@dataclass(frozen=True)
class Message:
    role: str
    content: str


@dataclass(frozen=True)
class Example:
    """A conversation and how it looks in the family, without a generation prompt; the test of the file."""

    messages: tuple[Message, ...]
    text: str


@dataclass(frozen=True)
class Family:
    """One chat format.

    `system` says how a system message is expressed: as its own turn, as a prefix of the first user turn (then the turn of `system` is what
    stands around it there), or not at all. A `write_only` family is never looked for in a target's stream.
    """

    name: str
    title: str
    path: Path
    specials: tuple[str, ...]
    begin: str
    system: str
    roles: dict[str, Turn]
    write_only: bool = False
    notes: str = ""
    example: Example | None = None

    def role_of(self, role: str) -> str:
        """The role of this family that a turn of any role is written as."""
        if role in self.roles:
            return role
        return "system" if role == "developer" else "user"

    def render(self, messages: Sequence[Message], bos: str = "", eos: str = "", add_generation_prompt: bool = False) -> str:
        """A conversation in this format, contents unchanged."""
        out = [self.begin]
        carried = False
        for message in messages:
            role = self.role_of(message.role)
            turn = self.roles[role]
            if role == "system" and self.system == "drop":
                continue
            if role == "system" and self.system == "prefix":
                out += ["" if carried else self.roles["user"].start, turn.start, message.content, turn.end]
                carried = True
                continue
            if carried:
                out += [] if role == "user" else [self.roles["user"].end, turn.start]
            else:
                out.append(turn.start)
            out += [message.content, turn.end]
            carried = False
        if add_generation_prompt:
            out.append(self.roles["assistant"].start)
        return "".join(piece.replace("{bos}", bos).replace("{eos}", eos) for piece in out)

    def template(self) -> str:
        """A Jinja chat template of this format, for models that come without one."""
        literal = {role: (turn.start, turn.end) for role, turn in self.roles.items()}
        return _TEMPLATE.replace("@TURNS@", _jinja(literal)).replace("@MODE@", _jinja(self.system)).replace("@BEGIN@", _jinja(self.begin))


_TEMPLATE = """\
{%- macro put(text) -%}{{ text | replace('{bos}', bos_token) | replace('{eos}', eos_token) }}{%- endmacro -%}
{%- set turns = @TURNS@ -%}
{%- set ns = namespace(carried=false) -%}
{{- put(@BEGIN@) -}}
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
{%- if add_generation_prompt -%}{{- put(turns['assistant'][0]) -}}{%- endif -%}"""


def _jinja(value: object) -> str:
    return json.dumps(value)


def bundled_mappings() -> Path:
    """The mappings that come with uad: inside the installed package, or at the root of a source checkout."""
    packaged = Path(str(resources.files("uad"))) / "_mappings"
    return packaged if packaged.is_dir() else Path(str(resources.files("uad"))).parent / "mappings"


def load_family(path: Path) -> Family:
    """One family file. Raises MappingError that names file, line, column and what was expected."""
    fields = Fields(path, read_yaml(path), _KEYS)
    name = fields.text("family")
    if name != path.stem:
        raise fields.fail("family", f"the family is called '{name}' but the file '{path.name}'; they must agree")
    return Family(
        name=name,
        title=fields.text("title"),
        path=path,
        specials=fields.texts("specials"),
        begin=fields.text("begin", ""),
        system=fields.choice("system", SYSTEM_MODES, "turn"),
        roles=_roles(fields),
        write_only=fields.flag("write_only"),
        notes=fields.text("notes", ""),
        example=_example(fields) if fields.has("example") else None,
    )


def _roles(fields: Fields) -> dict[str, Turn]:
    roles = fields.child("roles", ROLES)
    found = {}
    for role in roles.keys():  # noqa: SIM118 (Fields is no mapping)
        turn = roles.child(role, ("start", "end"))
        found[role] = Turn(turn.text("start", ""), turn.text("end", ""))
    for role in ("system", "user", "assistant"):
        if role not in found:
            raise fields.fail("roles", f"the role '{role}' is missing; give its 'start' and 'end' (they may be empty)")
    if not (found["user"].start or found["user"].end or found["assistant"].start):
        raise fields.fail("roles", "nothing stands between the user's text and the assistant's; give a start or an end")
    return found


def _example(fields: Fields) -> Example:
    example = fields.child("example", ("messages", "text"))
    messages = []
    for item in example.children("messages", ROLES):
        for role in item.keys():  # noqa: SIM118
            messages.append(Message(role, item.text(role)))
    return Example(tuple(messages), example.text("text"))


def load_families(directories: Iterable[Path]) -> dict[str, Family]:
    """All families of the directories (each with a `families` folder or none); an earlier directory wins over a later one."""
    families: dict[str, Family] = {}
    for directory in directories:
        if not directory.is_dir():
            raise MappingError(f"{directory}: no such directory of mappings")
        for path in sorted((directory / "families").glob("*.yaml")):
            if path.stem not in families:
                families[path.stem] = load_family(path)
    return families


def find_family(families: Mapping[str, Family], name: str) -> Family:
    """A family by name; an unknown one is an error that names the nearest."""
    if name not in families:
        raise MappingError(f"there is no chat format family '{name}'; {nearest(name, list(families))}")
    return families[name]
