"""Text of any length to ids, where llama.cpp's tokenizer recurses once for every character of a run (std::regex), or
ends the process; and text in which names of markers are letters.

Short text goes straight to it. Longer text is cut at safe boundaries, which changes no id, and goes to it on a thread
with a stack of a known size; only a run that is longer than this stack allows is put together from windows. Must not
know what reads the text, or templates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeVar

from uad.base.common.threads import start_deep
from uad.base.errors import InvalidRequestError
from uad.text.vocab.boundary import Boundaries
from uad.text.vocab.markers import longest_of
from uad.text.vocab.table import Tokenize, VocabTable

T = TypeVar("T")
_SHORT_BYTES = 512  # bytes: less than 0.3 MB of stack, which every thread has
_PIECE_BYTES = 8192  # bytes that go to llama.cpp at once, where there is a safe boundary
_DEEPEST_CHARS = 32_768  # characters of one run that go to llama.cpp at once; 8 MB of stack are enough for 26,000
_STACK_BYTES = 64 << 20  # bytes of address space; half a kilobyte of it is touched per character of the longest run
_WINDOW_BYTES, _MARGIN_BYTES = 16_384, 4096  # bytes
_N_SEAMS = 12
# some count digits by threes from the end of a run; a multiple of that, and of what characters have of bytes
_DIGITS_AT_ONCE = 48

NEVER_DEEP = frozenset(
    """
    a.x-4.0 chameleon chatglm-bpe codeshell command-r dbrx deepseek-r1-qwen exaone exaone4 f2llmv2 falcon-h1 falcon3
    gemma4 gigachat glm4 glm5 gpt-2 granite-docling granite-embed-multi-311m grok-2 hunyuan jais jina-de jina-es
    jina-v1-en jina-v2-code jina-v2-de jina-v2-es jina-v5-nano kimi-k2 kormo laguna lfm2 llama-bpe llama-v3 llama3
    megrez mellum mellum2 midm-2.0 minerva-7b modern-bert mpt olmo phi-2 pixtral qwen2 qwen35 refact roberta-bpe
    sarvam-moe smaug-bpe smollm solar-open stablelm2 starcoder trillion
    """.split()  # noqa: SIM905
)
"""Names of pre-tokenizers whose expressions llama.cpp has written out as loops, or which match a few characters at
most.
"""
CHECKED = frozenset({"0.3.36"})
"""Versions of llama-cpp-python for which that was tried. Another one may have moved a name to std::regex, where a long
text would end the process: there no name is trusted, which costs long texts a little time.
"""


def is_never_deep(pre: str, version: str) -> bool:
    """Whether text of any length can go straight to llama.cpp's tokenizer with this pre-tokenizer."""
    return pre in NEVER_DEEP and version in CHECKED


def bounded(vocab: VocabTable, pre: str) -> Tokenize:
    """vocab.tokenize for text of any length: byte-level BPE with the pre-tokenizer of that name.

    Ids are llama.cpp's own up to runs of 32,768 characters without a safe boundary. Longer runs are cut into windows
    where both sides of the cut come out the same. Raises InvalidRequestError where the system gives no thread for it.
    """
    native, cuts = vocab.tokenize, _CUTS.get(pre)
    boundaries: list[Boundaries] = []  # made for the first long text

    def pieces(data: bytes) -> Iterator[bytes]:
        if len(data) <= _SHORT_BYTES:
            return _cut(data, cuts)
        if not boundaries:
            boundaries.append(Boundaries(vocab))
        return (part for piece in _pieces(data, boundaries[0]) for part in _cut(piece, cuts))

    def joined(data: bytes) -> list[int]:
        known: dict[bytes, list[int]] = {}  # of one text: runs are cut into equal pieces
        ids: list[int] = []
        for piece in pieces(data):
            if piece not in known:
                known[piece] = _whole(native, vocab, piece)
            ids += known[piece]
        return ids

    def tokenize(data: bytes) -> list[int]:
        if len(data) > _SHORT_BYTES:
            return _on_deep_stack(lambda: joined(data))
        return joined(data) if cuts else native(data)

    return tokenize


def _pieces(data: bytes, boundaries: Boundaries) -> Iterator[bytes]:
    """Data in pieces of _PIECE_BYTES bytes at most, as far as safe boundaries allow."""
    start = last = 0
    for cut in (*boundaries.cuts(data), len(data)):
        if cut - start > _PIECE_BYTES and last > start:
            yield data[start:last]
            start = last
        last = cut
    yield data[start:]


def _on_deep_stack(work: Callable[[], T]) -> T:
    """Run `work` on a thread with a stack of _STACK_BYTES bytes; returns or raises what it does."""
    try:
        _, done = start_deep(work, "tokenize", _STACK_BYTES)
    except (RuntimeError, ValueError):
        raise InvalidRequestError(
            "the text is too long to be tokenized: the system gives no thread with a large stack for it"
        ) from None
    return done.result()


