"""Files of pictures by their bytes: which format one has, and what of it is needed for its pixels. Knows no library.

Viewers pass over damage that no pixel depends on: checksums, texts, colour profiles, dates, what stands after the end.
A decoder that checks all of it refuses such files. So it gets the file without that.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "PPM", "TGA")
"""Formats that are read."""
PNG_MAGIC: Final = b"\x89PNG\r\n\x1a\n"
_MAGIC: Final = (
    (0, PNG_MAGIC, "PNG"),
    (0, b"\xff\xd8", "JPEG"),
    (8, b"WEBP", "WEBP"),
    (0, b"GIF8", "GIF"),
    (0, b"BM", "BMP"),
    *((0, b"P%d" % kind, "PPM") for kind in (4, 5, 6)),
    (0, b"P1", "plain PBM"),
    (0, b"P2", "plain PGM"),
    (0, b"P3", "plain PPM"),
    (0, b"P7", "PAM"),
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (0, b"8BPS", "PSD"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"\0\0\0\x0cJXL ", "JPEG XL"),
    (0, b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (0, b"\xff\x4f\xff\x51", "JPEG 2000"),
    (0, b"qoif", "QOI"),
    (0, b"DDS ", "DDS"),
    (0, b"icns", "ICNS"),
    (0, b"\x76\x2f\x31\x01", "OpenEXR"),
    (0, b"#?RADIANCE", "Radiance HDR"),
    (0, b"%PDF", "PDF"),
    (0, b"%!PS", "PostScript"),
    (0, b"\x0a\x05\x01", "PCX"),
    (0, b"PK\x03\x04", "ZIP"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"\x1a\x45\xdf\xa3", "Matroska"),
    (0, b"OggS", "Ogg"),
)
"""Where the first bytes of a format stand, and what it is called."""
_BRANDS: Final = {
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), "HEIC"),
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
    **dict.fromkeys((b"crx ",), "CR3"),
}
_WORDS: Final = ((b"<svg", "SVG"), (b"<html", "HTML"), (b"<!doctype html", "HTML"))
_HEAD_BYTES: Final = 1024
"""Bytes that are looked at for words."""


class UnreadableError(Exception):
    """Why no pixel of a file can be read."""


def format_of(data: bytes) -> str:
    """The format of a file by its first bytes: one of `FORMATS`, or the name of another; empty if unknown."""
    for at, magic, name in _MAGIC:
        if data.startswith(magic, at) and (name != "WEBP" or data.startswith(b"RIFF")):
            return name
    if data.startswith(b"ftyp", 4):
        return _BRANDS.get(data[8:12], "MP4")
    head = data[:_HEAD_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith(b"<"):
        return next((name for word, name in _WORDS if word in head), "XML")
    if _is_targa(data):
        return "TGA"
    is_icon = data.startswith((b"\0\0\1\0", b"\0\0\2\0")) and data[4:6] > b"\0\0"
    return "ICO" if is_icon else ""


def _is_targa(data: bytes) -> bool:
    """Whether a header without first bytes of its own makes sense, and a row of pixels follows: it may break off."""
    if len(data) < 18:
        return False
    n_name, has_map, kind = data[0], data[1], data[2]
    _, n_colours, map_bits, _, _, width, height, bits, flags = struct.unpack_from("<HHBHHHHBB", data, 3)
    depths = {1: (8,), 2: (16, 24, 32), 3: (8, 16)}.get(kind & 7, ())
    if has_map != (kind & 7 == 1) or kind & ~8 not in (1, 2, 3) or bits not in depths or not width * height:
        return False
    if flags & 0xC0 or (has_map and map_bits not in (16, 24, 32)):
        return False
    n_head = 18 + n_name + (n_colours * map_bits // 8 if has_map else 0)
    # of a compressed one only the least is known: a run of 128 pixels has a byte and a pixel
    n_row = -(-width // 128) * (1 + bits // 8) if kind & 8 else width * (bits // 8)
    return len(data) >= int(n_head + n_row)


@dataclass(frozen=True, slots=True)
class Prepared:
    """The bytes of a file that go to its decoder, and facts that the decoder does not need."""

    data: bytes
    exif: bytes = b""
    n_scans: int = 1
    is_buffered: bool = False
    """Whether its decoder keeps more than the pixels: a JPEG comes in several scans."""


def prepared(data: bytes, kind: str) -> Prepared:
    """Keep what is needed of a file of this format. Raises UnreadableError where it has no pixels."""
    match kind:
        case "PNG":
            return _png(data)
        case "JPEG":
            return _jpeg(data)
        case "WEBP":
            return _webp(data)
        case _:
            return Prepared(data)


def orientation_in(exif: bytes) -> int:
    """How a camera was held, 1 to 8; 1, upright, where nothing is said that makes sense. Other entries do not count,
    whatever they hold.
    """
    exif = exif.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None or len(exif) < 8:
        return 1
    (at,) = struct.unpack_from(f"{order}I", exif, 4)
    for entry in range(at + 2, min(len(exif), at + 2 + 12 * _MOST_ENTRIES), 12):
        if len(exif) < entry + 12:
            break
        tag, kind = struct.unpack_from(f"{order}HH", exif, entry)
        if tag == _ORIENTATION:
            form = {1: "B", 3: "H", 4: "I"}.get(kind, "H")
            (value,) = struct.unpack_from(order + form, exif, entry + 8)
            return value if value in range(1, 9) else 1
    return 1


_ORIENTATION: Final = 0x0112
_MOST_ENTRIES: Final = 512


# --- PNG


def _png(data: bytes) -> Prepared:
    """The chunks that pixels depend on, with right checksums, up to where the file breaks off."""
    parts: dict[bytes, list[memoryview]] = {}
    for name, content in _png_chunks(data):
        if name == b"IDAT" or name not in parts:
            parts.setdefault(name, []).append(content)
    head = b"".join(parts.get(b"IHDR", ()))
    rows = b"".join(parts.get(b"IDAT", ()))
    if b"CgBI" in parts:
        raise UnreadableError("it is of Apple's own kind")
    if len(head) != 13 or not _inflates(rows):
        raise UnreadableError("it has no pixels")
    colour = head[9]
    out = [PNG_MAGIC, *_png_chunk(b"IHDR", head)]
    if palette := b"".join(parts.get(b"PLTE", ()))[: 256 * 3]:
        out += _png_chunk(b"PLTE", palette[: len(palette) // 3 * 3])
    clear = b"".join(parts.get(b"tRNS", ()))
    if clear and len(clear) == {0: 2, 2: 6, 3: min(len(clear), 256)}.get(colour, 0):
        out += _png_chunk(b"tRNS", clear)
    whole = b"".join([*out, *_png_chunk(b"IDAT", rows), *_png_chunk(b"IEND", b"")])
    return Prepared(whole, b"".join(parts.get(b"eXIf", ())))


_PNG_CHUNKS: Final = frozenset((b"IHDR", b"PLTE", b"tRNS", b"eXIf", b"IDAT", b"CgBI"))


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Chunks that count, and of the last one what is there."""
    view, at = memoryview(data), len(PNG_MAGIC)
    while at + 8 <= len(data):
        n, name = int.from_bytes(data[at : at + 4]), data[at + 4 : at + 8]
        if name == b"IEND":
            return
        if name in _PNG_CHUNKS:
            yield name, view[at + 8 : at + 8 + n]
        at += 12 + n


