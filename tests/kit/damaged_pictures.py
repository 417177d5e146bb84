"""Two hundred damaged files of pictures, as cameras, editors, chats and broken downloads leave them: the kinds of
damage that the libraries of PNG, JPEG, GIF, WebP and BMP know. The same seed makes the same files.

`python tests/kit/damaged_pictures.py FOLDER [SEED]` writes them.
"""

from __future__ import annotations

import random
import struct
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
from PIL import Image as PilImage

from kit.bombs import zlib_bomb
from kit.picture_files import PNG_MAGIC, chunk, written

SIZE = (64, 48)


class Expected(Enum):
    """What a reader makes of a file."""

    SAME = "the pixels of the undamaged file"
    PART = "the upper rows of it"
    ANY = "a picture or an error of the request"
    ERROR = "an error of the request"


@dataclass(frozen=True)
class Damaged:
    """A file. whole: the undamaged one."""

    name: str
    data: bytes
    whole: bytes
    expected: Expected


def damaged(seed: int = 0) -> list[Damaged]:
    """All of them."""
    dice = random.Random(seed)
    return [*_png(dice), *_jpeg(dice), *_gif(dice), *_webp(dice), *_bmp(dice)]


def smooth(seed: int) -> PilImage.Image:
    """A picture like a photo: gradients, and some noise."""
    width, height = SIZE
    noise = np.random.default_rng(seed).integers(0, 16, (height, width, 3))
    rows, columns = np.mgrid[0:height, 0:width]
    base = np.stack([rows * 4, columns * 3, (rows + columns) * 2], axis=-1)
    return PilImage.fromarray((base + noise).clip(0, 255).astype(np.uint8), "RGB")


def _noise(dice: random.Random, n: int) -> bytes:
    return dice.randbytes(n)


def _flipped(dice: random.Random, data: bytes, first: int, n: int) -> bytes:
    """With n bits of the file turned, behind its first bytes."""
    out = bytearray(data)
    for _ in range(n):
        out[dice.randrange(first, len(out))] ^= 1 << dice.randrange(8)
    return bytes(out)


# --- PNG


def chunks_of(png: bytes) -> list[tuple[bytes, bytes]]:
    """Name and content of each chunk."""
    at, found = len(PNG_MAGIC), []
    while at < len(png):
        (n,) = struct.unpack_from(">I", png, at)
        found.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + n]))
        at += 12 + n
    return found


def _put(parts: list[tuple[bytes, bytes]]) -> bytes:
    return PNG_MAGIC + b"".join(chunk(name, content) for name, content in parts)