def _whole(native: Tokenize, vocab: VocabTable, data: bytes) -> list[int]:
    """Ids of data without safe boundaries: llama.cpp's own, or put together from windows where its recursion would go
    too deep.
    """
    if len(data) <= _DEEPEST_CHARS or len(data.decode()) <= _DEEPEST_CHARS:
        return native(data)
    # A window of a long run comes out as in the whole but near its ends, which the whole does not have. So the last 4
    # KiB of its ids are not trusted: the next window begins before them, where `_seam` finds that both sides agree.
    ids: list[int] = []
    start = 0
    while len(data) - start > _WINDOW_BYTES + _MARGIN_BYTES:
        end = start + _WINDOW_BYTES - (start + _WINDOW_BYTES - len(data)) % _DIGITS_AT_ONCE
        while data[end] & 0xC0 == 0x80:  # inside of a character
            end -= 1
        spelled = native(data[start:end])
        n, length = _seam(native, vocab, data[start:end], spelled)
        ids += spelled[:n]
        start += length
    return ids + native(data[start:])


def _seam(native: Tokenize, vocab: VocabTable, window: bytes, ids: list[int]) -> tuple[int, int]:
    """How many ids of a window stand, and their length in bytes: up to a place from which the rest is tokenized as it
    is here.

    Of the last places before the margin the first that passes is taken, else the last one; the whole window where ids
    are not its bytes.
    """
    # A place passes if what follows it in the window gives the same ids alone: then they do not depend on what stands
    # before it, and the next window, which begins there, gives them too.
    if vocab.join(ids) != window:
        return len(ids), len(window)
    ends = [0]
    for id_ in ids:
        ends.append(ends[-1] + len(vocab.pieces[id_]))
    last = next((k for k in range(len(ids), 0, -1) if ends[k] <= len(window) - _MARGIN_BYTES), 0)
    whole = [k for k in range(last, 0, -1) if ends[k] < len(window) and window[ends[k]] & 0xC0 != 0x80]
    for k in whole[:_N_SEAMS]:
        if native(window[ends[k] :]) == ids[k:]:
            return k, ends[k]
    return (whole[0], ends[whole[0]]) if whole else (len(ids), len(window))


def _cut(data: bytes, cuts: Callable[[bytes], list[int]] | None) -> Iterator[bytes]:
    places = cuts(data) if cuts is not None else []
    return (
        (data[start:end] for start, end in pairwise((0, *places, len(data))) if start < end)
        if places
        else iter((data,))
    )


_DIGITS = re.compile(rb"[0-9]{%d,}" % (2 * _DIGITS_AT_ONCE))
_BLANK_IN_WHITE = re.compile(rb" (?=[\s\x80-\xff])|(?<=[\s\x80-\xff]) ")


def _digit_cuts(data: bytes) -> list[int]:
    """Every 48th digit of long runs, counted from their end: this pre-tokenizer cuts there, as at every third one, but
    looks at all that follow for each of them.
    """
    return [at for run in _DIGITS.finditer(data) for at in sorted(range(run.end(), run.start(), -_DIGITS_AT_ONCE))]


def _blank_cuts(data: bytes) -> list[int]:
    """Around blanks beside other white space: llama.cpp gives up the process where two of them meet."""
    return sorted({place for match in _BLANK_IN_WHITE.finditer(data) for place in match.span()})


_CUTS: dict[str, Callable[[bytes], list[int]]] = {"superbpe": _digit_cuts, "whitespace": _blank_cuts}
"""Pre-tokenizers that need more cuts than safe boundaries, at places where they cut anyway."""


# --- names of markers that stand in text, as letters
#
# llama.cpp searches all text for user-defined tokens, system and user text alike, and would make the ids of them that
# only templates may write. So a name is cut in two, so that there is nothing to find, at a place where nothing depends
# on the other side.


def lettered(tokenize: Tokenize, vocab: VocabTable) -> Tokenize:
    """tokenize, which may write ids of markers (`vocab.shown`), made to spell them."""
    names = [name.decode() for name in vocab.shown.values()]
    if not names:
        return tokenize
    boundaries = Boundaries(vocab)
    cut_in = {name.encode(): _place(name, boundaries) for name in names}
    search = re.compile(longest_of(names).encode()).search

    def spell(data: bytes) -> list[int]:
        match = search(data)
        if match is None:
            return tokenize(data)
        known: dict[bytes, list[int]] = {}
        ids: list[int] = []
        start = 0
        while match is not None:
            end = match.start() + cut_in[match.group()]
            piece = data[start:end]
            if piece not in known:
                known[piece] = spell(piece)  # a shorter name may be left in it
            ids += known[piece]
            start = end
            match = search(data, start)
        return ids + tokenize(data[start:])

    return spell


def _place(name: str, boundaries: Boundaries) -> int:
    """Where the name is cut: at its first safe boundary, so that the letters are those of a vocabulary without it; else
    before its end.
    """
    return next(iter(boundaries.cuts(name.encode())), len(name[:-1].encode()))
