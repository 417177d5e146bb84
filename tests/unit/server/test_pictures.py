"""Files of pictures to pixels, and what is refused before a pixel is decoded."""

from __future__ import annotations

import io
import subprocess
import sys
from urllib.parse import quote

import numpy as np
import pytest
from kit.picture_files import data_url, hostile, in_base64, pixels, png, raw_png, with_exif, written
from PIL import Image as PilImage

from uad.base.errors import InvalidRequestError
from uad.base.types import Image
from uad.http.requests.decoding import MAX_SHOWN_PIXELS, MAX_WHOLE_PIXELS, decoded, opened
from uad.http.requests.pictures import PictureSource, bytes_in

HOSTILE = list(hostile())


def read(data: bytes) -> Image:
    return decoded(opened(data, "here"))


def values(image: Image) -> np.ndarray:
    return np.frombuffer(image.rgb, np.uint8).reshape(image.height, image.width, 3)


def image_of(picture: PilImage.Image) -> Image:
    return Image.of(picture.width, picture.height, picture.convert("RGB").tobytes())


@pytest.mark.parametrize(
    ("kind", "options"), [("PNG", {}), ("WEBP", {"lossless": True}), ("PNG", {"interlace": True}), ("GIF", {})]
)
def test_what_was_written_without_loss_is_read_as_it_was(kind, options):
    picture = pixels().quantize(16) if kind == "GIF" else pixels()
    assert read(written(picture, kind, **options)) == image_of(picture)


def test_a_jpeg_is_read_as_its_library_reads_it():
    data = written(pixels(1, (40, 30)), "JPEG")
    image = read(data)
    assert (image.width, image.height) == (40, 30)
    assert image == image_of(PilImage.open(io.BytesIO(data)))


def test_the_digest_tells_pictures_apart_by_size_and_pixels():
    same = [Image.of(2, 3, bytes(18)), Image.of(2, 3, bytes(18))]
    assert same[0].digest == same[1].digest
    others = [Image.of(3, 2, bytes(18)), Image.of(2, 3, bytes(17) + b"\1"), Image.of(1, 6, bytes(18))]
    assert len({one.digest for one in (same[0], *others)}) == 4


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photograph_is_upright(orientation):
    stored = PilImage.new("RGB", (32, 16), "black")
    stored.paste("white", (0, 0, 16, 8))  # a corner
    shown = values(read(with_exif(written(stored, "JPEG"), orientation)))
    corner = {1: (0, 0), 2: (0, 1), 3: (1, 1), 4: (1, 0), 5: (0, 0), 6: (0, 1), 7: (1, 1), 8: (1, 0)}[orientation]
    height, width = shown.shape[:2]
    assert (width, height) == ((32, 16) if orientation < 5 else (16, 32))
    bright = [
        (row, column)
        for row in (0, 1)
        for column in (0, 1)
        if shown[row * (height - 4) + 2, column * (width - 4) + 2].mean() > 128
    ]
    assert bright == [corner]


def test_what_is_transparent_is_white():
    clear = PilImage.new("RGBA", (2, 1), (10, 20, 30, 0))
    clear.putpixel((1, 0), (10, 20, 30, 255))
    assert values(read(written(clear))).tolist() == [[[255, 255, 255], [10, 20, 30]]]
    palette = PilImage.new("P", (2, 1))
    palette.putpalette([1, 2, 3, 4, 5, 6])
    palette.putpixel((1, 0), 1)
    assert values(read(written(palette, transparency=0))).tolist() == [[[255, 255, 255], [4, 5, 6]]]
    grey = PilImage.new("LA", (1, 1), (0, 128))
    assert values(read(written(grey))).tolist() == [[[127, 127, 127]]]


def test_of_sixteen_bits_the_upper_eight_count():
    deep = PilImage.fromarray(np.array([[0, 255, 256, 0x80FF, 0xFFFF]], np.uint16))
    assert values(read(written(deep)))[0, :, 0].tolist() == [0, 0, 1, 0x80, 0xFF]
    rows = b"\0" + bytes([0x12, 0xFF, 0x34, 0x00, 0x56, 0x80])  # filter none; one pixel of 3 x 16 bits
    assert values(read(raw_png(1, 1, 16, 2, rows))).tolist() == [[[0x12, 0x34, 0x56]]]


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK"])
def test_every_way_to_store_colours_is_read(mode):
    picture = pixels(3, (16, 8)).convert(mode)
    data = written(picture, "JPEG" if mode == "CMYK" else "PNG")
    assert read(data) == image_of(PilImage.open(io.BytesIO(data)))


