"""How large a scaled model becomes: from a source and a number of parameters to width, layers and feed-forward.

Arithmetic only: knows no files and no tensors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from uad.base.errors import ConfigError

WIDTH_STEP = 256  # the block size of K-quants: whatever is made of the file later, rows divide into blocks
ASPECT = 113.0  # width over layers, as in models of 1b (2048 x 18) to 7b (4096 x 32)
MAX_PARAMS = 1_000_000_000_000
NEAR_MISS, MAX_MISS = 0.05, 0.25
UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


@dataclass(frozen=True, slots=True)
class Geometry:
    """The sizes of a model like llama's; tied: the output matrix is the embedding; biased: queries, keys and values
    have biases, as in qwen2.
    """

    vocab: int
    width: int
    layers: int
    ff: int
    heads: int
    heads_kv: int
    head_dim: int
    tied: bool = True
    biased: bool = False

    @property
    def layer_shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensor name within a layer to numpy shape (rows, columns)."""
        q, kv = self.heads * self.head_dim, self.heads_kv * self.head_dim
        biases: dict[str, tuple[int, ...]] = (
            {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)} if self.biased else {}
        )
        return biases | {
            "attn_norm.weight": (self.width,),
            "attn_q.weight": (q, self.width),
            "attn_k.weight": (kv, self.width),
            "attn_v.weight": (kv, self.width),
            "attn_output.weight": (self.width, q),
            "ffn_norm.weight": (self.width,),
            "ffn_gate.weight": (self.ff, self.width),
            "ffn_up.weight": (self.ff, self.width),
            "ffn_down.weight": (self.width, self.ff),
        }

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensor name to numpy shape, in file order."""
        table: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (self.vocab, self.width),
            "output_norm.weight": (self.width,),
        }
        if not self.tied:
            table["output.weight"] = (self.vocab, self.width)
        for layer in range(self.layers):
            table |= {f"blk.{layer}.{name}": shape for name, shape in self.layer_shapes.items()}
        return table

    @property
    def params(self) -> int:
        """Parameters in all, embeddings included."""
        per_layer = sum(math.prod(shape) for shape in self.layer_shapes.values())
        return self.layers * per_layer + (1 if self.tied else 2) * self.vocab * self.width + self.width


def short(params: int) -> str:
    """A parameter count for people: 5770496 -> '5.8M'."""
    for unit in ("B", "M", "K"):
        size = UNITS[unit.lower()]
        if params >= 0.95 * size:
            return f"{params / size:.1f}{unit}"
    return str(params)


def parse_params(params: str | int) -> int:
    """A number of parameters from '1b', '300m', '0.5B' or 7000000000; ConfigError on anything else."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)([kmb]?)", str(params).strip().lower(), re.ASCII)
    if match is None:
        raise ConfigError(f"--params {params!r} is not a number of parameters; write it like 1b, 300m or 7b")
    count = round(float(match[1]) * UNITS[match[2]])
    if not 0 < count <= MAX_PARAMS:
        raise ConfigError(
            f"--params {params!r} is out of range; it goes from the size of the source to {short(MAX_PARAMS)}"
        )
    return count


def plan(source: Geometry, params: int) -> Geometry:
    """The geometry of about `params` parameters that holds `source`: same head size, head ratio and feed-forward ratio.

    Among the widths whose best number of layers is within 5 % of `params`, the one with the most usual width per layer
    wins; where none is that near, the nearest. ConfigError if `params` is smaller than the source or cannot be met
    within a quarter.
    """
    if params < source.params:
        raise ConfigError(
            f"--params {short(params)} is smaller than the source ({short(source.params)} parameters); scaling only "
            "adds"
        )
    fits = list(_fits(source, params))
    best = min(fits, key=lambda fit: _miss(fit, params))
    if _miss(best, params) > MAX_MISS:
        raise ConfigError(
            f"--params {short(params)} cannot be met from this source; the nearest is {short(best.params)}"
        )
    near = [fit for fit in fits if _miss(fit, params) <= NEAR_MISS]
    return min(near, key=lambda fit: abs(math.log(fit.width / fit.layers / ASPECT)), default=best)


def _fits(source: Geometry, params: int) -> Iterator[Geometry]:
    # heads, and heads per KV head, must come out whole
    step = math.lcm(WIDTH_STEP, source.head_dim * source.heads // source.heads_kv)
    width = _ceil_to(source.width, step)
    while True:
        empty = replace(_widen(source, width), layers=0)
        per_layer = replace(empty, layers=1).params - empty.params
        fit = replace(empty, layers=max(source.layers, round((params - empty.params) / per_layer)))
        yield fit
        if fit.params > 2 * params:  # wider is only heavier
            return
        width += step


def _widen(source: Geometry, width: int) -> Geometry:
    ratio = source.heads // source.heads_kv
    heads = _ceil_to(math.ceil(source.heads * width / source.width), ratio)
    ff = _ceil_to(math.ceil(source.ff * width / source.width), WIDTH_STEP)
    return replace(source, width=width, ff=ff, heads=heads, heads_kv=heads // ratio)


def _miss(fit: Geometry, params: int) -> float:
    return abs(fit.params / params - 1)


def _ceil_to(value: int, step: int) -> int:
    return -(-value // step) * step
