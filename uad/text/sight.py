"""Images that a target sees among the ids of prompts. Thread-safe: nothing here touches a context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from uad.base.checkpoint import checkpoint
from uad.base.errors import InvalidRequestError
from uad.base.types import IMAGE_PLACE, Image, PlacedImage, Request
from uad.base.types.images import ImagePart
from uad.text.templates.seams import Part

_NO_SIGHT = "this server cannot see images: it was started without a projector (--mmproj FILE)"


class Layouts(Protocol):
    """The layout of images for a model; `uad.llama.projector.Projector` is one."""

    @property
    def is_causal(self) -> bool:
        """Whether a row of an image sees only those before it."""
        ...

    def layout(self, image: Image) -> tuple[ImagePart, ...]:
        """The parts that stand for an image in a prompt. Raises InvalidRequestError."""
        ...


class Sight:
    """Puts images into prompts and finds them there.

    stand_in: the target's ids of what drafters read in place of an image. most_rows: of one pass, into which an image
    has to fit whose rows see each other.
    """

    def __init__(self, layouts: Layouts, stand_in: Sequence[int], most_rows: int) -> None:
        self._layouts = layouts
        self._stand_in = tuple(stand_in)
        self._most_rows = most_rows

    def layout(self, image: Image) -> tuple[ImagePart, ...]:
        """The parts that stand for an image in a prompt. Raises InvalidRequestError."""
        return self._layouts.layout(image)

    def placed(self, request: Request) -> Request:
        """The request with the places of its images, and with a prompt for its drafters. Raises InvalidRequestError
        where the prompt has other images, or what is asked for cannot be had with images.
        """
        if request.prompt_probs:
            raise InvalidRequestError("probabilities of a prompt are not known where it has images", "logprobs")
        ids, placed, drafted, at = request.prompt, list[PlacedImage](), list[int](), 0
        for image in request.images:
            is_first = True
            for i, part in enumerate(self._layouts.layout(image)):
                if not part.n_rows:
                    continue
                start = next((k for k in range(at, len(ids)) if ids[k] < 0), len(ids))
                end = start + len(part.ids)
                if ids[start:end] != part.ids:
                    raise InvalidRequestError("the prompt has not the places of its images", "prompt")
                self._check_size(part)
                placed.append(PlacedImage(image, i, start, end, part.n_rows))
                drafted += [*ids[at:start], *(self._stand_in if is_first else ())]
                is_first, at = False, end
        if any(id_ < 0 for id_ in ids[at:]):
            raise InvalidRequestError("the prompt has more places of images than images", "prompt")
        if at == len(ids):
            raise InvalidRequestError("the prompt ends with an image; it needs text after its last one", "prompt")
        drafted_prompt = request.drafted_prompt or (*drafted, *ids[at:])
        return replace(request, placed=tuple(placed), drafted_prompt=drafted_prompt)

    def _check_size(self, part: ImagePart) -> None:
        if not self._layouts.is_causal and part.n_rows > self._most_rows:
            raise InvalidRequestError(
                f"an image of {part.n_rows} tokens is read at once with this model, and {self._most_rows} are the most "
                "here; start the server with a larger --ubatch-size, without --exact, or with a smaller "
                "--image-max-tokens",
                "images",
            )


def with_images(
    parts: Sequence[Part],
    images: Sequence[Image],
    sight: Sight | None,
    encode: Callable[[Sequence[Part], bool], list[int]],
) -> list[int]:
    """The ids of a prompt with a marker for each of its images. Text between two of them is tokenized by itself, as in
    llama-server. encode(parts, is_first): the ids of text. Raises InvalidRequestError.
    """
    if sight is None:
        raise no_sight()
    stretches: list[list[Part]] = [[]]
    for part in parts:
        first, *others = part.text.split(IMAGE_PLACE)
        stretches[-1].append(replace(part, text=first))
        stretches += [[replace(part, text=text)] for text in others]
    if len(stretches) - 1 != len(images):
        raise InvalidRequestError(
            f"the prompt has {len(stretches) - 1} places for {len(images)} images; does the chat template leave some "
            "out?",
            "messages",
        )
    ids = encode(stretches[0], True)
    for image, stretch in zip(images, stretches[1:], strict=True):
        checkpoint()
        ids += [id_ for part in sight.layout(image) for id_ in part.ids]
        ids += encode(stretch, False)
    return ids


def no_sight() -> InvalidRequestError:
    """The error of a request with images where there is no projector."""
    return InvalidRequestError(_NO_SIGHT, "messages")
