"""Pixels of the files of pictures, within bounds of memory and time. **The only importer of PIL.**

Files come from anywhere: their size is checked by their header, before any pixel is decoded. Parts that no pixel
depends on are passed over, and a file that breaks off is read as far as it goes (`picture_formats`). Large pictures
are made smaller while they are decoded. All of it is for worker threads.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from math import isqrt
from typing import Any, Final

import numpy as np
from PIL import Image as PilImage
from PIL import ImageFile

from uad.base.checkpoint import DroppedError, checkpoint
from uad.base.errors import InvalidRequestError
from uad.base.types import Image
from uad.http.requests.picture_formats import (
    FORMATS,
    UnreadableError,
    format_of,
    orientation_in,
    prepared,
    webp_anew,
    webp_size,
)

MAX_SIDE: Final = 65535
MAX_PIXELS: Final = 1 << 28
"""Pixels of a file that is made smaller while it is read, a JPEG in one scan: 268 million. Phones reach 200."""
MAX_WHOLE_PIXELS: Final = 1 << 26
"""Pixels of a file that is decoded as a whole: 67 million."""
MAX_WEBP_PIXELS: Final = 1 << 25
"""Pixels of a WebP file, of which its library holds several copies."""
MAX_SHOWN_PIXELS: Final = 1 << 24
"""Pixels of a picture as a model gets it: 17 million, three times what any known one looks at."""
MAX_SHOWN_SIDE: Final = 1 << 14
MAX_ALL_PIXELS: Final = 1 << 27
"""Pixels of all pictures of a request as a model gets them."""
BYTES_PER_PIXEL: Final = 3
MAX_SCANNED_PIXELS: Final = 1 << 31
"""Pixels times scans of a JPEG, which each go over the whole picture: seconds."""
_STRIP_PIXELS: Final = 1 << 20
_WHITE: Final = (255, 255, 255)
_TURNS: Final = {
    2: PilImage.Transpose.FLIP_LEFT_RIGHT,
    3: PilImage.Transpose.ROTATE_180,
    4: PilImage.Transpose.FLIP_TOP_BOTTOM,
    5: PilImage.Transpose.TRANSPOSE,
    6: PilImage.Transpose.ROTATE_270,
    7: PilImage.Transpose.TRANSVERSE,
    8: PilImage.Transpose.ROTATE_90,
}
"""Turns that make a picture upright, by the orientation in its EXIF."""
_MOST_PER_BYTE: Final = {"PNG": 8448, "JPEG": 2048, "GIF": 4096, "BMP": 16, "PPM": 16, "TGA": 256}
"""Pixels that a byte of a large file can stand for, with room for one that breaks off."""
_HELD: Final = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2}
"""Bytes of a pixel while a file is decoded; 4 in all other modes."""
_WEBP_HELD: Final = 20
_BUFFERED: Final = 6
"""Bytes of a pixel's coefficients, where a JPEG comes in several scans."""

_log = logging.getLogger("uad")

PilImage.MAX_IMAGE_PIXELS = MAX_PIXELS
ImageFile.LOAD_TRUNCATED_IMAGES = True  # what is there of a file is read
warnings.filterwarnings("error", category=PilImage.DecompressionBombWarning)  # it is an error from there on


