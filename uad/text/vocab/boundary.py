"""Safe boundaries: places in a byte string where tokenization may be cut, because nothing on one side can depend on the
other.

A cut is safe under two conditions. (1) No token of the vocabulary has the neighbours of the cut next to each other, so
no merge can cross it. (2) Every pre-tokenizer begins a new piece there, or splits the two sides as it splits the whole.
That holds where a letter or digit meets ASCII white space or punctuation (but not an apostrophe: some
pre-tokenizers tie "'s" to the word before it), where anything but white space meets a space, and within a run of Han
and Kana or of Hangul. All that decides lies before the cut, except the character that follows it.
tests/model/test_vocab_boundary.py holds the claim against llama.cpp for every vocabulary at hand.
"""

from __future__ import annotations

import re
import string
from functools import cached_property

import numpy as np

from uad.text.vocab.table import VocabTable, is_text

_SAFE, _AFTER_LETTER, _BEFORE_SPACE, _CJK = 1, 2, 3, 4
_WORD = (string.ascii_letters + string.digits).encode()
_SPACE = b" \t\n\r"
_PUNCT = string.punctuation.encode()
_HIGH = bytes(range(0x80, 0xC0))
_LATE_UPPER = re.compile(rb"[\xe3-\xed][\x80-\xbf]{2}[A-Z]")
_JUNCTION = re.compile(rb"(?<=[\x80-\xbf])[\xe3-\xed]")
_NUMPY_PAYS = 96
_LONG_ENOUGH = 12