def _png_chunk(name: bytes, content: bytes) -> tuple[bytes, ...]:
    crc = zlib.crc32(content, zlib.crc32(name))
    return len(content).to_bytes(4), name, content, crc.to_bytes(4)


def _inflates(rows: bytes) -> bool:
    """Whether anything of the first row is there."""
    try:
        return bool(zlib.decompressobj().decompress(rows[:65536], 2))
    except zlib.error:
        return False


# --- JPEG

_SOS, _EOI = 0xDA, 0xD9
_FRAMES: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_TABLES: Final = frozenset((0xC4, 0xCC, 0xDB, 0xDD))


def _jpeg(data: bytes) -> Prepared:
    """The tables, the frame and the scans, with the parts about colours that make sense, up to the first end."""
    out, exif, n_colours, is_progressive = [data[:2]], b"", 0, False
    for marker, content, at in _jpeg_segments(data):
        if marker == _SOS:
            if not n_colours or at + len(content) >= len(data):
                break
            end = data.find(b"\xff\xd9", at)
            out += [data[at : end if end >= 0 else len(data)], b"\xff\xd9"]
            n_scans = out[-2].count(b"\xff\xda")
            is_buffered = is_progressive or content[:1] != bytes([n_colours])
            return Prepared(b"".join(out), exif, n_scans, is_buffered)
        if marker in _FRAMES:
            n_colours = content[5] if len(content) > 5 else 0
            is_progressive = marker not in (0xC0, 0xC1)
        elif marker == 0xE1 and content.startswith(b"Exif\0\0"):
            exif = exif or content
            continue
        elif not (marker in _TABLES or _matters(marker, content)):
            continue
        out.append(b"\xff" + bytes([marker]) + (len(content) + 2).to_bytes(2) + content)
    raise UnreadableError("it has no pixels")


