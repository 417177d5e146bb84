"""Which user-defined tokens are structure of a conversation, and which are spellings of text; and how to find names in
a text.

Must not know where a vocabulary was read from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from uad.base.common.sequences import common_prefix

_BRACKETED = re.compile(r"<\|.+\|>|<[^<>\s]+>|\[[^\[\]\s]+\]")
_TAG = re.compile(r"</?([a-z][a-z0-9]*)/?>")
_HTML = frozenset(
    (  # noqa: SIM905
        "a abbr address area article aside audio b base bdi bdo big blockquote body br button canvas caption center "
        "cite code col colgroup data datalist dd del details dfn dialog div dl dt em embed fieldset figcaption "
        "figure font footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html i iframe img input ins kbd label "
        "legend li link main map mark menu meta meter nav noscript object ol optgroup option output p param picture "
        "pre progress q rp rt ruby s samp script search section select slot small source span strike strong style "
        "sub summary sup svg table tbody td template textarea tfoot th thead time title tr track tt u ul var video "
        "wbr"
    ).split()
)


def is_marker(name: str, template: str = "") -> bool:
    """Whether a user-defined token of that name marks structure, so that it counts only where a template or the model
    writes it.

    Names in brackets do (`<think>`, `<|im_start|>`, `[INST]`), but for the tags of HTML, which some vocabularies spell
    as one token. So do tags and other names with letters and marks (`USER:`) that the model's chat template writes.
    White space never does.
    """
    tag = _TAG.fullmatch(name)
    if _BRACKETED.fullmatch(name) and not (tag and tag.group(1) in _HTML):
        return True
    is_word = any(map(str.isalpha, name)) and any(
        not character.isalnum() and not character.isspace() for character in name
    )
    return is_word and name in template


def longest_of(names: Iterable[str]) -> str:
    """An expression that matches the longest of names that begins at a place; time follows the match, not the number of
    names.
    """
    return _branches(sorted({name for name in names if name}))


def _branches(words: list[str]) -> str:
    """For distinct words, sorted: what the first and the last have in common all have."""
    # "<|ab|>" and "<|a|>" give `<\|a(?:b\|>|\|>)`: after what is common, each way has a first letter of its own, so the
    # engine goes one way without looking back. A word that ends there makes the rest optional: "a", "ab" give
    # `a(?:b)?`.
    first, last = words[0], words[-1]
    n = common_prefix(first, last)
    common = first[:n]
    following: dict[str, list[str]] = {}
    for word in words:
        if rest := word[n:]:
            following.setdefault(rest[0], []).append(rest)
    if not following:
        return re.escape(common)
    ways = "|".join(map(_branches, following.values()))
    return f"{re.escape(common)}(?:{ways}){'?' if common in words else ''}"
