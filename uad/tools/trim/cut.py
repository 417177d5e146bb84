"""Writes a draft with fewer tokens: rows and lists are cut, ids renumbered, all else is copied as it is. Must not know
why tokens stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from uad.base.common.files import check_room, is_folder, is_there, size_text, why_not_writable
from uad.base.errors import ConfigError, ModelLoadError
from uad.base.gguf import GgufFile, NewTensor, Tensor, array, number, write
from uad.tools.trim.choose import DEFAULT_KEEP
from uad.tools.trim.vocabulary import BPE, MERGES, MODEL, SCORES, SPM, TOKENS, TYPES, Vocabulary, id_keys, ids_under

_EMBEDDING = "token_embd.weight"
_ROWS = re.compile(
    r"(token_embd|output|per_layer_token_embd)\.weight|output\.bias|blk\.\d+\.nextn\.(embed_tokens|shared_head_head)\.weight"
)
_SIZE_KEY = re.compile(r"[^.]+\.vocab_size")
_PARTS = "split.count"


@dataclass(frozen=True, slots=True)
class Sizes:
    """A tensor's bytes before and after."""

    name: str
    before: int
    after: int


def check_source(file: GgufFile, n_vocab: int) -> None:
    """Raise ConfigError where a file is no whole model that can be cut, ModelLoadError where it is damaged."""
    if (file.whole(_PARTS) or 1) > 1:
        raise ConfigError(f"{file.path}: one of several parts of a model; merge them first (llama-gguf-split --merge)")
    if not any(tensor.name == _EMBEDDING for tensor in row_tensors(file, n_vocab)):
        raise ConfigError(
            f"{file.path}: tensor {_EMBEDDING} is missing; a file with a vocabulary only cannot be trimmed"
        )


def row_tensors(file: GgufFile, n_vocab: int) -> tuple[Tensor, ...]:
    """The tensors that have one row per token. Raises ConfigError where another one may have, ModelLoadError where rows
    do not fit.
    """
    tensors = tuple(tensor for tensor in file.tensors if _ROWS.fullmatch(tensor.name))
    for tensor in file.tensors:
        if tensor in tensors and (tensor.shape[-1] != n_vocab or tensor.n_bytes % n_vocab):
            raise ModelLoadError(
                f"{file.path}: {tensor.name} has {tensor.shape[-1]} rows for {n_vocab} tokens; the file is damaged"
            )
        if tensor not in tensors and n_vocab in tensor.shape:
            raise ConfigError(
                f"{file.path}: tensor {tensor.name} has a dimension of {n_vocab}, as many as there are tokens, and is "
                "not known here; "
                "this model cannot be trimmed"
            )
    return tensors


def check_output(source: Path, out: Path) -> None:
    """Raise ConfigError where `out` cannot be written, or is the source."""
    if is_folder(out):
        raise ConfigError(f"cannot write {out}: it is a folder; name a file")
    if any(is_there(path) and path.samefile(source) for path in (out, _part(out), _converted(out))):
        raise ConfigError(f"cannot write {out}: it is the draft itself; name another file")
    if not is_folder(out.resolve().parent):
        raise ConfigError(f"cannot write {out}: there is no folder {out.parent}; make it first")
    if why := why_not_writable(out):
        raise ConfigError(f"cannot write {out}: {why}")


def write_trimmed(
    file: GgufFile,
    vocabulary: Vocabulary,
    kept: Sequence[int],
    out: Path,
    progress: Callable[[int, int], None],
    convert: Callable[[Path, Path], None] | None = None,
) -> tuple[Sizes, ...]:
    """Write `out` with only the tokens `kept` (ids in order); returns what became of the tensors that were cut.
    Overwrites.

    It is written beside its place and moved there whole; `convert` may write the file (first argument) again (second)
    before that. Raises ConfigError where it cannot be written, and what `convert` does.
    """
    rows = {tensor.name for tensor in row_tensors(file, len(vocabulary.tokens))}
    tensors = [
        NewTensor(tensor.name, tensor.shape, tensor.kind, (tensor.span,))
        if tensor.name not in rows
        else _cut(tensor, len(vocabulary.tokens), kept)
        for tensor in file.tensors
    ]
    part = _part(out)
    try:
        check_room(out, sum(tensor.n_bytes for tensor in tensors))
        write(file, part, _replaced(file, vocabulary, kept), tensors, progress)
        if convert is not None:
            convert(part, _converted(out))
            _converted(out).replace(part)
        part.replace(out)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        for path in (part, _converted(out)):
            with suppress(OSError):
                path.unlink()
    both = zip(file.tensors, tensors, strict=True)
    return tuple(Sizes(old.name, old.n_bytes, new.n_bytes) for old, new in both if old.name in rows)


