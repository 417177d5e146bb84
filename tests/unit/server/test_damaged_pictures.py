"""Damaged files of pictures: what viewers forgive is read, and the rest is an error of the request. Files of each kind,
made by a script, on all routes that take pictures.
"""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from kit.damaged_pictures import Expected, damaged, exif_with, smooth
from kit.fake_runtime import FakeRuntime
from kit.picture_files import data_url, in_base64, raw_png, written
from kit.server_kit import CHAT, with_server
from PIL import Image as PilImage

from uad.base.errors import InvalidRequestError
from uad.http.requests.decoding import (
    MAX_ALL_PIXELS,
    MAX_SHOWN_PIXELS,
    MAX_SHOWN_SIDE,
    decoded,
    most_pixels,
    opened,
)
from uad.http.requests.picture_formats import format_of
from uad.http.requests.pictures import MEDIA_MARKER

FILES = damaged()
WRONG_TYPE = struct.pack(">HHIHH", 0x9286, 99, 7, 1, 0)


def read(data: bytes, most: int = MAX_SHOWN_PIXELS) -> np.ndarray:
    image = decoded(opened(data, "here"), most)
    return np.frombuffer(image.rgb, np.uint8).reshape(image.height, image.width, 3)


def with_part(jpeg: bytes, marker: int, content: bytes) -> bytes:
    return jpeg[:2] + b"\xff" + bytes([marker]) + struct.pack(">H", len(content) + 2) + content + jpeg[2:]


def test_the_same_seed_makes_the_same_two_hundred_files():
    assert len(FILES) == len({one.name for one in FILES}) >= 200
    assert damaged(0) == FILES
    assert damaged(1) != FILES


@pytest.mark.parametrize("one", FILES, ids=lambda one: one.name)
def test_a_damaged_file_is_read_as_far_as_it_goes_or_refused(one):
    whole = read(one.whole)
    try:
        pixels = read(one.data)
    except InvalidRequestError as error:
        problem = str(error)
    else:
        problem = ""
    if problem:
        assert one.expected in (Expected.ANY, Expected.ERROR)
        assert problem.startswith("here: is ")
        assert format_of(one.data) in problem
        return
    match one.expected:
        case Expected.SAME:
            assert pixels.tolist() == whole.tolist()
        case Expected.PART:
            assert pixels.shape == whole.shape
            assert pixels[:8].tolist() == whole[:8].tolist()
        case Expected.ERROR:
            pytest.fail("it was read")


@pytest.mark.parametrize(
    "exif",
    [
        exif_with(6, WRONG_TYPE),
        exif_with(6, struct.pack(">HHIHH", 0x9004, 2, 2**31, 1, 0)),
        exif_with(6)[:-1],
        exif_with(6, bytes(12), b"\xff" * 12),
        exif_with(6) + bytes(900),
    ],
)
def test_a_photo_is_turned_whatever_else_its_exif_holds(exif):
    jpeg = written(smooth(1), "JPEG", quality=90)
    assert read(with_part(jpeg, 0xE1, exif)).tolist() == np.rot90(read(jpeg), -1).tolist()


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "JPEG"])
def test_what_exif_says_of_other_formats_counts_too(kind):
    exif = PilImage.Exif()
    exif[0x0112] = 6
    options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
    plain, turned = written(smooth(1), kind, **options), written(smooth(1), kind, exif=exif, **options)
    assert read(turned).tolist() == np.rot90(read(plain), -1).tolist()


def test_two_pictures_in_one_file_are_the_first():
    first = written(smooth(1), "JPEG")
    both = io.BytesIO()
    smooth(1).save(both, "MPO", save_all=True, append_images=[smooth(2)])
    assert format_of(both.getvalue()) == "JPEG"
    assert read(both.getvalue()).tolist() == read(first).tolist()


# --- large ones


def test_a_large_photo_is_made_smaller_while_it_is_decoded():
    wide = PilImage.new("RGB", (8064, 6048), (10, 200, 30))
    wide.paste((250, 0, 0), (0, 0, 4032, 3024))
    for kind in ("JPEG", "PNG"):
        pixels = read(written(wide, kind))
        assert pixels.shape == (3024, 4032, 3)
        assert np.abs(pixels[10, 10].astype(int) - (250, 0, 0)).max() < 4
        assert np.abs(pixels[-10, -10].astype(int) - (10, 200, 30)).max() < 4


def test_a_photo_of_two_hundred_million_pixels_is_read():
    """By its header: how its decoder would make it smaller."""
    jpeg = bytearray(written(smooth(1), "JPEG"))
    at = jpeg.index(b"\xff\xc0")
    jpeg[at + 5 : at + 9] = struct.pack(">HH", 12240, 16320)
    one = opened(bytes(jpeg[:-2]) + bytes(1 << 18) + b"\xff\xd9", "here")  # with a scan as long as of a large photo
    assert one.size == (16320, 12240)
    assert one.n_decoding(MAX_SHOWN_PIXELS) < 128 << 20


