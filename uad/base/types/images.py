"""Pictures as a model gets them, and where those of a prompt stand in it.

A prompt's ids are counted as positions: `ids[i]` is read at position i. An image takes as many positions as its
projector says, and each of them has a placeholder: a negative id, of its own for every image and every place in it. So
the same image gives the same ids, another one gives others, and no id of text is among them. Where positions have two
dimensions (M-RoPE), an image has more rows of embeddings than positions: 6 by 4 rows take 6 positions.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from uad.base.errors import DecodeError

IMAGE_PLACE: Final = f"<__image_{secrets.token_hex(16)}__>"
"""Stands for an image in the text of prompts, inside of this process. It is drawn at random at its start and shown to
nobody, so that no text of a request holds it.
"""


class Pixels:
    """The bytes of a picture, row by row from the top, until they are freed. From any thread.

    They are freed by `free`, and where `lend` was called once all those have read them that they were lent to.
    """

    __slots__ = ("_lock", "_n_readers", "_rgb")

    def __init__(self, rgb: bytes) -> None:
        self._lock = threading.Lock()
        self._n_readers = 0
        self._rgb: bytes | None = rgb

    @property
    def n_bytes(self) -> int:
        """How many are held."""
        rgb = self._rgb
        return 0 if rgb is None else len(rgb)

    @property
    def rgb(self) -> bytes:
        """Three bytes for each pixel. Raises DecodeError once they are freed."""
        rgb = self._rgb
        if rgb is None:
            raise DecodeError("the pixels of an image are freed, and it has to be read again")
        return rgb

    def lend(self) -> None:
        """One more request reads them."""
        with self._lock:
            self._n_readers += 1

    def was_read(self) -> None:
        """One request needs them no more."""
        with self._lock:
            self._n_readers -= 1
            if self._n_readers == 0:
                self._rgb = None

    def free(self) -> None:
        """Nobody needs them."""
        self._rgb = None


@dataclass(frozen=True, slots=True)
class Image:
    """A picture. Those of the same digest are equal."""

    width: int
    height: int
    digest: str
    """SHA-256 of width, height and rgb, in hexadecimal: the same picture has the same."""
    pixels: Pixels = field(repr=False, compare=False)

    @classmethod
    def of(cls, width: int, height: int, rgb: bytes) -> Image:
        """The picture of these pixels, of which `rgb` holds three bytes each."""
        digest = hashlib.sha256(width.to_bytes(4, "little") + height.to_bytes(4, "little"))
        digest.update(rgb)
        return cls(width, height, digest.hexdigest(), Pixels(rgb))

    @property
    def rgb(self) -> bytes:
        """The colours of the pixels, as `Pixels` has them."""
        return self.pixels.rgb


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
    """A part of an image as a model reads it: text ids around the image, with n_rows 0, or the placeholders of a slice
    with n_rows rows of embeddings.
    """

    ids: tuple[int, ...]
    n_rows: int = 0


def placeholders(digest: str, part: int, n: int) -> tuple[int, ...]:
    """The ids of one slice of an image, which has n positions."""
    first = int.from_bytes(hashlib.sha256(f"{digest} {part}".encode()).digest()[:7], "little")
    return tuple(range(-1 - first, -1 - first - n, -1))


def whole_images(placed: Sequence[PlacedImage], n: int) -> int:
    """n, or where the image begins that the first n ids would cut in two."""
    return next((image.start for image in placed if image.start < n < image.end), n)


def n_more_cells(placed: Sequence[PlacedImage], n: int) -> int:
    """Cells of the KV that the first n ids take beyond n."""
    return sum(image.n_rows - (image.end - image.start) for image in placed if image.end <= n)