def _part(out: Path) -> Path:
    return out.with_name(out.name + ".part")


def _converted(out: Path) -> Path:
    return out.with_name(out.name + ".converted")


def _cut(tensor: Tensor, n_vocab: int, kept: Sequence[int]) -> NewTensor:
    """Rows are whole blocks, so they are copied as they are stored, those that follow each other in one stretch."""
    start, n_row = tensor.span[0], tensor.n_bytes // n_vocab
    spans = []
    # ids that follow each other are as far from their places: 4 5 6 9 at the places 0 1 2 3 differ by 4 4 4 6, so the
    # rows 4 to 6 are one stretch, and row 9 is another
    for _, run in groupby(enumerate(kept), lambda pair: pair[1] - pair[0]):
        ids = [id_ for _, id_ in run]
        spans.append((start + ids[0] * n_row, start + (ids[-1] + 1) * n_row))
    return NewTensor(tensor.name, (*tensor.shape[:-1], len(kept)), tensor.kind, spans)


def _replaced(file: GgufFile, vocabulary: Vocabulary, kept: Sequence[int]) -> dict[str, bytes]:
    """The metadata that changes, as it stands in a file."""
    lists = {key: _picked(file, key, kept) for key in (TOKENS, TYPES, SCORES) if key in file.values}
    if MERGES in file.values:
        lists[MERGES] = _picked(file, MERGES, kept_merges(vocabulary, kept))
    new = {id_: place for place, id_ in enumerate(kept)}
    ids: dict[str, bytes] = {}
    for key in id_keys(file):
        value = file.values[key]
        # ids of no token, such as -1, stay what they are
        packed = [number(value.kind, new.get(id_, id_)) for id_ in ids_under(file, key)]
        ids[key] = array(value.kind, packed) if value.is_array else packed[0]
    sizes = [
        key for key, value in file.values.items() if _SIZE_KEY.fullmatch(key) and value.is_whole and not value.is_array
    ]
    return lists | ids | {key: number(file.values[key].kind, len(kept)) for key in sizes}


def _picked(file: GgufFile, key: str, places: Sequence[int]) -> bytes:
    elements = file.elements(key)
    return array(file.values[key].kind, [file.bytes_of(elements[place]) for place in places])


def kept_merges(vocabulary: Vocabulary, kept: Sequence[int]) -> list[int]:
    """Which merges stay, by their place in the list: those of whose parts and result none was cut.

    A part that is no token of its own was not cut: in some vocabularies merges go by way of such texts.
    """
    gone = set(vocabulary.tokens) - {vocabulary.tokens[id_] for id_ in kept}
    return [i for i, (left, right) in enumerate(vocabulary.merges) if gone.isdisjoint((left, right, left + right))]


# --- what it would bring


_LEAST_SAVING = 0.15


def saving(path: Path, keep: int = DEFAULT_KEEP) -> str | None:
    """A sentence about it; None where a draft of `keep` tokens would not be smaller by 15 %, or cannot be made."""
    try:
        with GgufFile(path) as file:
            return _saving(file, keep)
    except (ConfigError, ModelLoadError):
        return None


def _saving(file: GgufFile, keep: int) -> str | None:
    if file.text(MODEL) not in (BPE, SPM) or TOKENS not in file.values:
        return None
    n_vocab = len(file.elements(TOKENS))
    check_source(file, n_vocab)
    rows = sum(tensor.n_bytes for tensor in row_tensors(file, n_vocab))
    lists = sum(
        value.span[1] - value.span[0] for key, value in file.values.items() if key in (TOKENS, TYPES, SCORES, MERGES)
    )
    saved = (rows + lists) * (1 - min(keep / n_vocab, 1))
    if saved < _LEAST_SAVING * file.size:
        return None
    part = rows / sum(tensor.n_bytes for tensor in file.tensors)
    return (
        f"the draft's vocabulary is {100 * part:.0f} % of its weights; `uad trim` would make the file about "
        f"{size_text(file.size - saved)} "
        f"({size_text(file.size)} now)"
    )