@pytest.mark.parametrize(
    ("size", "most", "shown"),
    [
        ((4096, 4096), MAX_SHOWN_PIXELS, (4096, 4096)),
        ((4097, 4096), MAX_SHOWN_PIXELS, (2049, 2048)),
        ((40000, 3), MAX_SHOWN_PIXELS, (13334, 1)),
        ((300, 200), 60000, (300, 200)),
        ((300, 200), 59999, (150, 100)),
        ((300, 200), 7000, (100, 67)),
    ],
)
def test_pixels_are_bounded_for_each_picture(size, most, shown):
    width, height = size
    pixels = read(raw_png(width, height, 1, 0, b"\xff" * (height * (1 + -(-width // 8)))), most)
    assert pixels.shape == (shown[1], shown[0], 3)
    assert max(pixels.shape) <= MAX_SHOWN_SIDE


def test_many_pictures_share_the_pixels_of_a_request():
    rows = bytes(4000 * 501)
    one = opened(raw_png(4000, 4000, 1, 0, rows), "here")
    assert most_pixels([one] * 8) == MAX_SHOWN_PIXELS
    assert most_pixels([one] * 200) == MAX_ALL_PIXELS // 200
    assert most_pixels([]) == MAX_SHOWN_PIXELS


def test_a_picture_made_smaller_in_strips_is_the_one_made_smaller_at_once():
    picture = PilImage.fromarray(np.random.default_rng(1).integers(0, 256, (1500, 1400, 3), dtype=np.uint8), "RGB")
    pixels = read(written(picture), 1400 * 1500 // 8)
    assert pixels.tolist() == np.asarray(picture.reduce(3)).tolist()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (raw_png(1 << 13, 1 << 12, rows=b"\0" * 100), "few bytes for its many pixels"),
        (written(smooth(1), "BMP")[:18] + struct.pack("<ii", 9000, 7000) + written(smooth(1), "BMP")[26:], "few bytes"),
    ],
)
def test_few_bytes_are_no_large_picture(data, why):
    with pytest.raises(InvalidRequestError, match=why):
        opened(data, "here")


@pytest.mark.parametrize("size", [12, 8])
def test_a_webp_is_no_larger_than_its_container_says(size):
    """Its picture says 16,383 x 16,383, which would take gigabytes."""
    vp8 = bytearray(written(smooth(1), "WEBP")[20:])
    vp8[6:10] = struct.pack("<HH", 16383, 16383)
    head = b"VP8X" + struct.pack("<I", 10) + bytes(4) + b"\x3f\0\0\x2f\0\0"
    body = b"WEBP" + head + b"VP8 " + struct.pack("<I", len(vp8)) + bytes(vp8)
    with pytest.raises(InvalidRequestError, match="at most 33554432 pixels"):
        opened(b"RIFF" + struct.pack("<I", len(body) * (1 + (size == 8))) + body, "here")


def test_a_jpeg_of_endless_scans_is_refused():
    jpeg = bytearray(written(smooth(1), "JPEG", progressive=True))
    at = jpeg.index(b"\xff\xc2")
    jpeg[at + 5 : at + 9] = struct.pack(">HH", 4096, 4096)
    scan = bytes(jpeg[jpeg.rindex(b"\xff\xda") : -2])
    with pytest.raises(InvalidRequestError, match="scans, which are too many"):
        opened(bytes(jpeg[:-2]) + scan * 200 + b"\xff\xd9", "here")


# --- other formats


def grey(bits: int, value: int) -> bytes:
    return b"P5\n2 2\n%d\n" % (2**bits - 1) + value.to_bytes(bits // 8) * 4


@pytest.mark.parametrize("kind", ["BMP", "PPM", "TGA"])
def test_plain_formats_are_read(kind):
    assert read(written(smooth(1), kind)).tolist() == np.asarray(smooth(1)).tolist()


@pytest.mark.parametrize(
    ("kind", "options"), [("BMP", {}), ("PPM", {}), ("TGA", {}), ("TGA", {"compression": "tga_rle"})]
)
def test_plain_formats_are_read_as_far_as_they_go(kind, options):
    whole = written(smooth(1), kind, **options)
    pixels = read(whole[: len(whole) * 3 // 4])
    part = slice(-24, None) if kind in ("BMP", "TGA") else slice(0, 24)  # of the two with the lowest row first
    assert pixels[part].tolist() == np.asarray(smooth(1))[part].tolist()


def test_what_begins_as_a_cursor_and_has_none_is_no_icon():
    with pytest.raises(InvalidRequestError, match="is no image that can be read"):
        opened(b"\0\0\2\0" + bytes(30), "here")


def test_more_of_plain_formats():
    assert (
        read(written(smooth(1).convert("1"), "BMP")).tolist()
        == np.asarray(smooth(1).convert("1").convert("RGB")).tolist()
    )
    assert (
        read(written(smooth(1).quantize(9), "BMP")).tolist()
        == np.asarray(smooth(1).quantize(9).convert("RGB")).tolist()
    )
    assert read(written(smooth(1), "TGA", compression="tga_rle")).tolist() == np.asarray(smooth(1)).tolist()
    assert read(grey(8, 7))[0, 0].tolist() == [7, 7, 7]
    assert read(grey(16, 0x7F00))[0, 0].tolist() == [0x7F] * 3
    clear = smooth(1).convert("RGBA")
    clear.putalpha(0)  # what many programs leave in the fourth byte
    for kind in ("BMP", "TGA"):
        assert read(written(clear, kind)).tolist() == np.asarray(smooth(1)).tolist(), kind


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC"),
        (b"\0\0\0\x1cftypavif\0\0\0\0mif1", "AVIF"),
        (b"\0\0\0\x18ftypisom\0\0\0\0", "MP4"),
        (written(smooth(1), "TIFF"), "TIFF"),
        (written(smooth(1), "ICO"), "ICO"),
        (written(smooth(1), "JPEG2000"), "JPEG 2000"),
        (b"<?xml version='1.0'?><svg xmlns='x'/>", "SVG"),
        (b"\n<!DOCTYPE html><html>", "HTML"),
        (b"%PDF-1.7", "PDF"),
        (b"8BPS\0\1", "PSD"),
        (b"P3\n1 1\n255\n1 2 3\n", "plain PPM"),
        (b"\xff\x0a" + bytes(9), "JPEG XL"),
    ],
)
def test_other_formats_are_refused_by_name(data, name):
    with pytest.raises(InvalidRequestError, match=f"here: is a file of the kind {name}; send one of PNG, JPEG"):
        opened(data, "here")


def test_a_compressed_bmp_is_refused_since_it_is_slow():
    bmp = bytearray(written(smooth(1).quantize(9), "BMP"))
    bmp[30:34] = (1).to_bytes(4, "little")
    with pytest.raises(InvalidRequestError, match="is a BMP file of a rare kind; send it as PNG"):
        opened(bytes(bmp), "here")


# --- on the server


def bodies(data: bytes) -> dict[str, dict[str, Any]]:
    """A request of every API with this picture."""
    base64 = in_base64(data)
    source = {"type": "base64", "media_type": "image/png", "data": base64}
    chat = {"type": "image_url", "image_url": {"url": data_url(data)}}
    return {
        CHAT: {"messages": [{"role": "user", "content": [chat]}]},
        "/v1/responses": {
            "input": [{"role": "user", "content": [{"type": "input_image", "image_url": data_url(data)}]}]
        },
        "/v1/messages": {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]},
        "/api/chat": {"messages": [{"role": "user", "content": "a", "images": [base64]}], "stream": False},
        "/completion": {"prompt": {"prompt_string": f"{MEDIA_MARKER}?", "multimodal_data": [base64]}},
    }


@pytest.mark.long
@pytest.mark.parametrize("path", bodies(b""))
def test_every_damaged_file_is_answered_on_every_api(path):
    async def run(session: Any) -> list[tuple[int, str]]:
        answers = []
        for one in FILES:
            body = io.BytesIO(json.dumps({**bodies(one.data)[path], "max_tokens": 1}).encode())
            async with session.post(path, data=body, headers={"Content-Type": "application/json"}) as answer:
                answers.append((answer.status, await answer.text()))
        return answers

    answers = with_server(run, FakeRuntime(sees_images=True, script=lambda request: b"seen"))
    for one, (status, text) in zip(FILES, answers, strict=True):
        assert status in {Expected.ANY: (200, 400), Expected.ERROR: (400,)}.get(one.expected, (200,)), one.name
        assert status == 200 or "file that cannot be read" in text, one.name


MEASURED = """
import json, resource, sys, time
sys.path.append("tests")
from kit.damaged_pictures import damaged
from uad.base.errors import InvalidRequestError
from uad.http.requests.decoding import decoded, opened

files = damaged(3)
decoded(opened(files[0].whole, ""))
before = resource.getrusage(resource.RUSAGE_SELF)
n_read = 0
for one in files:
    try:
        decoded(opened(one.data, ""))
        n_read += 1
    except InvalidRequestError:
        pass
after = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([n_read, after.ru_maxrss - before.ru_maxrss, after.ru_utime - before.ru_utime]))
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory in other units")
def test_damaged_files_take_neither_memory_nor_time():
    out = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True, timeout=120)
    n_read, n_kib, seconds = json.loads(out.stdout)
    assert n_read > 150
    assert n_kib < 32 * 1024
    assert seconds < 30