def _bad_crc(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + b"\xde\xad\xbe\xef"


def _png(dice: random.Random) -> Iterator[Damaged]:
    whole = written(smooth(1))
    head, *_, end = parts = chunks_of(whole)
    rows = b"".join(content for name, content in parts if name == b"IDAT")
    pieces = [rows[i : i + 900] for i in range(0, len(rows), 900)]

    def file(name: str, data: bytes, expected: Expected = Expected.SAME) -> Damaged:
        return Damaged(f"png: {name}", data, whole, expected)

    def beside(raw: bytes) -> bytes:
        return PNG_MAGIC + chunk(*head) + raw + chunk(b"IDAT", rows) + chunk(*end)

    for name, content in (
        *((b"tEXt", b"Comment\0hello"), (b"zTXt", b"a\0\0" + zlib.compress(b"x")), (b"iTXt", b"a\0\0\0\0\0x")),
        *((b"iCCP", b"a\0\0" + zlib.compress(bytes(200))), (b"cHRM", bytes(32)), (b"gAMA", bytes(4)), (b"sRGB", b"\0")),
        *((b"pHYs", bytes(9)), (b"tIME", bytes(7)), (b"bKGD", bytes(6)), (b"sBIT", b"\x08" * 3), (b"eXIf", b"MM\0*")),
        *((b"acTL", bytes(8)), (b"sPLT", b"a\0"), (b"vpAg", bytes(9)), (b"caBX", bytes(60)), (b"hIST", bytes(4))),
    ):
        text = name.decode()
        yield file(f"the checksum of {text} is wrong", beside(_bad_crc(name, content)))
        yield file(f"{text} is noise", beside(chunk(name, _noise(dice, 29))))
        yield file(f"{text} is empty", beside(chunk(name, b"")))
    yield file("a text expands to 100 MiB", beside(chunk(b"zTXt", b"a\0\0" + zlib_bomb(100))))
    yield file("a profile expands to 100 MiB", beside(chunk(b"iCCP", b"a\0\0" + zlib_bomb(100))))
    yield file("2,000 texts", beside(chunk(b"tEXt", b"a\0" + b"b" * 900) * 2000))
    yield file("an unknown chunk that calls itself needed", beside(chunk(b"QWER", b"x")))
    yield file("the header has a wrong checksum", PNG_MAGIC + _bad_crc(*head) + _put(parts[1:])[8:])
    yield file("the rows have a wrong checksum", PNG_MAGIC + chunk(*head) + _bad_crc(b"IDAT", rows) + chunk(*end))
    yield file("the rows are without an end", whole[: -len(chunk(*end))])
    yield file("bytes follow the end", whole + _noise(dice, 500))
    yield file("the end is missing its checksum", whole[:-4])
    yield file(
        "the rows have a wrong sum of their own", _put([head, (b"IDAT", rows[:-4] + b"abcd"), end]), Expected.PART
    )
    yield file("the rows lack their own sum", _put([head, (b"IDAT", rows[:-4]), end]))
    yield file("the rows go on after their end", _put([head, (b"IDAT", rows + b"more"), end]))
    yield file("the rows come in many pieces", _put([head, *((b"IDAT", one) for one in pieces), end]))
    mixed = [part for one in pieces for part in ((b"IDAT", one), (b"tEXt", b"a\0b"))]
    yield file("texts stand between the rows", _put([head, *mixed, end]))
    yield file("some pieces of the rows are empty", _put([head, (b"IDAT", b""), (b"IDAT", rows), (b"IDAT", b""), end]))
    yield file("the header comes twice", _put([head, head, (b"IDAT", rows), end]))
    for share in (0.2, 0.4, 0.6, 0.8, 0.95):
        cut = whole[: int(len(whole) * share)]
        yield file(f"{share:.0%} of it are there", cut, Expected.PART)
        yield file(f"{share:.0%} of it are there, and zeros", cut.ljust(len(whole), b"\0"), Expected.PART)
    for n in (1, 2, 4, 8, 16, 32):
        yield file(f"{n} bits of the rows are wrong", _flipped(dice, whole, 60, n), Expected.ANY)
    yield file("no rows", _put([head, end]), Expected.ERROR)
    yield file("no header", _put([(b"IDAT", rows), end]), Expected.ERROR)
    yield file("the rows are noise", _put([head, (b"IDAT", b"\xff" + _noise(dice, 999)), end]), Expected.ERROR)
    yield file("the magic alone", PNG_MAGIC, Expected.ERROR)
    yield from _png_colours(dice)


def _png_colours(dice: random.Random) -> Iterator[Damaged]:
    picture = smooth(2).quantize(200)
    whole = written(picture)
    parts = chunks_of(whole)
    at = next(i for i, (name, _) in enumerate(parts) if name == b"PLTE")
    for name, palette, expected in (
        ("too long", parts[at][1].ljust(900, b"\1"), Expected.SAME),
        ("of no whole number of colours", parts[at][1] + b"\1", Expected.SAME),
        ("too short", parts[at][1][:30], Expected.ANY),
        ("empty", b"", Expected.ANY),
    ):
        changed = [*parts[:at], (b"PLTE", palette), *parts[at + 1 :]]
        yield Damaged(f"png: a palette is {name}", _put(changed), whole, expected)
    yield Damaged("png: no palette", _put([*parts[:at], *parts[at + 1 :]]), whole, Expected.ANY)
    plain = written(smooth(3))
    head, *rest = chunks_of(plain)
    for n in (0, 1, 5, 7, 300):
        clear = (b"tRNS", _noise(dice, n))
        yield Damaged(f"png: {n} bytes of transparency", _put([head, clear, *rest]), plain, Expected.SAME)


# --- JPEG


def _part(marker: int, content: bytes) -> bytes:
    """A segment."""
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(content) + 2) + content


def exif_with(orientation: int, *more: bytes) -> bytes:
    """EXIF with an orientation between further entries of 12 bytes."""
    entries = [struct.pack(">HHIHH", 0x0112, 3, 1, orientation, 0), *more]
    return b"Exif\0\0MM\0*\0\0\0\x08" + struct.pack(">H", len(entries)) + b"".join(entries) + bytes(4)