class Boundaries:
    """The safe cuts of one vocabulary: a table over pairs of bytes, and the pairs of East Asian characters that its
    tokens contain.
    """

    def __init__(self, vocab: VocabTable) -> None:
        self._vocab = vocab
        table = np.zeros((256, 256), np.uint8)
        for a in _WORD:
            table[a, list(_SPACE + _PUNCT)] = _SAFE
        for a in _HIGH:
            table[a, list(_SPACE + _PUNCT)] = _AFTER_LETTER
            table[a, ord(" ")] = _BEFORE_SPACE
        table[list(_PUNCT), ord(" ")] = _SAFE
        table[:, ord("'")] = 0
        # Neighbours inside of a token may not be parted. All pieces are joined end to end; of "ab" and "cd", which give
        # "abcd", a-b and c-d are inside, and b-c, where one ends and the next begins, is not.
        joined = np.frombuffer(b"".join(vocab.pieces), np.uint8)
        inner = np.ones(max(len(joined) - 1, 0), bool)
        inner[np.cumsum([len(piece) for piece in vocab.pieces if piece])[:-1] - 1] = False
        table[joined[:-1][inner], joined[1:][inner]] = 0
        table[list(_HIGH), 0xE3:0xEE] = _CJK
        self._table = table
        self._flat = table.tobytes()

    def cuts(self, data: bytes) -> list[int]:
        """Offsets 0 < i < len(data) at which data may be cut, in order; in East Asian text not all, but enough to keep
        words short.
        """
        cuts: list[int] = []
        last = 0
        for i, kind in self._marked(data):
            if kind == _SAFE or ((kind != _CJK or i - last >= _LONG_ENOUGH) and self._judge(data, i, kind)):
                cuts.append(i)
                last = i
        return cuts

    def _marked(self, data: bytes) -> list[tuple[int, int]]:
        if len(data) > _NUMPY_PAYS:
            view = np.frombuffer(data, np.uint8)
            kinds = self._table[view[:-1], view[1:]]
            at = np.flatnonzero(kinds)
            return list(zip((at + 1).tolist(), kinds[at].tolist(), strict=True))
        flat = self._flat
        return [(i, kind) for i in range(1, len(data)) if (kind := flat[data[i - 1] * 256 + data[i]])]

    def is_cut(self, data: bytes | bytearray, i: int) -> bool:
        """Whether data may be cut at offset i, 0 < i < len(data). Needs the character before i and the one after it."""
        kind = self._flat[data[i - 1] * 256 + data[i]]
        return kind == _SAFE or (kind != 0 and self._judge(data, i, kind))

    def last(self, data: bytes | bytearray, limit: int, floor: int = 0) -> int:
        """The last safe cut in floor < i <= limit; floor if there is no such cut."""
        flat = self._flat
        for i in range(min(limit, len(data) - 1), floor, -1):
            kind = flat[data[i - 1] * 256 + data[i]]
            if kind and (kind == _SAFE or self._judge(data, i, kind)):
                return i
        return floor

    def _judge(self, data: bytes | bytearray, i: int, kind: int) -> bool:
        """The kinds that depend on a whole character, which ends before offset i."""
        # Before the space in "é " stands the byte A9, in a no-break space A0: both are second bytes, and only with C3
        # and C2 before them it shows that one is a letter, which ends there, and the other is white space, which goes
        # on.
        before = _character_before(data, i)
        if kind == _BEFORE_SPACE:
            return before != "" and not before.isspace()
        if kind == _AFTER_LETTER:
            # letters that every pre-tokenizer takes for letters: Latin, Greek, Cyrillic, Kana, Han, Hangul
            return before.isalpha() and (
                "\u00c0" <= before <= "\u024f" or "\u0370" <= before <= "\u052f" or _script(before) != 0
            )
        after = bytes(data[i : i + 3])
        if len(after) < 3 or _script(before) == 0 or _script(before) != _script(after.decode(errors="replace")):
            return False
        left, junctions = bytes(data[i - 3 : i]), self.junctions
        sizes = (1, 2, 3)
        return junctions is not None and not any((left[-k:], after[:n]) in junctions for k in sizes for n in sizes)

    @cached_property
    def junctions(self) -> frozenset[tuple[bytes, bytes]] | None:
        """The bytes on both sides of the places in tokens where an East Asian character begins, three at most.

        None where the script's runs cannot be cut at all. A pre-tokenizer that splits by case ends a word between such
        a character and a capital letter only if a small letter came before. Some vocabularies have tokens for which
        that makes a difference.
        """
        tied = [piece for piece in self._vocab.pieces if _LATE_UPPER.search(piece)]
        if tied and not any(map(self._is_tied_after_small_letter, tied)):
            return None
        # A token of the three characters A B C has the junctions A|B and B|C, so neither pair is cut in any text. Of a
        # token with parts of characters, such as the last byte of A with B, the pair is (that byte, B): so `_judge`
        # tries one to three bytes on each side.
        pairs: set[tuple[bytes, bytes]] = set()
        for piece in self._vocab.pieces:
            if not piece.isascii():
                for match in _JUNCTION.finditer(piece):
                    i = match.start()
                    pairs.add((piece[max(i - 3, 0) : i], piece[i : i + 3]))
        return frozenset(pairs)

    def _is_tied_after_small_letter(self, piece: bytes) -> bool:
        ids = self._vocab.tokenize(b"a" + piece) if is_text(piece) else []
        return any(_LATE_UPPER.search(self._vocab.pieces[id_]) for id_ in ids)


def _character_before(data: bytes | bytearray, i: int) -> str:
    """The character that ends at offset i; empty where no whole character ends there."""
    for n in range(1, min(4, i) + 1):
        if data[i - n] & 0xC0 != 0x80:
            try:
                return bytes(data[i - n : i]).decode()
            except UnicodeDecodeError:
                return ""
    return ""


def _script(character: str) -> int:
    """1 for Han and the letters of Kana, 2 for Hangul syllables, 0 for anything else."""
    if "\u4e00" <= character <= "\u9fa5" or "\u3041" <= character <= "\u3096" or "\u30a1" <= character <= "\u30fa":
        return 1
    return 2 if "\uac00" <= character <= "\ud7a3" else 0