def test_of_an_animation_the_first_frame_counts():
    frames = [PilImage.new("RGB", (4, 4), colour) for colour in ("red", "lime", "blue")]
    for kind in ("GIF", "WEBP", "PNG"):
        options = {"lossless": True} if kind == "WEBP" else {}
        data = written(frames[0], kind, save_all=True, append_images=frames[1:], duration=50, **options)
        assert values(read(data))[0, 0].tolist() == [255, 0, 0], kind


def test_there_are_two_hundred_hostile_files():
    assert len(HOSTILE) >= 200
    assert len({name for name, _ in HOSTILE}) == len(HOSTILE)


def test_each_hostile_file_is_an_error_of_the_request_or_a_picture():
    n_read = 0
    for name, data in HOSTILE:
        try:
            image = read(data)
        except InvalidRequestError as error:
            problem = error
        else:
            n_read += 1
            assert len(image.rgb) == 3 * image.width * image.height, name
            assert image.width * image.height <= MAX_SHOWN_PIXELS, name
            continue
        assert str(problem).startswith("here: "), name
    assert 100 < n_read < len(HOSTILE) - 60


MEASURED = """
import resource, sys
sys.path.append("tests")
from kit.picture_files import hostile, png
from uad.base.errors import InvalidRequestError
from uad.http.requests.decoding import decoded, opened

decoded(opened(png(), ""))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _, data in hostile():
    try:
        decoded(opened(data, ""))
    except InvalidRequestError:
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory in other units")
def test_hostile_files_take_no_memory():
    """A bomb of 64 million pixels would take 192 MiB and more, a text in a file 100 MiB."""
    told = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True, timeout=240)
    assert int(told.stdout) < 48 * 1024


@pytest.mark.parametrize("size", [(MAX_WHOLE_PIXELS, 1), (1 << 13, (1 << 13) + 1), (0, 5), (1 << 16, 4)])
def test_a_picture_that_is_too_large_is_refused_by_its_header(size, monkeypatch):
    def load(self):
        raise AssertionError("it was decoded")

    monkeypatch.setattr(PilImage.Image, "load", load)
    with pytest.raises(InvalidRequestError, match="here: "):
        opened(raw_png(*size, rows=bytes(100)), "here")


B64 = in_base64(png())
WEB = B64.replace("+", "-").replace("/", "_")
assert WEB != B64


@pytest.mark.parametrize(
    "url",
    [
        *(B64, B64.rstrip("="), f"{B64[:20]}\n{B64[20:]}", f" {B64}\n", WEB, f"{B64.rstrip('=')}===="),
        *(
            data_url(png()),
            data_url(png(), "image/jpeg"),
            f"DATA:image/PNG;base64,{B64}",
            f"\n data:image/png;base64,{B64}",
        ),
        *(f"data:image/png;name=a;base64,{B64}", f"data:image/png;charset=utf-8;base64,{B64}"),
        *(f"data:;base64,{B64}", f"data:base64,{B64}", f"data:image;base64,{B64}", f"data:image/png; base64,{B64}"),
        *(
            f"data:image/png ;BASE64 , {B64}",
            f"data:application/octet-stream;base64,{B64}",
            f"data:text/plain;base64,{B64}",
        ),
        *(
            f"data:image/png;base64,{quote(B64, safe='')}",
            f"data:image/png;base64,{WEB}",
            f"data:image/png,{quote(png())}",
        ),
        f"data:image/png;base64;x,{B64}",
    ],
)
def test_base64_alone_or_in_a_data_url_of_any_spelling_is_read(url):
    assert bytes_in(PictureSource(url, "here")) == png()


@pytest.mark.parametrize(
    "url",
    [
        *("malformed!", "a", "aGk=aGk=", "äöü", "data:image/png;base64", "data:", "data:image/png;base64,a!b"),
        *("ftp://a/b.png", "javascript:alert(1)", "blob:http://a/b", "data:image/png;base64,%ff"),
    ],
)
def test_what_holds_no_file_is_refused(url):
    with pytest.raises(InvalidRequestError, match="here: "):
        bytes_in(PictureSource(url, "here"))


def test_many_megabytes_of_base64_are_read_in_steps(monkeypatch):
    calls = []
    monkeypatch.setattr("uad.http.requests.pictures.checkpoint", lambda: calls.append(1))
    data = bytes(range(256)) * (4 * 4096)
    assert bytes_in(PictureSource(in_base64(data), "here")) == data
    assert len(calls) >= 5