def _jpeg(dice: random.Random) -> Iterator[Damaged]:
    whole = written(smooth(4), "JPEG", quality=90)
    begin, rest = whole[:2], whole[2:]
    scan = whole.index(b"\xff\xda")

    def file(name: str, data: bytes, expected: Expected = Expected.SAME, of: bytes = whole) -> Damaged:
        return Damaged(f"jpeg: {name}", data, of, expected)

    for name, marker, content in (
        *(("a short APP14", 0xEE, b"Adobe"), ("an APP14 of one byte", 0xEE, b"A"), ("an empty APP14", 0xEE, b"")),
        *(("a short APP0", 0xE0, b"JFIF"), ("a JFXX with half a thumbnail", 0xE0, b"JFXX\0\x13\x40\x40")),
        *(("EXIF of noise", 0xE1, b"Exif\0\0" + dice.randbytes(90)), ("an empty EXIF", 0xE1, b"Exif\0\0")),
        *(
            ("EXIF that points outside", 0xE1, b"Exif\0\0MM\0*\x7f\0\0\0"),
            ("XMP of noise", 0xE1, b"http://ns.adobe.com"),
        ),
        ("EXIF with a tag of the wrong type", 0xE1, exif_with(1, struct.pack(">HHIHH", 0x9286, 99, 7, 1, 0))),
        ("EXIF of fewer tags than it says", 0xE1, exif_with(1)[:-9]),
        *(("half a profile", 0xE2, b"ICC_PROFILE\0\2\3abc"), ("a profile of no number", 0xE2, b"ICC_PROFILE\0")),
        *(("an MPF of noise", 0xE2, b"MPF\0" + dice.randbytes(60)), ("an empty MPF", 0xE2, b"MPF\0")),
        ("an MPF of two pictures that are not there", 0xE2, _mpf()),
        *(
            ("Photoshop's resources of noise", 0xED, b"Photoshop 3.0\08BIM" + dice.randbytes(9)),
            ("a DRI of 0", 0xDD, b"\0\0"),
        ),
        *(("an empty comment", 0xFE, b""), ("a comment of 65,000 bytes", 0xFE, b"\xff\xd9" * 32500)),
        *(("an unknown part", 0xEB, dice.randbytes(40)), ("a JPS", 0xE3, b"_JPSJPS_")),
    ):
        yield file(name, begin + _part(marker, content) + rest)
        yield file(f"{name}, behind other parts", whole[:scan] + _part(marker, content) + whole[scan:])
    yield file("a part of length 0", begin + b"\xff\xe5\0\0" + rest)
    yield file("bytes between two parts", begin + b"\0\1\2" + rest)
    yield file("fill bytes before each part", begin + b"\xff\xff\xff" + rest)
    yield file("without its last two bytes", whole[:-2])
    yield file("without its last byte", whole[:-1])
    yield file("bytes follow the end", whole + dice.randbytes(300))
    yield file("another picture follows the end", whole + written(smooth(5), "JPEG"))
    yield file("the end comes twice", whole + b"\xff\xd9")
    for share in (0.75, 0.8, 0.85, 0.9, 0.95):
        yield file(f"{share:.0%} of it are there", whole[: int(len(whole) * share)], Expected.PART)
    middle = scan + (len(whole) - scan) // 2
    yield file("zeros from its middle on", whole[:middle].ljust(len(whole), b"\0"), Expected.PART)
    yield file("an unknown marker in its middle", whole[:middle] + b"\xff\xb5" + whole[middle:], Expected.ANY)
    yield file("an end in its middle", whole[:middle] + b"\xff\xd9" + whole[middle:], Expected.PART)
    for n in (1, 2, 4, 8, 16, 32):
        yield file(f"{n} bits of its scan are wrong", _flipped(dice, whole, scan + 14, n), Expected.ANY)
    for name, options in (
        *(("progressive", {"progressive": True}), ("in grey", {}), ("restarting", {"restart_marker_blocks": 4})),
        *(("in 4:4:4", {"subsampling": 0}), ("in 4:2:0", {"subsampling": 2})),
    ):
        other = written(smooth(6).convert("L") if name == "in grey" else smooth(6), "JPEG", quality=90, **options)
        yield file(f"{name}, without its end", other[:-2], Expected.SAME, other)
        for share in (0.75, 0.9):
            expected = Expected.ANY if name == "progressive" else Expected.PART
            yield file(f"{name}, {share:.0%} of it", other[: int(len(other) * share)], expected, other)
        first = other.index(b"\xff\xda") + 14
        yield file(f"{name}, 5 bits are wrong", _flipped(dice, other, first, 5), Expected.ANY, other)
    restarting = written(smooth(6), "JPEG", quality=90, restart_marker_blocks=4)
    yield file("a restart is missing", restarting.replace(b"\xff\xd2", b"", 1), Expected.ANY, restarting)
    yield file(
        "a restart has a wrong number", restarting.replace(b"\xff\xd2", b"\xff\xd5", 1), Expected.ANY, restarting
    )
    yield file("its tables alone", whole[:scan], Expected.ERROR)
    yield file("no frame", begin + whole[scan:], Expected.ERROR)
    yield file("the magic alone", begin, Expected.ERROR)
    scans = written(smooth(6), "JPEG", progressive=True)
    last = scans.rindex(b"\xff\xda")
    yield file("its last scan 20,000 times", scans[:-2] + scans[last:-2] * 20000 + b"\xff\xd9", Expected.ANY, scans)


