"""Which file of a repository is meant: by its name, by a quantization, else the usual one. Knows no network."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from uad.base.common.names import did_you_mean
from uad.base.config import HubModel
from uad.base.errors import ConfigError
from uad.base.gguf import part_of

_USUAL = ("Q4_K_M", "Q8_0")  # llama-server's order; after them the first file
_HEADS = ("mtp-", "eagle3-", "dflash-", "dspark-")
_QUANT = re.compile(
    r"(?<![a-z0-9])(?:(?P<prefix>ud|i1)[-_])?"
    r"(?P<name>i?q\d+(?:_(?:\d+|k|[sml]|x+[sl]|nl))*|tq\d_\d|bf16|fp?16|fp?32|fp8|(?:mx|nv)fp4(?:_moe)?)(?![a-z0-9])",
    re.IGNORECASE,
)
_SAME = {
    "Q3_K": "Q3_K_M",
    "Q4_K": "Q4_K_M",
    "Q5_K": "Q5_K_M",
    "F16": "FP16",
    "FP16": "F16",
    "F32": "FP32",
    "MXFP4": "MXFP4_MOE",
}
"""Other names of a quantization: llama.cpp's short names, and Qwen's."""
_PIECE = re.compile(r"\.gguf[.-](part\d+of\d+|split-[a-z])$", re.IGNORECASE)
_SHOWN = 12


class _Quant(NamedTuple):
    """A quantization in capitals, and what stands before it: UD (unsloth's own mixtures) or I1 (mradermacher's).
    doubt: 0 where the file's name says so, 1 where only a folder does, 2 where the name says something else.
    """

    name: str
    prefix: str
    doubt: int = 0


def choose(model: HubModel, names: Iterable[str]) -> str:
    """The file of a repository that a model is loaded by; of a split one the first part.

    Raises ConfigError that says which files or quantizations there are.
    """
    every = sorted(names)
    files = [name for name in every if name.lower().endswith(".gguf")]
    if not files:
        raise ConfigError(f"{model.repo} has no GGUF file; choose a repository with .gguf files, or convert the model")
    if model.file:
        if model.file not in files:
            raise ConfigError(f"{model.repo} has no file {model.file!r}; {did_you_mean(model.file, files)}")
        part = part_of(model.file)
        return part.names()[0] if part else model.file
    models = _models(files)
    other = _SAME.get(model.quant.upper())
    wanted = (model.quant, *([other] if other else [])) if model.quant else _USUAL
    for quant in wanted:  # the first choice first
        if chosen := _with_quant(quant, models):
            return chosen
    if model.quant or not models:
        raise ConfigError(_none_such(model, models, every))
    return models[0]


def parts(name: str, names: Iterable[str], repo: str) -> tuple[str, ...]:
    """All files that are loaded with this one, itself first. Raises ConfigError naming those that are missing."""
    part = part_of(name)
    if part is None:
        return (name,)
    there = set(names)
    if missing := [name for name in part.names() if name not in there]:
        raise ConfigError(f"{repo}: {name} is one of {part.count} parts, of which are missing: {', '.join(missing)}")
    return part.names()


def projector(model: str, names: Iterable[str]) -> str | None:
    """The projector (mmproj) for this file of a repository, as llama-server chooses it: from its folder, else from the
    nearest one above; of several there, the one whose quantization has the most alike number of bits.
    """
    folder, wanted = model.split("/")[:-1], _bits(model)
    projectors = []
    for name in sorted(names):
        *folders, base = name.split("/")
        if base.lower().endswith(".gguf") and "mmproj" in base.lower() and folders == folder[: len(folders)]:
            projectors.append((-len(folders), abs(_bits(name) - wanted), name))
    return min(projectors)[-1] if projectors else None


def _bits(name: str) -> int:
    """Bits of a file's quantization: Q4_K_M has 4; 0 where its name says none."""
    number = re.search(r"\d+", quant_of(name))
    return int(number[0]) if number else 0


