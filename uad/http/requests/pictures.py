"""The pictures of a request: where they stand in it, and what is made of their bytes. **The only importer of PIL.**

Files of pictures come from anywhere: their size is checked by their header, before any pixel is decoded. Decoding is
for worker threads. Knows no network.
"""

from __future__ import annotations

import binascii
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Final

import numpy as np
from PIL import Image as PilImage
from PIL import ImageOps

from uad.base.checkpoint import DroppedError, checkpoint
from uad.base.common.json_out import chunks
from uad.base.errors import InvalidRequestError, NotSupportedError
from uad.base.types import MEDIA_MARKER, Image
from uad.http.requests.fields import TemplateBody

FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF")
MAX_PICTURES: Final = 256
"""Of one request."""
MAX_SIDE: Final = 1 << 14
MAX_PIXELS: Final = 1 << 25
"""Of one picture: 33 million, which takes half a gigabyte for a moment."""
MAX_ALL_PIXELS: Final = 1 << 27
"""Of one request."""
BYTES_PER_PIXEL: Final = 3
BLIND: Final = "image input is not supported: start the server with --mmproj FILE, or leave images out"
_STEP: Final = 1 << 20
_WHITE: Final = (255, 255, 255)

warnings.filterwarnings("error", category=PilImage.DecompressionBombWarning)  # it is an error from there on


@dataclass(frozen=True, slots=True)
class PictureSource:
    """A picture as a request names it."""

    url: str
    """An address that holds the picture (`data:`) or says where it is, or base64."""
    where: str
    """Its place in the body."""

    @property
    def scheme(self) -> str:
        """In small letters: http, https, file, data; empty for base64."""
        head, colon, _ = self.url[:8].partition(":")
        return head.lower() if colon else ""


# --- where they stand


def has_pictures(body: TemplateBody) -> bool:
    """Whether the conversation holds any."""
    return any(part.image_url is not None for message in body.messages for part in message.content or ())


def chat_sources(body: TemplateBody, places: Sequence[str] = ()) -> list[PictureSource]:
    """The pictures of a conversation, in its order. places: where they stand in the body, if that is no chat. Raises
    InvalidRequestError for too many, and for a text with the marker of pictures beside a picture.
    """
    found = [
        PictureSource(part.image_url.url, f"messages.{i}.content.{k}")
        for i, message in enumerate(body.messages)
        for k, part in enumerate(message.content or ())
        if part.image_url is not None
    ]
    if found:
        check_number(len(found), "messages")
        for where in _marked_texts(body):
            raise InvalidRequestError.at(
                where, f"a text beside images holds {MEDIA_MARKER!r}, which stands for an image; leave it out"
            )
    if places:
        found = [PictureSource(one.url, where) for one, where in zip(found, places, strict=True)]
    return found


def check_number(n: int, where: str) -> None:
    """Raises InvalidRequestError for more pictures than a request may have."""
    if n > MAX_PICTURES:
        raise InvalidRequestError.at(where, f"at most {MAX_PICTURES} images in one request")


def _marked_texts(body: TemplateBody) -> Iterator[str]:
    """Where a text of the conversation holds the marker itself."""
    for i, message in enumerate(body.messages):
        for k, part in enumerate(message.content or ()):
            if part.image_url is None and MEDIA_MARKER in part.text:
                yield f"messages.{i}.content.{k}"
        if _holds_marker(message.model_dump(exclude={"role", "content"}, exclude_none=True)):
            yield f"messages.{i}"
    if _holds_marker([tool.model_dump() for tool in body.tools]):
        yield "tools"
    if _holds_marker(body.chat_template_kwargs):
        yield "chat_template_kwargs"


def _holds_marker(value: object) -> bool:
    return bool(value) and MEDIA_MARKER.encode() in b"".join(chunks(value))


def prompt_sources(prompt: object, where: str) -> list[PictureSource]:
    """The pictures of a prompt, which it has in llama-server's form only: `{"prompt_string", "multimodal_data"}`.
    Raises InvalidRequestError where its text has not as many markers.
    """
    data = prompt.get("multimodal_data") if isinstance(prompt, Mapping) else None
    if not isinstance(prompt, Mapping) or not data:
        return []
    if not isinstance(data, list) or not all(isinstance(one, str) for one in data):
        raise InvalidRequestError.at(f"{where}.multimodal_data", "must be a list of images in base64")
    check_number(len(data), f"{where}.multimodal_data")
    text = prompt.get("prompt_string")
    if not isinstance(text, str):
        raise InvalidRequestError.at(f"{where}.prompt_string", "must be a string, beside multimodal_data")
    n = text.count(MEDIA_MARKER)
    if n != len(data):
        raise InvalidRequestError.at(
            f"{where}.prompt_string",
            f"must hold {MEDIA_MARKER!r} once for each of the {len(data)} images in multimodal_data; it holds {n}",
        )
    return [PictureSource(one, f"{where}.multimodal_data.{k}") for k, one in enumerate(data)]