def _mpf() -> bytes:
    """An index of two pictures, as phones write it in front of a map of brightness."""
    entries = struct.pack(">HHI4s", 0xB000, 7, 4, b"0100") + struct.pack(">HHII", 0xB001, 4, 1, 2)
    entries += struct.pack(">HHII", 0xB002, 7, 32, 50)
    return b"MPF\0MM\0*\0\0\0\x08" + struct.pack(">H", 3) + entries + bytes(4) + b"\xff" * 32


# --- GIF, WebP, BMP


def _gif(dice: random.Random) -> Iterator[Damaged]:
    picture = smooth(7).quantize(64)
    whole = written(picture, "GIF")
    frame = whole.index(b",\0\0\0\0")
    parts: tuple[tuple[str, bytes, Expected], ...] = (
        ("without its end", whole[:-1], Expected.SAME),
        ("bytes follow the end", whole + dice.randbytes(90), Expected.SAME),
        ("a comment without an end", whole[:frame] + b"!\xfe\x03abc\0" + whole[frame:], Expected.SAME),
        ("an unknown extension", whole[:frame] + b"!\x77\x03abc\0" + whole[frame:], Expected.SAME),
        ("a short application", whole[:frame] + b"!\xff\x02ab\0" + whole[frame:], Expected.SAME),
        ("a short control", whole[:frame] + b"!\xf9\x01a\0" + whole[frame:], Expected.ANY),
        ("no frame", whole[:frame] + b";", Expected.ERROR),
        ("its header alone", whole[:13], Expected.ERROR),
    )
    for name, data, expected in parts:
        yield Damaged(f"gif: {name}", data, whole, expected)
    for share in (0.7, 0.8, 0.95):
        yield Damaged(f"gif: {share:.0%} of it", whole[: int(len(whole) * share)], whole, Expected.PART)
    for n in (1, 4, 16):
        yield Damaged(f"gif: {n} bits are wrong", _flipped(dice, whole, frame + 12, n), whole, Expected.ANY)


def _webp(dice: random.Random) -> Iterator[Damaged]:
    for kind, options in (("lossy", {"quality": 80}), ("lossless", {"lossless": True}), ("clear", {"quality": 80})):
        picture = smooth(8)
        if kind == "clear":
            picture.putalpha(200)
        whole = written(picture, "WEBP", **options)
        profile = b"ICCP" + struct.pack("<I", 8) + b"nonsense"
        for name, data, expected in (
            ("its size is too small", whole[:4] + b"\x10\0\0\0" + whole[8:], Expected.SAME),
            ("its size is too large", whole[:4] + struct.pack("<I", len(whole) + 900) + whole[8:], Expected.SAME),
            ("bytes follow the end", whole + dice.randbytes(99), Expected.SAME),
            ("a profile is behind the picture", whole + profile, Expected.SAME),
            ("80% of it", whole[: int(len(whole) * 0.8)], Expected.ANY),
            ("3 bits are wrong", _flipped(dice, whole, 60, 3), Expected.ANY),
            ("its header alone", whole[:16], Expected.ERROR),
        ):
            yield Damaged(f"webp, {kind}: {name}", data, whole, expected)


def _bmp(dice: random.Random) -> Iterator[Damaged]:
    whole = written(smooth(9), "BMP")
    for name, data, expected in (
        ("its size is 0", whole[:2] + bytes(4) + whole[6:], Expected.SAME),
        ("the size of its pixels is 0", whole[:34] + bytes(4) + whole[38:], Expected.SAME),
        ("bytes follow the end", whole + dice.randbytes(99), Expected.SAME),
        ("80% of it", whole[: int(len(whole) * 0.8)], Expected.ANY),
        ("its header alone", whole[:20], Expected.ERROR),
        ("an unknown header", whole[:14] + b"\x63" + whole[15:], Expected.ERROR),
    ):
        yield Damaged(f"bmp: {name}", data, whole, expected)


def main(folder: str, seed: str = "0") -> None:
    """Write all files."""
    for i, one in enumerate(damaged(int(seed))):
        Path(folder, f"{i:03}.{one.name.split(':')[0].split(',')[0]}").write_bytes(one.data)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1]))
    main(*sys.argv[1:])
