"""Draft bytes to target ids: the right continuation of ids that are already committed. Knows no model, no
probabilities, no rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uad.text.vocab.edge import RightEdge
from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import partial_length

_TAIL_IDS = (12, 48)
_SPACES = b" \t\r\n"
MIN_TRUST = 0.85
"""Ids that are less sure than this to be cut as the target would cut them are not worth the target's time, unless a
policy knows better.
"""


@dataclass(frozen=True, slots=True)
class Translation:
    """Target ids, and for each the probability that the target cuts there, given that it writes these bytes; trust
    never rises.
    """

    ids: tuple[int, ...] = ()
    trust: tuple[float, ...] = ()

    def trusted(self, least: float = MIN_TRUST) -> list[int]:
        """The leading ids that can be trusted at least so far."""
        return [id_ for id_, trust in zip(self.ids, self.trust, strict=True) if trust >= least]


@dataclass(frozen=True, slots=True)
class _Seam:
    """The committed ids from a safe boundary on (as far as one was found), with their bytes."""

    data: bytes
    ids: list[int]


class Translator:
    """Turns bytes that follow committed target ids into candidate target ids.

    `draft` encodes with the vocabulary that the bytes come from. Without it nothing is known about where a draft would
    stop, and all ids are trusted.
    """

    def __init__(self, target: Encoder, draft: Encoder | None = None) -> None:
        self._encoder = target
        self._pieces = target.vocab.pieces
        self._edge = RightEdge(target, draft) if draft else None

    def translate(self, committed: Sequence[int], data: bytes, complete: bool = False) -> Translation:
        """Ids for data, cut as the target would cut them after `committed`, of which only the last ids are read.

        The tail is encoded together with data from a safe boundary; where that does not run through the committed ids,
        data is encoded alone. complete: nothing follows data (the draft ended its turn); else ids whose cut depends on
        what follows have less trust or are missing. The ids' bytes are a prefix of data.
        """
        if not data:
            return Translation()
        # " inter" is committed, and the draft goes on with "esting ways". From the safe boundary before " inter" the
        # stream is " interesting ways", which the target would cut into [ interesting][ ways]: that does not run
        # through the committed id, which stays as it is. So "esting ways" is encoded alone: [est][ing][ ways]. Where
        # the draft goes on with " ways", the stream gives [ inter][ ways], and what follows the committed ids is the
        # answer.
        seam = self._seam(committed)
        judged = self._judge(seam.data + data, complete, committed)
        n = len(seam.ids)
        if [id_ for id_, _ in judged[:n]] != seam.ids:
            judged, n = self._judge(data, complete, committed), 0
        return self._exact(judged[n:], data)

    def forget(self) -> None:
        """Empty the memory of right edges."""
        if self._edge is not None:
            self._edge.forget()

    def _judge(self, stream: bytes, complete: bool, committed: Sequence[int]) -> list[tuple[int, float]]:
        """Ids for stream with their trust."""
        n_partial = 0 if complete else partial_length(stream)
        ids = self._encoder.encode(stream[: len(stream) - n_partial])
        if complete or self._edge is None:
            return [(id_, 1.0) for id_ in ids]
        return self._edge.judge(ids, stream, n_partial, self._indent(stream, committed))

    def _indent(self, stream: bytes, committed: Sequence[int]) -> bytes:
        """White space at the beginning of the last line that has anything else in it; asked only where stream ends in
        white space.
        """
        if stream[-1] not in _SPACES:
            return b""
        text = stream.rstrip(_SPACES)
        if b"\n" not in text:
            text = b"".join([self._pieces[id_] for id_ in committed[-_TAIL_IDS[1] :]]) + stream
            text = text.rstrip(_SPACES)
        line = text[text.rfind(b"\n") + 1 :]
        return line[: len(line) - len(line.lstrip(b" \t"))]

    def _seam(self, committed: Sequence[int]) -> _Seam:
        """The last committed ids from a safe boundary on. Where none is near: from after a special, or a few dozen
        ids.
        """
        ids: list[int] = []
        data = b""
        for n in _TAIL_IDS:
            ids = list(committed[-n:])
            pieces = [self._pieces[id_] for id_ in ids]
            after_special = next((i + 1 for i in range(len(ids) - 1, -1, -1) if not pieces[i]), 0)
            ids, data = ids[after_special:], b"".join(pieces[after_special:])
            at = len(data)
            for k in range(len(ids) - 1, 0, -1):
                at -= len(self._pieces[ids[k]])
                if self._encoder.boundaries.is_cut(data, at):
                    return _Seam(data[at:], ids[k:])
            if after_special:
                break
        return _Seam(data, ids)

    def _exact(self, judged: Sequence[tuple[int, float]], data: bytes) -> Translation:
        """A translation as far as the ids' bytes are a prefix of data (all of them, but for bytes without a token)."""
        at = 0
        for k, (id_, _) in enumerate(judged):
            piece = self._pieces[id_]
            if data[at : at + len(piece)] != piece:
                judged = judged[:k]
                break
            at += len(piece)
        return Translation(tuple(id_ for id_, _ in judged), tuple(trust for _, trust in judged))
