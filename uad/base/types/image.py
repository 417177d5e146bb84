"""A picture as a model gets it."""

from __future__ import annotations

import hashlib
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