def quant_of(name: str) -> str:
    """The quantization of a file as users write it, in capitals; "" where its name and its folder say none."""
    quants = _quants_of(name)
    return "-".join(filter(None, (quants[0].prefix, quants[0].name))) if quants else ""


def _quants_of(name: str) -> list[_Quant]:
    """The last one in a file's name, which is the one that counts, then those of its folders.

    The last, as `gemma-qat-q4_0-unquantized-Q8_0.gguf` was made from what had another. `BF16/m-Q8_0.gguf` is Q8_0, and
    `BF16/gemma-qat-q4_0-unquantized.gguf` is BF16 where no other file is.
    """
    part = part_of(name)
    *folders, base = (part.stem if part else name[: -len(".gguf")]).split("/")
    by_place = [list(_QUANT.finditer(word)) for word in (base, *reversed(folders))]
    doubts = (0, *(2 if by_place[0] else 1 for _ in folders))
    return [_quant(matches[-1], doubt) for matches, doubt in zip(by_place, doubts, strict=True) if matches]


def _quant(match: re.Match[str], doubt: int = 0) -> _Quant:
    return _Quant(match["name"].upper(), (match["prefix"] or "").upper(), doubt)


def _with_quant(asked: str, models: Sequence[str]) -> str | None:
    """The first file with this quantization; another word, such as a size, is looked for between marks of the name.

    `Q4_K_M` is also `UD-Q4_K_M` where there is no plain one.
    """
    if not (whole := _QUANT.fullmatch(asked)):
        word = re.compile(rf"(?<![a-z0-9]){re.escape(asked)}[.-]", re.IGNORECASE)
        return next((name for name in models if word.search(name)), None)
    wanted = _quant(whole)
    alike = [
        # both BF16/gemma-qat-q4_0-unquantized.gguf and that in Q4_0/ have Q4_0 in their names: the folder decides
        (quant.doubt, quant.prefix != wanted.prefix, any(other.name != wanted.name for other in quants), name)
        for name in models
        for quants in [_quants_of(name)]
        for quant in quants
        if quant.name == wanted.name and wanted.prefix in ("", quant.prefix)
    ]
    return min(alike)[-1] if alike else None


def _models(files: Sequence[str]) -> list[str]:
    """Files that are models by themselves, of split ones the first parts.

    A name with `mtp-` in it is mostly a head (`model-mtp-Q8_0.gguf`). Where all names have it, the models have their
    heads inside (`qwen-9b-mtp-q4_k_m.gguf`). The same holds for `imatrix`, which stands for its data or for what the
    weights were chosen by.
    """
    alone = [
        name
        for name in files
        if ((part := part_of(name)) is None or part.index == 1)
        and not (base := name.rpartition("/")[2].lower()).startswith(_HEADS)
        and "mmproj" not in base
        and ("imatrix" not in base or quant_of(base))
    ]
    bases = {name: name.rpartition("/")[2] for name in alone}
    beyond_doubt = [
        name for name, base in bases.items() if "imatrix" not in base.lower() and not any(map(base.count, _HEADS))
    ]
    return beyond_doubt or alone


def _none_such(model: HubModel, models: Sequence[str], every: Sequence[str]) -> str:
    if not models:
        return f"{model.repo} has no model that can be loaded by itself; name a file with --hf-file"
    quants = list(dict.fromkeys(quant for name in models if (quant := quant_of(name))))
    there = ", ".join(quants[:_SHOWN]) + (" …" if len(quants) > _SHOWN else "")
    pieces = [name for name in every if _PIECE.search(name) and model.quant.lower() in name.lower()]
    joined = f"; {pieces[0]} is a piece that has to be joined with the others first (cat)" if pieces else ""
    return (
        f"{model.repo} has no quantization {model.quant!r}; there are {there or 'none'} (--hf-file names a file)"
        f"{joined}"
    )
