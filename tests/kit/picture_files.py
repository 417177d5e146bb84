"""Files of pictures, small and hostile ones, made on the spot."""

from __future__ import annotations

import base64
import io
import random
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image as PilImage

from kit.bombs import zlib_bomb

SIZE = (6, 4)
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


def pixels(seed: int = 0, size: tuple[int, int] = SIZE) -> PilImage.Image:
    """A picture in RGB, another one for each seed."""
    width, height = size
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return PilImage.fromarray(values, "RGB")


def written(picture: PilImage.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The file."""
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def png(seed: int = 0) -> bytes:
    """The file of `pixels(seed)`."""
    return written(pixels(seed))


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{in_base64(data)}"


def chunk(name: bytes, data: bytes) -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def raw_png(width: int, height: int, depth: int = 8, colour: int = 2, rows: bytes = b"", *more: bytes) -> bytes:
    """A PNG file whose header says so, whatever `rows` holds; more: chunks behind the header."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return PNG_MAGIC + head + b"".join(more) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def raw_gif(width: int, height: int, frame: tuple[int, int, int, int] | None = None) -> bytes:
    """A GIF file with a screen of this size and one frame (left, top, width, height) without rows."""
    left, top, wide, high = frame or (0, 0, width, height)
    screen = struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    place = b"," + struct.pack("<HHHHB", left, top, wide, high, 0)
    return b"GIF89a" + screen + place + b"\x02\x02\x4c\x01\x00;"


def hostile() -> Iterator[tuple[str, bytes]]:
    """Two hundred files, each with a name: broken, cut, of other kinds, or larger than they look."""
    yield from _others()
    yield from _bombs()
    dice = random.Random(53)
    whole = {
        "png": written(pixels(1, (40, 30))),
        "jpeg": written(pixels(2, (40, 30)), "JPEG"),
        "webp": written(pixels(3, (40, 30)), "WEBP"),
        "lossless webp": written(pixels(4, (40, 30)), "WEBP", lossless=True),
        "gif": written(pixels(5, (40, 30)).convert("P"), "GIF"),
        "cmyk": written(pixels(6, (40, 30)).convert("CMYK"), "JPEG"),
        "animated": written(pixels(7), "GIF", save_all=True, append_images=[pixels(8), pixels(9)]),
        "exif": with_exif(written(pixels(10, (40, 30)), "JPEG"), 6),
    }
    for name, data in whole.items():
        for share in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
            yield f"{name}, {share:.0%} of it", data[: int(len(data) * share)]
        for i in range(13):
            broken = bytearray(data)
            for _ in range(1 + i):
                broken[dice.randrange(len(broken))] = dice.randrange(256)
            yield f"{name}, {1 + i} bytes of it wrong", bytes(broken)


def _others() -> Iterator[tuple[str, bytes]]:
    yield "nothing", b""
    yield "text", b"hello, I am a picture"
    yield "zeros", bytes(1000)
    yield "noise", random.Random(1).randbytes(3000)
    yield "svg", b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>"
    yield "html", b"<!doctype html><img src=x onerror=alert(1)>"
    yield "pdf", b"%PDF-1.7\n1 0 obj\n"
    yield "eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) run\n"
    yield "zip", b"PK\x03\x04" + bytes(60)
    for kind in ("BMP", "TIFF", "ICO", "PPM", "TGA", "PCX", "JPEG2000"):
        yield kind, written(pixels(0, (16, 16)), kind)
    for magic in (
        PNG_MAGIC,
        b"GIF89a",
        b"\xff\xd8\xff\xe0",
        b"RIFF\xff\xff\xff\xffWEBP",
        b"RIFF\x04\x00\x00\x00WEBPVP8X",
    ):
        yield f"only {magic[:6]!r}", magic


def _bombs() -> Iterator[tuple[str, bytes]]:
    for size in ((0, 0), (0, 9), (9, 0), (2**31 - 1, 2**31 - 1), (65535, 65535), (1, 20000), (20000, 1), (8000, 8000)):
        yield f"png that says {size}", raw_png(*size)
    yield "a png of 64 million equal pixels", raw_png(8000, 8000, 1, 0, bytes(1001 * 8000))
    yield "a png with too few rows", raw_png(4000, 4000, 8, 2, bytes(100))
    yield "a png with a header of 2 GiB", PNG_MAGIC + b"\x7f\xff\xff\xffIHDR"
    yield (
        "a png with a text of 100 MiB",
        raw_png(2, 2, 8, 2, bytes(14), chunk(b"zTXt", b"a\0\0" + zlib_bomb(100))),
    )
    yield (
        "a png with a profile of 100 MiB",
        raw_png(2, 2, 8, 2, b"", chunk(b"iCCP", b"a\0\0" + zlib_bomb(100))),
    )
    yield "a png with an unknown colour", raw_png(4, 4, 8, 5, bytes(100))
    yield "a png with an impossible depth", raw_png(4, 4, 3, 2, bytes(100))
    for size in ((0, 0), (65535, 65535), (9, 0)):
        yield f"gif that says {size}", raw_gif(*size)
    yield "a gif whose frame is larger than its screen", raw_gif(2, 2, (0, 0, 60000, 60000))
    yield "a gif whose frame is elsewhere", raw_gif(2, 2, (60000, 60000, 5000, 5000))
    jpeg = bytearray(written(pixels(0, (16, 16)), "JPEG"))
    at = jpeg.index(b"\xff\xc0")
    for size in ((0, 0), (65535, 65535), (16, 65535)):
        jpeg[at + 5 : at + 9] = struct.pack(">HH", *size)
        yield f"jpeg that says {size}", bytes(jpeg)
    webp = bytearray(written(pixels(0, (16, 16)).convert("RGBA"), "WEBP", lossless=True))
    webp[21:25] = b"\xff\xff\xff\x0f"
    yield "webp that says 16384 x 16384", bytes(webp)


def with_exif(jpeg: bytes, orientation: int) -> bytes:
    """The JPEG with this orientation in its EXIF."""
    picture = PilImage.open(io.BytesIO(jpeg))
    exif = picture.getexif()
    exif[0x0112] = orientation
    return written(picture, "JPEG", exif=exif, quality=95)
