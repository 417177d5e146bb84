"""GGUF files as `scale.py` reads and writes them, by the optional package gguf."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from geometry import WIDTH_STEP

from uad.base.errors import ConfigError, ModelLoadError

if TYPE_CHECKING:
    from gguf import GGUFReader, GGUFWriter, ReaderField

TERNARY = ("TQ1_0", "TQ2_0")


def import_gguf() -> None:
    """ConfigError with the remedy if the optional package gguf is missing."""
    try:
        import gguf  # noqa: F401
    except ImportError as error:
        raise ConfigError("scaling a model needs the gguf package: pip install 'uad[lab]'") from error


def quantizable() -> tuple[str, ...]:
    """Names of the types that can be written and keep the function of a model not trained for them, which ternary ones
    do not.
    """
    import_gguf()
    from gguf import GGMLQuantizationType, quants

    probe = np.zeros((1, WIDTH_STEP), np.float32)
    names = []
    for kind in GGMLQuantizationType:
        if kind.name in TERNARY:
            continue
        with contextlib.suppress(NotImplementedError):
            quants.quantize(probe, kind)
            names.append(kind.name.lower())
    return tuple(names)


def read_gguf(path: Path) -> GGUFReader:
    from gguf import GGUFReader

    if not path.is_file():
        raise ModelLoadError(f"{path}: no such file")
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ModelLoadError(f"{path}: not a GGUF file")
        return GGUFReader(path)
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
        raise ModelLoadError(f"{path}: damaged or truncated GGUF file ({error})") from error


@contextlib.contextmanager
def replacing(out: Path, architecture: str) -> Iterator[GGUFWriter]:
    """A writer whose file takes the place of `out` once the block ends well; otherwise nothing is left of it."""
    from gguf import GGUFWriter

    part = out.with_name(out.name + ".part")
    writer = GGUFWriter(part, architecture)
    try:
        yield writer
        writer.close()
        part.replace(out)
    finally:
        writer.close()
        part.unlink(missing_ok=True)


def raw_value(field: ReaderField) -> Any:
    # strings as bytes: a vocabulary may hold pieces that are not UTF-8
    from gguf import GGUFValueType

    if field.types[-1] == GGUFValueType.STRING:
        texts = [bytes(field.parts[index]) for index in field.data]
        return texts if field.types[0] == GGUFValueType.ARRAY else texts[0]
    return field.contents()


def copy_field(writer: GGUFWriter, key: str, field: ReaderField) -> None:
    """Write a value of another file's metadata."""
    from gguf import GGUFValueType

    kind, of = field.types[0], field.types[-1]
    writer.add_key_value(key, raw_value(field), kind, of if kind == GGUFValueType.ARRAY else None)
