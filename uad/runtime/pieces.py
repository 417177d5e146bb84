"""Long text to ids in pieces that end at safe boundaries: other threads run between them, and nobody's text ends
early.
"""

from __future__ import annotations

from uad.checkpoint import checkpoint
from uad.errors import InvalidRequestError
from uad.vocab.encode import Encoder

PIECE = 1 << 16  # bytes
# bytes without a safe boundary; whatever is done with them stops other threads for a tenth of a second
LONGEST = 1 << 20


def encode_in_pieces(encoder: Encoder, data: bytes) -> list[int]:
    """What `encoder.encode(data)` gives. Raises InvalidRequestError where there is no safe boundary for a megabyte."""
    if len(data) <= PIECE:
        return encoder.encode(data)
    ids: list[int] = []
    start = 0
    while start < len(data):
        checkpoint()
        end = _end(encoder, data, start)
        ids += encoder.encode(data[start:end])
        start = end
    return ids


def _end(encoder: Encoder, data: bytes, start: int) -> int:
    """The last safe boundary within a piece, or within twice of one and so on."""
    floor, limit = start, start + PIECE
    while limit < len(data):
        cut = encoder.boundaries.last(data, limit, floor)
        if cut > floor:
            return cut
        if limit - start >= LONGEST:
            raise InvalidRequestError(
                f"the text holds {LONGEST} bytes without white space or punctuation; it is not tokenized"
            )
        floor, limit = limit, limit + (limit - start)
    return len(data)
