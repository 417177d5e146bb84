"""A derived pair as a YAML file that a person can read and edit. Must not know models: it gets formats and names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from uad.text.mapping.derive import Derived
from uad.text.mapping.families import ROLES, Family, Turn

_HEAD = """\
# Derived from the chat templates of both models by `uad mapping derive`. Edit it freely: it takes effect at the next
# start, from the folder pairs/ of a directory given by --mappings. `uad mapping check TARGET DRAFT --mappings DIR`
# shows what it does, `uad mapping lint` what is wrong with it. docs/mappings.md explains every key.
"""
_COMMENTS = {
    "begin": "before the first turn; {bos} and {eos} are the vocabulary's own",
    "system": "turn: a turn of its own; prefix: in front of the first user message; drop: not at all",
    "no_system": "what the template writes where a conversation has no system message",
    "roles": (
        "before and after each message; names of specials are specials, all else is text. prompt: what asks for "
        "an answer"
    ),
    "reasoning": "around thoughts, right after the beginning of an answer",
    "tool_call": "around tool calls in an answer",
}


def pair_name(target: str, draft: str) -> str:
    """A name for the pair that can be a file's."""
    return "--".join(re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-") or "model" for name in (target, draft))


def pair_text(name: str, target: tuple[str, Derived], draft: tuple[str, Derived]) -> str:
    """The file. `target` and `draft` are (name of the model, its format)."""
    lines = [f"pair: {_quoted(name)}"]
    for key, (model, _) in (("target", target), ("draft", draft)):
        pattern = re.sub(r"[][*?]", "?", model)  # without letters that mean more than themselves
        lines.append(f"{key}: {{name: {_quoted(pattern)}}}")
    lines.append("formats:")
    for key, (_, derived) in (("target", target), ("draft", draft)):
        lines.append(f"  {key}:")
        lines += [f"    # {note}" for note in derived.notes]
        lines += [f"    {line}" for line in _format(derived.family)]
    lines.append("# Explicit replacements would win over the formats:")
    lines.append('# replace:\n#   - {target: "...", draft: "..."}')
    return _HEAD + "\n".join(lines) + "\n"


def _format(family: Family) -> Iterator[str]:
    for key, value in (("begin", family.begin), ("system", family.system), ("no_system", family.no_system)):
        if value:
            yield f"# {_COMMENTS[key]}"
            yield f"{key}: {_quoted(value) if key != 'system' else value}"
    yield f"# {_COMMENTS['roles']}"
    yield "roles:"
    for role in ROLES:
        if role in family.roles:
            yield from _role(role, family.roles[role], family.prompt if role == "assistant" else None)
    for key, wrap in (("reasoning", family.reasoning), ("tool_call", family.tool_call)):
        if wrap is not None:
            yield f"# {_COMMENTS[key]}"
            yield f"{key}: {{start: {_quoted(wrap.start)}, end: {_quoted(wrap.end)}}}"


def _role(role: str, turn: Turn, prompt: str | None) -> Iterator[str]:
    yield f"  {role}:"
    for key, value in (("start", turn.start), ("end", turn.end), ("prompt", prompt)):
        if value is not None:
            yield f"    {key}: {_quoted(value)}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