# --- what is made of them


def bytes_in(source: PictureSource) -> bytes:
    """The file that the address itself holds: base64, alone or in a data URL. Raises InvalidRequestError."""
    text = source.url
    if source.scheme == "data":
        head, comma, text = source.url.partition(",")
        kind, *_, encoding = head[len("data:") :].lower().split(";") if ";" in head else (head, "")
        if not comma or not kind.startswith("image/") or encoding != "base64":
            raise InvalidRequestError.at(source.where, "a data URL must begin with data:image/TYPE;base64,")
    elif source.scheme:
        raise InvalidRequestError.at(source.where, "send base64, or a URL that begins with data:, http: or https:")
    if any(blank in text for blank in "\r\n\t "):
        text = "".join(text.split())
    text += "=" * (-len(text) % 4)
    found: list[bytes] = []
    try:
        for start in range(0, len(text), _STEP):  # other threads run between two steps
            checkpoint()
            found.append(binascii.a2b_base64(text[start : start + _STEP], strict_mode=True))
    except ValueError:
        raise InvalidRequestError.at(source.where, "is no base64") from None
    return b"".join(found)


def opened(data: bytes, where: str) -> PilImage.Image:
    """The file by its header, with no pixel decoded. Raises InvalidRequestError for what is no picture of the known
    formats, and for one that is too large.
    """
    if not data:
        raise InvalidRequestError.at(where, "is empty")
    try:
        picture = PilImage.open(BytesIO(data), formats=FORMATS)
    except Exception as error:
        raise _broken(where, error) from None
    width, height = picture.size
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE and width * height <= MAX_PIXELS):
        raise InvalidRequestError.at(
            where,
            f"an image has at most {MAX_PIXELS} pixels, and {MAX_SIDE} on a side; this one is {width} x {height}",
        )
    return picture


def check_pixels(pictures: Sequence[PilImage.Image], where: str) -> int:
    """The pixels of all. Raises InvalidRequestError for more than a request may have."""
    n = sum(picture.width * picture.height for picture in pictures)
    if n > MAX_ALL_PIXELS:
        raise InvalidRequestError.at(where, f"the images of a request have at most {MAX_ALL_PIXELS} pixels, not {n}")
    return n


def decoded(picture: PilImage.Image, where: str) -> Image:
    """The picture as a model gets it: its first frame, upright as its EXIF says, transparent parts on white. Raises
    InvalidRequestError where its file is broken.
    """
    checkpoint()
    try:
        with picture:
            flat = _flat(ImageOps.exif_transpose(picture))
        return Image.of(flat.width, flat.height, flat.tobytes())
    except DroppedError:
        raise
    except Exception as error:
        raise _broken(where, error) from None


def _flat(picture: PilImage.Image) -> PilImage.Image:
    """In RGB, with 8 bits for each."""
    if picture.mode.startswith(("I", "F")):  # 16 bits of grey: the upper eight count, as for colours
        deep = np.clip(np.asarray(picture), 0, 0xFFFF).astype(np.uint16)
        return PilImage.fromarray((deep >> 8).astype(np.uint8)).convert("RGB")
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    clear = picture.convert("RGBA")
    flat = PilImage.new("RGB", clear.size, _WHITE)
    flat.paste(clear, mask=clear.getchannel("A"))
    return flat


def _broken(where: str, error: Exception) -> InvalidRequestError:
    kinds = ", ".join(FORMATS)
    if isinstance(error, PilImage.DecompressionBombError | PilImage.DecompressionBombWarning):
        return InvalidRequestError.at(where, f"an image has at most {MAX_PIXELS} pixels; this one has more")
    return InvalidRequestError.at(where, f"is no image that can be read, or a broken one; formats are {kinds}")


def check_sight(sees: bool, sources: Sequence[PictureSource]) -> None:
    """Raises NotSupportedError for a picture that the model cannot see."""
    if sources and not sees:
        raise NotSupportedError.at(sources[0].where, BLIND)
