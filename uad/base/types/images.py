"""Pictures as a model gets them, and where those of a prompt stand in it.

A prompt's ids are counted as positions: `ids[i]` is read at position i. An image takes as many positions as its
projector says, and each of them has a placeholder: a negative id, of its own for every image and every place in it. So
the same image gives the same ids, another one gives others, and no id of text is among them. Where positions have two
dimensions (M-RoPE), an image has more rows of embeddings than positions: 6 by 4 rows take 6 positions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Image:
    """A picture: `rgb` holds width * height * 3 bytes, row by row from the top."""

    width: int
    height: int
    rgb: bytes = field(repr=False)
    digest: str
    """SHA-256 of width, height and rgb, in hexadecimal: the same picture has the same."""

    @classmethod
    def of(cls, width: int, height: int, rgb: bytes) -> Image:
        """The picture of these pixels."""
        size = width.to_bytes(4, "little") + height.to_bytes(4, "little")
        return cls(width, height, rgb, hashlib.sha256(size + rgb).hexdigest())


@dataclass(frozen=True, slots=True)
class PlacedImage:
    """An image in a prompt, or one of the slices that it was cut into: `part` counts them. Its placeholders stand at
    ids[start:end]; it has n_rows rows of embeddings, each of which takes a cell of the KV.
    """

    image: Image
    part: int
    start: int
    end: int
    n_rows: int


@dataclass(frozen=True, slots=True)
class ImagePart:
    """What an image is to a model: text ids that stand around it, with n_rows 0, or the placeholders of a slice with
    n_rows rows of embeddings.
    """

    ids: tuple[int, ...]
    n_rows: int = 0


def placeholders(digest: str, part: int, n: int) -> tuple[int, ...]:
    """The ids of one slice of an image, which has n positions."""
    first = int.from_bytes(hashlib.sha256(f"{digest} {part}".encode()).digest()[:7], "little")
    return tuple(range(-1 - first, -1 - first - n, -1))


def whole_images(placed: Sequence[PlacedImage], n: int) -> int:
    """n, or where the image begins that the first n ids would cut in two."""
    return next((one.start for one in placed if one.start < n < one.end), n)


def n_more_cells(placed: Sequence[PlacedImage], n: int) -> int:
    """Cells of the KV that the first n ids take beyond n."""
    return sum(one.n_rows - (one.end - one.start) for one in placed if one.end <= n)