def _matters(marker: int, content: bytes) -> bool:
    """Whether a part of an application says how colours are stored."""
    match marker:
        case 0xE0:
            return content.startswith(b"JFIF\0") and len(content) >= 14
        case 0xEE:
            return content.startswith(b"Adobe") and len(content) >= 12
        case _:
            return False


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Marker, content and place of each, up to the first scan. Bytes between them are passed over, as decoders do."""
    at = 2
    while 0 <= (at := data.find(b"\xff", at)) < len(data) - 4:
        marker = data[at + 1]
        if marker in (0x00, 0x01, 0xFF, 0xD8) or 0xD0 <= marker <= 0xD7:
            at += 1 if marker == 0xFF else 2
            continue
        if marker == _EOI:
            return
        n = max(int.from_bytes(data[at + 2 : at + 4]), 2)
        yield marker, data[at + 4 : at + 2 + n], at
        at += 2 + n


# --- WebP

_ALPHA: Final = 0x10
_MOST_LACKING: Final = 1 << 24
_WEBP_CHUNKS: Final = frozenset((b"VP8 ", b"VP8L", b"ALPH", b"EXIF"))


def _webp(data: bytes) -> Prepared:
    """The file as it is where its size is right, for it may be an animation."""
    exif = next((content for name, content, _ in _webp_chunks(data) if name == b"EXIF"), b"")
    is_whole = int.from_bytes(data[4:8], "little") + 8 <= len(data)
    return Prepared(data if is_whole else webp_anew(data), exif)


def webp_anew(data: bytes) -> bytes:
    """The first picture of the file in a new container, with zeros for what it lacks at its end. Raises
    UnreadableError if the file has no picture.
    """
    parts: dict[bytes, bytes] = {}
    for name, content, n in _webp_chunks(data):
        is_pixels = name.startswith(b"VP8")
        if is_pixels and not (b"VP8 " in parts or b"VP8L" in parts):
            parts[name] = content + bytes(min(n - len(content), _MOST_LACKING))
        elif not is_pixels and len(content) == n:
            parts.setdefault(name, content)
    name = b"VP8L" if b"VP8L" in parts else b"VP8 "
    width, height = _webp_size(name, parts.get(name, b""))
    alpha = parts.get(b"ALPH", b"") if name == b"VP8 " else b""
    head = (
        bytes([_ALPHA if alpha or name == b"VP8L" else 0, 0, 0, 0])
        + (width - 1).to_bytes(3, "little")
        + (height - 1).to_bytes(3, "little")
    )
    kept = [(b"VP8X", head), (b"ALPH", alpha), (name, parts[name])]
    body = b"WEBP" + b"".join(
        kind + len(part).to_bytes(4, "little") + part + bytes(len(part) % 2) for kind, part in kept if part
    )
    return b"RIFF" + len(body).to_bytes(4, "little") + body


def webp_size(data: bytes) -> tuple[int, int]:
    """Width and height of what a decoder makes room for. Raises UnreadableError where the file does not say."""
    name = data[12:16]
    if name == b"VP8X" and len(data) >= 30:
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    return _webp_size(name, data[20:30])


def _webp_chunks(data: bytes) -> Iterator[tuple[bytes, bytes, int]]:
    """Chunks that count, also of frames: name, what is there of it, and how much there should be."""
    at = 12
    while at + 8 <= len(data):
        name, n = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if name in _WEBP_CHUNKS:
            yield name, data[at + 8 : at + 8 + n], n
        at += 24 if name == b"ANMF" else 8 + n + n % 2


def _webp_size(name: bytes, content: bytes) -> tuple[int, int]:
    """Width and height by a picture's own header. Raises UnreadableError where it has none."""
    if name == b"VP8L" and content[:1] == b"\x2f" and len(content) >= 5:
        bits = int.from_bytes(content[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if name == b"VP8 " and content[3:6] == b"\x9d\x01\x2a" and len(content) >= 10:
        width, height = struct.unpack_from("<HH", content, 6)
        if width & 0x3FFF and height & 0x3FFF:
            return width & 0x3FFF, height & 0x3FFF
    raise UnreadableError("it has no pixels")
