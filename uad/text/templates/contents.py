"""Contents of messages as a template wants them: one text, or a list of parts. Which of them it takes is tried once per
template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from uad.base.errors import InvalidRequestError
from uad.text.templates.sandbox import Budget, probed

_ONE, _TWO, _OTHER = "Wqz1", "Wqz2", "Wqz3"
_ROLES = ("user", "system", "assistant", "tool")


@dataclass(frozen=True)
class Forms:
    """Roles whose content the template writes where it is a text, and those where it is a list of parts."""

    text: frozenset[str]
    parts: frozenset[str]

    def wants(self, role: str, texts: Sequence[str]) -> str | list[dict[str, str]]:
        """The content for a message: parts where the template goes over them, otherwise one text, a line for each
        part.
        """
        known = "system" if role == "developer" else role if role in _ROLES else "user"
        if known in self.parts and (len(texts) > 1 or known not in self.text):
            return _parts(*texts)
        return "\n".join(texts)


@lru_cache(maxsize=16)
def forms(template: str) -> Forms:
    """The forms of content that a template takes; nothing for one that renders no conversation at all."""
    budget = Budget()
    return Forms(
        text=frozenset(role for role in _ROLES if _ONE in _render(template, role, _ONE, budget)),
        parts=frozenset(role for role in _ROLES if _goes_over_parts(template, role, budget)),
    )


def texts_of(content: object, where: str) -> list[str]:
    """The texts of a content. Raises InvalidRequestError for what is neither a text nor a list of text parts."""
    if content is None or isinstance(content, str):
        return [content or ""]
    if not isinstance(content, Sequence):
        raise InvalidRequestError(f"{where} must be text or a list of text parts", where)
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) and part.get("type", "text") == "text" else None
        if not isinstance(text, str):
            raise InvalidRequestError(f"{where}: only parts of the type 'text' can be used here", where)
        texts.append(text)
    return texts


def text_of(message: Mapping[str, object], at: int) -> str:
    """The text of message number `at`, a line for each part."""
    return "\n".join(texts_of(message.get("content"), f"messages[{at}].content"))


def _goes_over_parts(template: str, role: str, budget: Budget) -> bool:
    """Whether both texts are written, and not the list as Python or JSON would show it."""
    # Of [{"type": "text", "text": "Wqz1"}, {… "Wqz2"}] a template that goes over parts writes "Wqz1Wqz2"; one that
    # writes the list as it is has `'}, {'type': 'text', 'text': '` between them.
    text = _render(template, role, _parts(_ONE, _TWO), budget)
    between, second, _ = text.partition(_ONE)[2].partition(_TWO)
    return bool(second) and "type" not in between


def _parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def _render(template: str, role: str, content: object, budget: Budget) -> str:
    """A short conversation with a content in one role; empty where the template refuses it. The contents of the other
    roles are texts or parts.
    """
    talks = (_talk(role, content, other) for other in (_OTHER, _parts(_OTHER)))
    texts = (probed(template, talk, budget, add_generation_prompt=True) for talk in talks)
    return next((text for text in texts if _ONE in text), "")


def _talk(role: str, content: object, other: object) -> list[dict[str, object]]:
    message = {"role": role, "content": content}
    asked, answered = {"role": "user", "content": other}, {"role": "assistant", "content": other}
    talks = {
        "user": [message],
        "system": [message, asked],
        "assistant": [asked, message, asked],
        "tool": [asked, answered, message],
    }
    return talks[role]
