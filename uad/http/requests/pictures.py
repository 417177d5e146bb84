"""The pictures of a request: where they stand in it, and the files that it holds itself. Knows no network.

In the text of a prompt a picture is `IMAGE_PLACE`, which no request knows. A prompt of llama-server's form has
`MEDIA_MARKER` instead.
"""

from __future__ import annotations

import binascii
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from uad.base.checkpoint import checkpoint
from uad.base.errors import InvalidRequestError, NotSupportedError
from uad.base.types import IMAGE_PLACE
from uad.http.requests.fields import CompletionBody, NativeBody, TemplateBody

MEDIA_MARKER: Final = os.environ.get("LLAMA_MEDIA_MARKER") or f"<__media_{secrets.token_hex(16)}__>"
"""Stands for a picture in prompts of llama-server's form. As there it is drawn at each start, so that texts do not hold
it by accident, and `/props` has it.
"""
OLD_MARKER: Final = "<__media__>"
"""The same, before it was drawn at random. It counts where it alone stands as often as there are pictures."""
MAX_PICTURES: Final = 256
"""Pictures of one request."""
BLIND: Final = "image input is not supported: start the server with --mmproj FILE, or leave images out"
_LONGEST_SCHEME: Final = 64
"""With white space before it."""
_STEP: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class PictureSource:
    """A picture as a request names it."""

    url: str
    """An address that holds the picture (`data:`) or says where it is, or base64."""
    where: str
    """The picture's place in the body."""

    @property
    def scheme(self) -> str:
        """In small letters: http, https, file, data; empty for base64."""
        head, colon, _ = self.url[:_LONGEST_SCHEME].lstrip().partition(":")
        return head.lower() if colon else ""


# --- where they stand


def has_pictures(body: TemplateBody) -> bool:
    """Whether the conversation holds any."""
    return any(part.image_url is not None for message in body.messages for part in message.content or ())


def chat_sources(body: TemplateBody, places: Sequence[str] = ()) -> list[PictureSource]:
    """The pictures of a conversation, in its order. places: where they stand in the body, if that is no chat. Raises
    InvalidRequestError for too many.
    """
    sources = [
        PictureSource(part.image_url.url, f"messages.{i}.content.{k}")
        for i, message in enumerate(body.messages)
        for k, part in enumerate(message.content or ())
        if part.image_url is not None
    ]
    check_number(len(sources), "messages")
    if places:
        sources = [PictureSource(picture.url, where) for picture, where in zip(sources, places, strict=True)]
    return sources


def prompted_sources(body: CompletionBody | NativeBody, prompts: Sequence[object]) -> list[list[PictureSource]]:
    """The pictures of each prompt. Raises InvalidRequestError, also where one has a suffix beside them."""
    places = ["prompt"] if len(prompts) == 1 else [f"prompt.{i}" for i in range(len(prompts))]
    sources = [prompt_sources(prompt, where) for prompt, where in zip(prompts, places, strict=True)]
    check_number(sum(map(len, sources)), "prompt")
    if any(sources) and isinstance(body, CompletionBody) and body.suffix:
        raise InvalidRequestError.at("suffix", "a prompt with images has none; leave it out")
    return sources


def check_number(n: int, where: str) -> None:
    """Raises InvalidRequestError for more pictures than a request may have."""
    if n > MAX_PICTURES:
        raise InvalidRequestError.at(where, f"at most {MAX_PICTURES} images in one request")


def prompt_sources(prompt: object, where: str) -> list[PictureSource]:
    """The pictures of a prompt, which it has in llama-server's form only: `{"prompt_string", "multimodal_data"}`.
    Raises InvalidRequestError where its text has not as many markers.
    """
    data = prompt.get("multimodal_data") if isinstance(prompt, Mapping) else None
    if not isinstance(prompt, Mapping) or not data:
        return []
    if not isinstance(data, list) or not all(isinstance(item, str) for item in data):
        raise InvalidRequestError.at(f"{where}.multimodal_data", "must be a list of images in base64")
    check_number(len(data), f"{where}.multimodal_data")
    text = prompt.get("prompt_string")
    if not isinstance(text, str):
        raise InvalidRequestError.at(f"{where}.prompt_string", "must be a string, beside multimodal_data")
    n = text.count(_marker_in(text, len(data)))
    if n != len(data):
        raise InvalidRequestError.at(
            f"{where}.prompt_string",
            f"must hold {MEDIA_MARKER!r} (media_marker of /props) once for each of the {len(data)} images in "
            f"multimodal_data; it holds {n}",
        )
    return [PictureSource(item, f"{where}.multimodal_data.{k}") for k, item in enumerate(data)]


def _marker_in(text: str, n: int) -> str:
    """The marker that stands for each of the n pictures of a prompt."""
    return OLD_MARKER if MEDIA_MARKER not in text and text.count(OLD_MARKER) == n else MEDIA_MARKER


def with_places(text: str, n: int) -> str:
    """A prompt with the places of its n pictures, as they are tokenized."""
    return text.replace(_marker_in(text, n), IMAGE_PLACE)


def with_markers(text: str) -> str:
    """A prompt of a chat as it could be sent, in llama-server's form."""
    return text.replace(IMAGE_PLACE, MEDIA_MARKER)


# --- the files that it holds itself


def bytes_in(source: PictureSource) -> bytes:
    """The file that the address itself holds: base64, alone or in a data URL in any spelling. The type that it names
    does not count. Raises InvalidRequestError.
    """
    text = source.url
    if source.scheme == "data":
        head, comma, text = text.partition(",")
        if not comma:
            raise InvalidRequestError.at(source.where, "a data URL must begin with data:image/TYPE;base64,")
        if "base64" not in (word.strip() for word in head.lower().replace(":", ";").split(";")):
            return unquote_to_bytes(text)
        if "%" in text:
            text = unquote_to_bytes(text).decode("latin-1")
    elif source.scheme:
        raise InvalidRequestError.at(source.where, "send base64, or a URL that begins with data:, http: or https:")
    return _of_base64(text, source.where)


def _of_base64(text: str, where: str) -> bytes:
    """Also in the letters for URLs, in lines, and without the padding at its end."""
    if any(blank in text for blank in "\r\n\t "):
        text = "".join(text.split())
    text = text.replace("-", "+").replace("_", "/").rstrip("=")
    text += "=" * (-len(text) % 4)
    pieces: list[bytes] = []
    try:
        for start in range(0, len(text), _STEP):  # other threads run between two steps
            checkpoint()
            pieces.append(binascii.a2b_base64(text[start : start + _STEP], strict_mode=True))
    except ValueError:
        raise InvalidRequestError.at(where, "is no base64") from None
    return b"".join(pieces)


def check_sight(sees: bool, sources: Sequence[PictureSource]) -> None:
    """Raises NotSupportedError for a picture that the model cannot see."""
    if sources and not sees:
        raise NotSupportedError.at(sources[0].where, BLIND)
