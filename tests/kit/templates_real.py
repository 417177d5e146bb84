"""The chat templates of llama-cpp-python's source distribution, where they have been fetched, each with a vocabulary
made for it.

Chat templates come without vocabularies. So each gets a toy one: all bytes and some words, and as specials every name
in its renderings of plain conversations that looks like one, its BOS and EOS among them; of the names in a template's
own preamble only those that turns are made of, since the others (<tools> and such) are letters to the real models.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from platformdirs import user_cache_path

from kit.templates_toys import toy
from uad.base.errors import InvalidRequestError
from uad.text.mapping.families import PlainMessage
from uad.text.mapping.recognise import Side
from uad.text.templates.render import render

SYSTEM = PlainMessage("system", "Be brief; answer in French.")
TALK = (
    PlainMessage("user", "Hello, who are you?"),
    PlainMessage("assistant", "Only a probe.\nNo more."),
    PlainMessage("user", "And the next?"),
)
CONVERSATIONS = {"with system": (SYSTEM, *TALK), "without": TALK}
_NAMES = re.compile(r"<[^<>\s]{1,60}>|〈\|\w+\|〉|\[/?[A-Z][A-Z_]+\]|\[gMASK\]|\]~!?b[\]\[]|\[e~\[|\[BOS\]|\[EOS\]")
_STRICT = re.compile(
    r"<\|[^<>|]+\|>|<｜[^<>｜]+｜>|〈\|\w+\|〉|\[/?SYSTEM_PROMPT\]|\[gMASK\]|\]~!?b[\]\[]|\[e~\[|<SPECIAL_\d+>|<begin\w+>"
)
BOS, EOS = "<BOS>", "<EOS>"


@dataclass(frozen=True)
class Real:
    """A template with its toy vocabulary, and the texts that it renders (None: it refuses)."""

    side: Side
    texts: dict[str, str | None]


def folder() -> Path | None:
    """Where `make vocabs` puts vocabularies and templates, if it did."""
    given = os.environ.get("UAD_VOCABS")
    found = Path(given).expanduser() if given else user_cache_path("uad") / "vocabs"
    return found if (found / "templates").is_dir() else None


@lru_cache
def real_templates() -> dict[str, Real]:
    """By file name, those that render at least one of the plain conversations."""
    at = folder()
    found = {path.stem: _real(path) for path in sorted((at / "templates").glob("*.jinja"))} if at else {}
    return {name: real for name, real in found.items() if any(real.texts.values())}


def written(
    template: str, messages: tuple[PlainMessage, ...], prompt: bool = True, bos: str = BOS, eos: str = EOS
) -> str | None:
    asked = [{"role": message.role, "content": message.content} for message in messages]
    try:
        return render(template, asked, bos=bos, eos=eos, add_generation_prompt=prompt).text
    except InvalidRequestError:
        return None


def _own_eos(template: str, seen: str) -> str | None:
    """The name that ends an answer in a template that never asks for the vocabulary's EOS, unless it begins the user's
    turn as well.
    """
    if "eos_token" in template:
        return None
    after = seen.partition(TALK[1].content)[2].lstrip()
    found = _NAMES.match(after)
    return (
        None
        if found is None or after.startswith(found[0] + TALK[2].content) or found[0].endswith("user|>")
        else found[0]
    )


def _real(path: Path) -> Real:
    template = path.read_text(encoding="utf-8")
    texts = {name: written(template, messages) for name, messages in CONVERSATIONS.items()}
    seen = "".join(text or "" for text in texts.values())
    talk = "".join((text or "").partition(TALK[0].content)[2] for text in texts.values())
    names = dict.fromkeys([*_NAMES.findall(talk), *_STRICT.findall(seen)])
    eos = _own_eos(template, seen)
    if eos is not None:
        names.pop(eos, None)
    add_bos = seen.startswith(BOS)
    specials = (BOS, eos or EOS, *(name for name in names if name not in (BOS, EOS)))
    vocab = toy(f"toy-{path.stem}", specials, add_bos=add_bos)
    return Real(Side(vocab, template, path.stem), texts)


SYSTEM_LAST = "mistralai-Mistral-Nemo-Instruct-2407"
NO_FAMILY = "CohereForAI-c4ai-command-r-plus-tool_use"
REASONS: dict[str, str] = {
    SYSTEM_LAST: "writes the system message in front of the last user message; a stream cannot know which is the last",
    NO_FAMILY: "has a tool preamble in front of every answer: no family, only derived",
    "Kimi-K2-Instruct": "writes a stray newline behind its default system message",
    "MiniMax-M3": "names the specials of its own thoughts in its preamble",
}
"""Of pairs that are not equal, by the template that is the cause."""
