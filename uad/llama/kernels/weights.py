"""Which kernels multiply a model's weights: by their types, and by where llama.cpp says that it put them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from uad.base.config import ModelConfig
from uad.base.gguf import Tensor, all_tensors
from uad.llama.backend.devices import every
from uad.llama.backend.ggml import type_name
from uad.llama.kernels import use
from uad.llama.kernels.library import BUFFER
from uad.llama.kernels.sizes import packed_bytes

# load_tensors:      CPU_UAD model buffer size =   891.37 MiB
# load_tensors: RPC0[10.0.0.2:50052] model buffer size =   891.37 MiB
_SIZE = re.compile(r"([^\s\[]+)(?:\[(\S+)\])? model buffer size =\s*([\d.]+) MiB")
_MIB = 1 << 20
_OF_CPU = "CPU"  # its buffers: CPU, CPU_Mapped, CPU_REPACK, CPU_UAD
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_LOOKED_UP = re.compile(
    r"^(position_embd|token_types|per_layer_token_embd)\.|conv|\.ssm_(a|d)$|_norm\.|\.(scale|bias)$"
)
"""Matrices of which rows are looked up, or that run over a text: they are small, or multiplied by nothing."""
_ROUNDING, _LEAST_SHARE = 0.02, 0.005  # of what the log says of sizes; of weights that a line is worth
_EXPERTS = "_exps"
_CROSSED = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")  # of products of activations


def buffers(lines: Iterable[str]) -> dict[str, int]:
    """Bytes of weights in each kind of memory, by llama.cpp's log of loading them; empty where it has other words."""
    sizes: Counter[str] = Counter()
    for line in lines:
        if match := _SIZE.search(line):
            sizes[_device(match[1], match[2])] += int(float(match[3]) * _MIB)
    return dict(sizes)


def _device(name: str, address: str | None) -> str:
    """The name of a worker's device, whose buffers are numbered by each worker from 0 on; other names as they are."""
    if address is None:
        return name
    return next((device.name for device in every() if device.is_remote and device.description == address), name)


@dataclass(frozen=True, slots=True)
class Weights:
    """Which kernels multiply the weights of a model. own: the share that those of uad do, 1 for all; left: types that
    llama.cpp's own do on this machine's CPU; places: shares in other memory, by its name; adapters: types of adapters
    whose products are left to llama.cpp; slow: types that uad's multiply and llama.cpp's would in less time.
    """

    own: float
    left: tuple[str, ...] = ()
    places: Mapping[str, float] = field(default_factory=dict)
    adapters: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()

    @property
    def are_ours(self) -> bool:
        """Whether uad's kernels multiply all of them."""
        return self.own == 1 and not self.adapters


def of(config: ModelConfig, there: Mapping[str, int]) -> Weights:
    """Shares of a loaded model's weights; there: see `buffers`. Raises ModelLoadError for a file that is gone."""
    kernels = use.of(config)
    taken = {name.upper() for name in kernels.types}
    tensors = _multiplied(all_tensors(config.path), config.embeds)
    n_bytes = _bytes_of_types(tensors)
    total = max(n_bytes.total(), 1)
    packed = sum(packed_bytes(tensor) for tensor in tensors if type_name(tensor.kind) in taken)
    lie = there.get(BUFFER, 0)
    is_all_there = bool(lie) and lie + _MIB * _ROUNDING >= packed * (1 - _ROUNDING)
    part = 1.0 if is_all_there else lie / max(packed, 1)
    own = part * sum(n for kind, n in n_bytes.items() if kind in taken) / total
    places = {name: min(n / total, 1 - own) for name, n in sorted(there.items()) if not name.startswith(_OF_CPU)}
    others = [kind for kind, _ in n_bytes.most_common() if kind not in taken or not is_all_there]
    is_rest = 1 - own - sum(places.values()) > _LEAST_SHARE or (not places and others)
    slow = tuple(name for name in kernels.types if own and name.upper() in n_bytes and kernels.slower(name))
    return Weights(own, tuple(others) if is_rest else (), places, _adapters(config, kernels), slow)


def note(config: ModelConfig, weights: Weights) -> str:
    """The line at start: what computes this model."""
    kernels = use.of(config)
    places = " and ".join(f"{_percent(share)} on {name}" for name, share in weights.places.items())
    words = [f"{places} in kernels that are not known here"] if places else []
    if places and not weights.own and not weights.left:
        return f"kernels: of the weights {words[0]}"
    if weights.left and kernels.library is not None:
        words += [f"{', '.join(weights.left)} in llama.cpp's own"]
    if weights.adapters:
        words += [f"adapters of {', '.join(weights.adapters)} in llama.cpp's own"]
    words += map(kernels.slower, weights.slow)
    some = f"{_percent(weights.own)} of the weights" if weights.own else "no weights"
    return "; ".join((kernels.note("all weights" if weights.own == 1 else some), *words))


def kinds(config: ModelConfig) -> str:
    """Each type's share of the weights that passes multiply, and which kernels do so on this machine's CPU. Raises
    ModelLoadError.
    """
    n_bytes = _bytes_of_types(_multiplied(all_tensors(config.path)))
    taken = {name.upper() for name in use.of(config).types}
    sides = {"in uad's kernels on the CPU": True, "in llama.cpp's own": False}
    shares = {kind: f"{kind} {_percent(n / n_bytes.total())}" for kind, n in n_bytes.most_common()}
    listed = {
        side: [text for kind, text in shares.items() if (kind in taken) == is_ours] for side, is_ours in sides.items()
    }
    return "; ".join(f"{', '.join(texts)} {side}" for side, texts in listed.items() if texts) or "none"


def _bytes_of_types(tensors: Iterable[Tensor]) -> Counter[str]:
    n_bytes: Counter[str] = Counter()
    for tensor in tensors:
        n_bytes[type_name(tensor.kind)] += tensor.n_bytes
    return n_bytes


def _percent(share: float) -> str:
    """A share that is not all of it, and is something, is never shown as 100 % or 0 %."""
    percent = int(100 * share)
    return f"{percent} %" if percent or not share else "less than 1 %"


def _multiplied(tensors: Iterable[Tensor], embeds: bool = False) -> list[Tensor]:
    """The matrices that passes multiply: an embedding where it is the output's matrix, too. embeds: there is no such
    output.
    """
    matrices = [tensor for tensor in tensors if len(tensor.shape) > 1 and not _LOOKED_UP.search(tensor.name)]
    has_output = embeds or any(tensor.name == _OUTPUT for tensor in matrices)
    return [tensor for tensor in matrices if tensor.name != _EMBEDDING or not has_output]


def _adapters(config: ModelConfig, kernels: use.Kernels) -> tuple[str, ...]:
    """Types of adapters' matrices whose products do not run in uad's kernels: those of experts, and rare ones."""
    if kernels.library is None:
        return ()
    left: Counter[str] = Counter()
    for lora in config.loras:
        for tensor in all_tensors(lora.path):
            kind = type_name(tensor.kind)
            if _EXPERTS in tensor.name or kind.lower() not in _CROSSED or not use.keep_rows(config):
                left[kind] += 1
    return tuple(kind for kind, _ in left.most_common())