@dataclass(slots=True)
class OpenedPicture:
    """A picture by its header. It holds the file until it is decoded."""

    where: str
    kind: str
    size: tuple[int, int]
    mode: str
    is_buffered: bool
    """Whether its decoder keeps more than the pixels."""
    turn: PilImage.Transpose | None
    """The turn that makes it upright; None if it is already."""
    _file: tuple[PilImage.Image, bytes] | None

    @property
    def n_pixels(self) -> int:
        """Pixels in the file."""
        return self.size[0] * self.size[1]

    def take(self) -> tuple[PilImage.Image, bytes]:
        """The library's picture and the file, which only the caller holds from now on."""
        assert self._file is not None, "a picture is decoded once"
        file, self._file = self._file, None
        return file

    def n_decoding(self, most: int) -> int:
        """Bytes that are held while it is decoded to `most` pixels at most, about."""
        n = self.n_pixels
        n_copies = (self.turn is not None) + (self.mode != "RGB" or _factor(self.size, most) > 1)
        copied = 4 * n_copies * min(n, most)
        if self.kind == "WEBP":
            return n * _WEBP_HELD + copied
        if self.kind == "JPEG":
            return 4 * (n // _scale(self.size, most) ** 2) + n * _BUFFERED * self.is_buffered + copied
        return n * _HELD.get(self.mode, 4) + copied


def opened(data: bytes, where: str) -> OpenedPicture:
    """The file by its header, with no pixel decoded. Raises InvalidRequestError for what is no picture of the known
    formats, and for one that is too large.
    """
    if not data:
        raise InvalidRequestError.at(where, "is empty")
    kind = format_of(data)
    if kind not in FORMATS:
        what = f"is a file of the kind {kind}" if kind else "is no image that can be read"
        raise InvalidRequestError.at(where, f"{what}; send one of {', '.join(FORMATS)}")
    try:
        needed = prepared(data, kind)
        picture, file = _with_header(needed.data, kind, where)
    except InvalidRequestError:
        raise
    except Exception as error:
        raise _broken(where, kind, error) from None
    turn = _TURNS.get(orientation_in(needed.exif))
    opened_picture = OpenedPicture(where, kind, picture.size, picture.mode, needed.is_buffered, turn, (picture, file))
    _check_size(opened_picture)
    _check_work(opened_picture, len(data), needed.n_scans)
    tiles: Any = getattr(picture, "tile", ())
    if kind in ("BMP", "PPM") and any(tile[0] != "raw" for tile in tiles):
        raise InvalidRequestError.at(where, f"is a {kind} file of a rare kind; send it as PNG")
    return opened_picture


def _with_header(data: bytes, kind: str, where: str) -> tuple[PilImage.Image, bytes]:
    """The library's picture, and the file that it is of. The size of a WebP is checked before the library gets it,
    which makes room for all pixels at once.
    """
    if kind == "WEBP":
        _check_bounds(where, *webp_size(data), MAX_WEBP_PIXELS)
    try:
        return PilImage.open(BytesIO(data), formats=(kind,)), data
    except Exception:
        if kind != "WEBP":
            raise
        return _anew(data, where)


def _anew(data: bytes, where: str) -> tuple[PilImage.Image, bytes]:
    """The same of a WebP whose container is broken. Its picture may be larger than the container said."""
    anew = webp_anew(data)
    _check_bounds(where, *webp_size(anew), MAX_WEBP_PIXELS)
    return PilImage.open(BytesIO(anew), formats=("WEBP",)), anew


def _check_size(picture: OpenedPicture) -> None:
    most = MAX_PIXELS if picture.kind == "JPEG" and not picture.is_buffered else MAX_WHOLE_PIXELS
    _check_bounds(picture.where, *picture.size, MAX_WEBP_PIXELS if picture.kind == "WEBP" else most)


def _check_bounds(where: str, width: int, height: int, most: int) -> None:
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE and width * height <= most):
        raise InvalidRequestError.at(
            where,
            f"an image of this kind has at most {most} pixels, and {MAX_SIDE} on a side; this is {width} x {height}",
        )


def _check_work(picture: OpenedPicture, n_bytes: int, n_scans: int) -> None:
    """Raises InvalidRequestError for files that are much more work than their size lets expect."""
    per_byte = _MOST_PER_BYTE.get(picture.kind)
    if per_byte is not None and picture.n_pixels > max(MAX_SHOWN_PIXELS, n_bytes * per_byte):
        raise InvalidRequestError.at(
            picture.where, f"is a broken {picture.kind} file: it has few bytes for its many pixels"
        )
    if picture.n_pixels * n_scans > MAX_SCANNED_PIXELS:
        raise InvalidRequestError.at(picture.where, f"is a JPEG of {n_scans} scans, which are too many; save it again")


def most_pixels(pictures: Sequence[OpenedPicture]) -> int:
    """How many pixels each picture of a request may have for the model."""
    if sum(min(picture.n_pixels, MAX_SHOWN_PIXELS) for picture in pictures) <= MAX_ALL_PIXELS:
        return MAX_SHOWN_PIXELS
    return MAX_ALL_PIXELS // len(pictures)


