"""The line about kernels: which of a target's weights run in uad's, wherever they lie and whatever they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.models import TARGET

from uad.base.config import LoraConfig, ModelConfig, Place
from uad.base.gguf import Tensor
from uad.llama.kernels import use, weights
from uad.llama.kernels.graphs import types
from uad.llama.memory import Way
from uad.llama.model import Model, written_as
from uad.runtime.target import are_alike

MIB = 1 << 20
CONFIG = ModelConfig(TARGET, n_threads=1)
TYPES = {**types(), "q1_0": 41, "tq1_0": 34}
TQ1_0 = 36  # llama.cpp's number of such files


def tensor(name: str, kind: str, mib: int) -> Tensor:
    return Tensor(name, (256, 256), TYPES[kind], (0, mib * MIB))


def own(*types: str, reason: str = "") -> Any:
    library = None if reason else SimpleNamespace(version="1", digest="a")
    return use.Kernels(library, "avx2", (*types, *use.OF_PASSES), {}, reason)  # type: ignore[arg-type]


FILE = (tensor("token_embd.weight", "q8_0", 50), tensor("blk.0.ffn_up.weight", "q8_0", 90))
RARE = (*FILE, tensor("output.weight", "tq1_0", 10))
TIED = (tensor("token_embd.weight", "q8_0", 50), tensor("blk.0.ffn_up.weight", "q8_0", 50))
OUTPUT = tensor("output.weight", "q8_0", 10)
CASES = {
    "all here": ((*FILE, OUTPUT), {"CPU_Mapped": 50, "CPU_UAD": 100}, "avx2, all weights, attention, activations"),
    "a tied embedding": (TIED, {"CPU_Mapped": 50, "CPU_UAD": 100}, "avx2, all weights, attention, activations"),
    "of a rare type": (RARE, {"CPU": 60, "CPU_UAD": 90}, "avx2, 90 % of the weights, …; TQ1_0 in llama.cpp's own"),
    "nearly all": (
        (*FILE, tensor("output.weight", "tq1_0", 1)),
        {"CPU_UAD": 90, "CPU_Mapped": 51},
        "avx2, 98 % of the weights, …; TQ1_0 in llama.cpp's own",
    ),
    "all of a rare type": ((RARE[-1],), {"CPU_Mapped": 10}, "avx2, no weights, …; TQ1_0 in llama.cpp's own"),
    "in plain memory": ((*FILE, OUTPUT), {"CPU_Mapped": 150}, "avx2, no weights, …; Q8_0 in llama.cpp's own"),
    "rearranged by llama.cpp": ((*FILE, OUTPUT), {"CPU_REPACK": 100}, "avx2, no weights, …; Q8_0 in llama.cpp's own"),
    "some in plain memory": (
        (*FILE, OUTPUT),
        {"CPU_Mapped": 100, "CPU_UAD": 50},
        "avx2, 50 % of the weights, …; Q8_0 in llama.cpp's own",
    ),
    "on a worker": ((*FILE, OUTPUT), {"RPC0": 100, "CPU": 50}, "of the weights 100 % on RPC0 in kernels that …"),
    "on two, in the order of names": (
        (*FILE, OUTPUT),
        {"RPC1": 75, "RPC0": 25},
        "of the weights 25 % on RPC0 and 75 % on RPC1 in …",
    ),
    "split": (
        (*FILE, OUTPUT),
        {"CPU_UAD": 25, "RPC0": 75},
        "avx2, 25 % of the weights, …; 75 % on RPC0 in kernels that are not known here",
    ),
    "in memory of a GPU's host": (
        (*FILE, OUTPUT),
        {"CUDA_Host": 50, "CUDA0": 50},
        "of the weights 50 % on CUDA0 and 50 % on CUDA_Host in kernels …",
    ),
    "a rare type beside a worker": (
        (*FILE, RARE[-1]),
        {"CPU_UAD": 45, "CPU_Mapped": 10, "RPC0": 45},
        "avx2, 45 % of the weights, …; 45 % on RPC0 in kernels that are not known here; Q8_0, TQ1_0 in llama.cpp's own",
    ),
    "other words in the log": ((*FILE, OUTPUT), {}, "avx2, no weights, …; Q8_0 in llama.cpp's own"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_line_says_what_the_weights_run_in(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, there, expected = CASES[name]
    monkeypatch.setattr(use, "of", lambda config: own("q8_0"))
    monkeypatch.setattr(weights, "all_tensors", lambda path: iter(tensors))
    monkeypatch.setattr(weights, "packed_bytes", lambda one: one.n_bytes)
    found = weights.of(CONFIG, {place: n * MIB for place, n in there.items()})
    line = weights.note(CONFIG, found)
    at = 0
    for part in f"kernels: {expected}".split("…"):
        assert part in line[at:], line
        at = line.index(part, at) + len(part)
    assert found.are_ours == name.startswith(("all here", "a tied"))


@pytest.mark.parametrize(
    ("kind", "name", "left"),
    [
        ("f16", "blk.0.attn_q.weight.lora_a", ()),
        ("q8_0", "blk.0.attn_q.weight.lora_a", ()),
        ("q4_K", "blk.0.attn_q.weight.lora_a", ("Q4_K",)),
        ("f16", "blk.0.ffn_up_exps.weight.lora_a", ("F16",)),
    ],
)
def test_adapters_count_too(kind: str, name: str, left: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use, "of", lambda config: own("q8_0"))
    files = {TARGET: (*FILE, OUTPUT), Path("a.gguf"): (tensor(name, kind, 1),)}
    monkeypatch.setattr(weights, "all_tensors", lambda path: iter(files[path]))
    monkeypatch.setattr(weights, "packed_bytes", lambda one: one.n_bytes)
    config = replace(CONFIG, loras=(LoraConfig(Path("a.gguf")),))
    found = weights.of(config, {"CPU_UAD": 100 * MIB})
    assert found.adapters == left
    assert found.are_ours == (not left)
    assert (f"adapters of {', '.join(left)} in llama.cpp's own" in weights.note(config, found)) == bool(left)


@pytest.mark.parametrize(
    ("taken", "tensors", "expected"),
    [
        (("q8_0",), RARE, "Q8_0 90 % in uad's kernels on the CPU; TQ1_0 10 % in llama.cpp's own"),
        (("q8_0", "tq1_0"), RARE, "Q8_0 90 %, TQ1_0 10 % in uad's kernels on the CPU"),
        ((), FILE, "Q8_0 100 % in llama.cpp's own"),
        ((), (), "none"),
    ],
)
def test_each_types_share_and_kernels_are_shown(
    taken: tuple[str, ...], tensors: tuple[Tensor, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(use, "of", lambda config: own(*taken))
    monkeypatch.setattr(weights, "all_tensors", lambda path: iter(tensors))
    assert weights.kinds(CONFIG) == expected


def test_without_kernels_the_line_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use, "of", lambda config: own(reason="--no-kernels"))
    monkeypatch.setattr(weights, "all_tensors", lambda path: iter(FILE))
    found = weights.of(CONFIG, {"CPU_Mapped": 140 * MIB})
    assert (found.own, found.left) == (0, ("Q8_0",))
    assert weights.note(CONFIG, found) == "kernels: llama.cpp's own (--no-kernels)"


def test_sizes_are_read_from_llama_cpps_log() -> None:
    lines = (
        "load_tensors:   CPU_Mapped model buffer size =   891.50 MiB",
        "load_tensors: RPC0[10.0.0.2:50052] model buffer size =     2.00 MiB",
        "load_tensors: RPC0[10.0.0.2:50052] model buffer size =     1.00 MiB",
        "llama_kv_cache:        CPU KV buffer size =   192.00 MiB",
    )
    assert weights.buffers(lines) == {"CPU_Mapped": int(891.5 * MIB), "RPC0": 3 * MIB}


@pytest.mark.parametrize(
    ("found", "is_whole", "alike"),
    [
        (weights.Weights(1.0), True, True),
        (weights.Weights(1.0), False, False),
        (weights.Weights(1.0, adapters=("F16",)), True, False),
        (weights.Weights(0.9, ("TQ1_0",)), True, False),
        (weights.Weights(0.0, ("Q8_0", "Q4_0")), False, True),
        (weights.Weights(0.0, ("Q8_0", "F16")), False, False),
        (weights.Weights(0.0, (), {"RPC0": 1.0}), False, False),
        (weights.Weights(0.5, (), {"CUDA0": 0.5}), False, False),
    ],
)
def test_only_what_keeps_its_bits_is_promised(
    found: weights.Weights, is_whole: bool, alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uad.runtime.target.kernels.keep_rows", lambda config: is_whole)
    context: Any = SimpleNamespace(memory=SimpleNamespace(way=Way.POSITIONS), rows_are_apart=True)
    assert are_alike(CONFIG, context, found) == alike
    if found.own == 0:
        assert not are_alike(CONFIG, SimpleNamespace(memory=context.memory, rows_are_apart=False), found)  # type: ignore[arg-type]
        adapted = replace(CONFIG, loras=(LoraConfig(Path("a.gguf")),))
        assert not are_alike(adapted, context, found), "adapters are F16 mostly"


# --- real files


@pytest.mark.model
@pytest.mark.parametrize("change", [{}, {"mmap": False}, {"places": (Place(".*", "CPU"),)}], ids=str)
def test_weights_of_a_real_file_run_in_the_kernels(change: dict[str, Any]) -> None:
    config = replace(CONFIG, **change)
    if use.of(config).library is None:
        pytest.skip(use.of(config).note())
    with Model(config) as model:
        assert weights.of(config, model.buffers).are_ours


@pytest.mark.model
def test_a_real_file_of_a_type_that_was_wrong_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rare.gguf"
    assert written_as(TARGET, path, TQ1_0) == 0
    config = replace(CONFIG, path=path)
    real = use.of(config)
    without = replace(real, parts=tuple(part for part in real.parts if part != "tq1_0"))
    monkeypatch.setattr(use, "started", use.cache(lambda: without))
    with Model(config) as model:
        found = weights.of(config, model.buffers)
    assert "TQ1_0" in found.left
    assert found.own < 1
    if real.library is not None:
        assert "TQ1_0 in llama.cpp's own" in weights.note(config, found)
