"""Bounded field types of request bodies. Every number that can reach llama.cpp passes through one of these."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, StrictStr

from uad.config import SPEC_TYPE
from uad.errors import ConfigError
from uad.types import Origin

INT32_MAX = 2**31 - 1
MAX_STOPS = 256
MAX_STOP_CHARS = 4096
MAX_STOP_IDS = 4096


def _number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")
    return value


def _pause(value: float) -> float:
    if 0 < value < 1:
        raise ValueError("must be 1 or more, or 0 or -1 for none")
    return value


def _words(value: object) -> object:
    words = [value] if isinstance(value, str) else value
    if isinstance(words, list) and len(words) > MAX_STOPS:
        raise ValueError(f"must hold at most {MAX_STOPS} strings")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError("must be a string or a list of strings")
    return [word for word in words if word]


def _names(value: object) -> object:
    if isinstance(value, str):
        return list(value)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError("must be a list of sampler names, or a string of sampler letters")
    return value


def _types(value: object) -> object:
    """As --spec-type has them, or a list of them."""
    names = value if isinstance(value, list) else [value]
    texts = [name for name in names if isinstance(name, str)]
    if len(texts) < len(names):
        raise ValueError("must be a string or a list of strings")
    try:
        return SPEC_TYPE.parse(",".join(texts))
    except ConfigError as error:
        raise ValueError(str(error)) from None
    except ValueError:
        raise ValueError(f"must be {SPEC_TYPE.expects}") from None


def _parts(value: object) -> object:
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise ValueError("must be a string or a list of text parts")
    return value


_Number = BeforeValidator(_number)
_Finite = Field(allow_inf_nan=False)

Length = Annotated[int, Field(ge=-1, le=INT32_MAX), _Number]
Count = Annotated[int, Field(ge=0, le=INT32_MAX), _Number]
TopK = Annotated[int, Field(ge=-1, le=INT32_MAX), _Number]
Choices = Annotated[int, Field(ge=1, le=1024), _Number]
Seed = Annotated[int, Field(ge=-1, le=2**63 - 1), _Number]
Alternatives = Annotated[int, Field(ge=0, le=100), _Number]
ChatAlternatives = Annotated[int, Field(ge=0, le=20), _Number]
DraftLength = Annotated[int, Field(ge=0, le=512), _Number]
Probability = Annotated[float, _Finite, Field(ge=0.0, le=1.0), _Number]
Temperature = Annotated[float, _Finite, Field(ge=-1.0, le=1000.0), _Number]
Factor = Annotated[float, _Finite, Field(gt=0.0, le=1000.0), _Number]
Penalty = Annotated[float, _Finite, Field(ge=-1000.0, le=1000.0), _Number]
Seconds = Annotated[float, _Finite, Field(ge=-1.0, le=86400.0), AfterValidator(_pause), _Number]
Names = Annotated[list[StrictStr], BeforeValidator(_names), Field(max_length=256)]
Words = Annotated[list[Annotated[StrictStr, Field(max_length=MAX_STOP_CHARS)]], BeforeValidator(_words)]
Ids = Annotated[list[Count], Field(max_length=MAX_STOP_IDS)]
DrafterTypes = Annotated[tuple[Origin, ...], BeforeValidator(_types)]
text_parts = BeforeValidator(_parts)