def decoded(opened_picture: OpenedPicture, most: int = MAX_SHOWN_PIXELS) -> Image:
    """The picture as a model gets it: its first frame, upright as its EXIF says, transparent parts on white, with
    `most` pixels at most. The file is let go. Raises InvalidRequestError where it is broken.
    """
    checkpoint()
    picture, data = opened_picture.take()
    try:
        try:
            return _decoded(picture, opened_picture, most)
        except Exception:
            if opened_picture.kind != "WEBP":
                raise
            return _decoded(_anew(data, opened_picture.where)[0], opened_picture, most)
    except (DroppedError, InvalidRequestError):
        raise
    except Exception as error:
        raise _broken(opened_picture.where, opened_picture.kind, error) from None


def _decoded(picture: PilImage.Image, opened: OpenedPicture, most: int) -> Image:
    with picture:
        if opened.kind == "JPEG":
            scale, (width, height) = _scale(picture.size, most), picture.size
            picture.draft(None, (max(width // scale, 1), max(height // scale, 1)))
        picture.load()
        checkpoint()
        flat = _flat(picture, _factor(picture.size, most), opened.kind in ("BMP", "TGA"))
        if flat is not picture:
            picture.close()
        if opened.turn is not None:
            flat = flat.transpose(opened.turn)
        return Image.of(flat.width, flat.height, flat.tobytes())


def _factor(size: tuple[int, int], most: int) -> int:
    """The divisor of both sides that leaves `most` pixels at most."""
    width, height = size
    n = max(isqrt(width * height // most), -(-max(size) // MAX_SHOWN_SIDE), 1)
    while -(-width // n) * -(-height // n) > most:
        n += 1
    return n


def _scale(size: tuple[int, int], most: int) -> int:
    """The same, of what a decoder of JPEG can do."""
    factor = _factor(size, most)
    return next((scale for scale in (1, 2, 4) if scale >= factor), 8)


def _flat(picture: PilImage.Image, factor: int, is_opaque: bool) -> PilImage.Image:
    """In RGB, with 8 bits for each, and its sides divided. It is made in strips, so that little is held twice."""
    is_plain = picture.mode == "RGB" and not picture.has_transparency_data
    if is_plain and factor == 1:
        return picture
    width, height = picture.size
    flat = PilImage.new("RGB", (-(-width // factor), -(-height // factor)))
    n_rows = factor * max(_STRIP_PIXELS // (width * factor), 1)
    convert = partial(PilImage.Image.convert, mode="RGB") if is_opaque else _in_rgb
    for top in range(0, height, n_rows):
        checkpoint()
        strip = convert(picture.crop((0, top, width, min(top + n_rows, height))))
        flat.paste(strip.reduce(factor) if factor > 1 else strip, (0, top // factor))
    return flat


def _in_rgb(picture: PilImage.Image) -> PilImage.Image:
    if picture.mode.startswith(("I", "F")):  # 16 bits of grey: the upper eight count, as for colours
        deep = np.clip(np.asarray(picture), 0, 0xFFFF).astype(np.uint16)
        return PilImage.fromarray((deep >> 8).astype(np.uint8)).convert("RGB")
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    clear = picture.convert("RGBA")
    flat = PilImage.new("RGB", clear.size, _WHITE)
    flat.paste(clear, mask=clear.getchannel("A"))
    return flat


def _broken(where: str, kind: str, error: Exception) -> InvalidRequestError:
    _log.debug("%s: a file of the kind %s could not be read", where, kind, exc_info=error)
    if isinstance(error, PilImage.DecompressionBombError | PilImage.DecompressionBombWarning):
        return InvalidRequestError.at(where, f"an image has at most {MAX_PIXELS} pixels; this one has more")
    why = str(error) if isinstance(error, UnreadableError) else "its pixels cannot be decoded"
    return InvalidRequestError.at(where, f"is a {kind} file that cannot be read: {why}; save it again, or send another")
