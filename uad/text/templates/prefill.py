"""The beginning of an answer, put where the template has answers: after thoughts, inside a channel. Must not know
vocabularies.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator

from uad.text.templates.render import Part, Rendered
from uad.text.templates.sandbox import RefusedError
from uad.text.templates.seams import THOUGHTS_BEGIN, THOUGHTS_END

Render = Callable[[str | None], Rendered]
"""The prompt with an answer at its end, or with what asks for one (None)."""
_TAIL = re.compile(rf"(?:(?P<open>{THOUGHTS_BEGIN})\s*)?(?:(?P<close>{THOUGHTS_END})\s*)?\Z")
"""The possible ends of a prompt: thoughts that are open, or empty ones."""
_FINAL = "<|start|>assistant<|channel|>final<|message|>"
"""Stands in front of what is said after thoughts, in harmony."""
_TYPED = tuple(
    re.compile(rf"\s*(?P<open>{begin})(?P<thoughts>.*?)(?:(?P<close>{end})(?P<answer>.*))?", re.DOTALL)
    for begin, end in (
        (THOUGHTS_BEGIN, THOUGHTS_END),
        (re.escape("<|channel|>analysis<|message|>"), re.escape("<|end|>")),
    )
)


def continued(render: Render, template: str, prefill: str) -> Rendered:
    """The prompt and the beginning of an answer, which may begin with thoughts if they are in tags of the template."""
    for pattern in _TYPED:
        typed = pattern.fullmatch(prefill)
        if typed and typed["open"] in template:
            return _thinking(render(None), template, typed)
    prompt = _in_place(render) or render(None)
    return Rendered((*prompt.parts, Part(_closer(prompt), True), Part(prefill, False)), prompt.exact)


def without_thoughts(prompt: Rendered) -> Rendered:
    """The prompt with the thoughts closed that it begins, where the template has no switch for them."""
    tail = _tail(prompt)
    if not tail["open"] or tail["close"]:
        return prompt
    return Rendered((*prompt.parts, Part(_end_of(tail["open"]), True)), prompt.exact, prompt.losses)


def _in_place(render: Render) -> Rendered | None:
    """The prompt up to where the template writes an answer; None if it writes none."""
    # Rendered with an answer "9f3c…", a template that puts a header before answers gives "…<|channel|>final<|message|>"
    # and the mark: the prefill belongs where the mark stands, after all that the template puts before an answer.
    mark = secrets.token_hex(8)
    try:
        whole = render(mark)
    except RefusedError:
        return None
    before, mark_there, _ = whole.text.rpartition(mark)
    return Rendered(tuple(_cut(whole.parts, len(before))), whole.exact) if mark_there else None


def _thinking(asked: Rendered, template: str, typed: re.Match[str]) -> Rendered:
    """Thoughts that the request brings stand for those that the prompt ends in."""
    parts = [
        *_cut(asked.parts, len(asked.text) - len(_tail(asked).group())),
        Part(typed["open"], True),
        Part(typed["thoughts"], False),
    ]
    if typed["close"]:
        final = _FINAL if typed["open"].startswith("<|channel|>") else ""
        closed = f"{typed['close']}{final}"
        parts += [Part(closed, typed["close"] in template), Part(typed["answer"], False)]
    return Rendered(tuple(parts), asked.exact)


def _closer(prompt: Rendered) -> str:
    """The text that ends the thoughts that a prompt begins, at once; empty where it begins no thoughts."""
    tail = _tail(prompt)
    if not tail["open"] or tail["close"]:
        return ""
    # "<think>\n" at a prompt's end becomes "<think>\n\n</think>\n\n", as Qwen writes empty thoughts; "<think>" alone is
    # closed without line ends.
    closer = _end_of(tail["open"])
    return f"\n{closer}\n\n" if tail.group().endswith("\n") else closer


def _end_of(start: str) -> str:
    """The tag that ends what this one begins."""
    end = "<channel|>" if start.startswith("<|channel>") else start.replace("START", "END")
    return end if end != start else f"{end[0]}/{end[1:]}"


def _tail(prompt: Rendered) -> re.Match[str]:
    last = prompt.parts[-1] if prompt.parts else Part("", True)
    tail = _TAIL.search(last.text if last.trusted else "")
    assert tail is not None
    return tail


def _cut(parts: Iterable[Part], n: int) -> Iterator[Part]:
    """The first n characters."""
    for part in parts:
        if n > 0:
            yield Part(part.text[:n], part.trusted)
        n -= len(part.text)
