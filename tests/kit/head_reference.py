"""The bundled target and its heads in plain numpy: what a head should propose after a text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray

Array = NDArray[np.float32]
Proposal = list[tuple[int, Array]]
"""Ids, and the logits that each was chosen from."""


class File:
    """Weights in float32, and numbers of the header."""

    def __init__(self, path: Path) -> None:
        reader = GGUFReader(path)
        self._fields = reader.fields
        self.arch = str(reader.fields["general.architecture"].contents())
        self.weights = {
            one.name: dequantize(one.data, one.tensor_type).reshape(tuple(reversed([int(n) for n in one.shape])))
            for one in reader.tensors
        }
        self.heads = int(self.number("attention.head_count"))
        self.heads_kv = int(self.number("attention.head_count_kv"))

    def number(self, key: str) -> float:
        return float(self._fields[f"{self.arch}.{key}"].contents())

    def array(self, key: str) -> list[int]:
        return [int(one) for one in self._fields[f"{self.arch}.{key}"].contents()]

    def value(self, key: str) -> int:
        return int(self._fields[key].contents())

    def __getitem__(self, name: str) -> Array:
        weight: Array = self.weights[f"{name}.weight"]
        return weight

    def norm(self, x: Array, name: str) -> Array:
        scale = np.sqrt((x * x).mean(-1, keepdims=True) + self.number("attention.layer_norm_rms_epsilon"))
        out: Array = x / scale.astype(np.float32) * self[name]
        return out

    def split(self, x: Array, heads: int) -> Array:
        """[n, heads * size] -> [heads, n, size]"""
        return x.reshape(len(x), heads, -1).transpose(1, 0, 2)

    def added(self, x: Array, mixed: Array, block: str) -> Array:
        """The layer's end: attention's product and the feed-forward part, added."""
        x = x + mixed.transpose(1, 0, 2).reshape(len(x), -1) @ self[f"{block}.attn_output"].T
        y = self.norm(x, f"{block}.ffn_norm")
        gate = y @ self[f"{block}.ffn_gate"].T
        out: Array = x + (gate / (1 + np.exp(-gate)) * (y @ self[f"{block}.ffn_up"].T)) @ self[f"{block}.ffn_down"].T
        return out


def angles(pos: Sequence[int], size: int) -> tuple[Array, Array]:
    turns = np.outer(np.asarray(pos, np.float64), 10_000.0 ** (-np.arange(0, size, 2) / size))
    return np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)


def turned(x: Array, pos: Sequence[int], in_halves: bool = False) -> Array:
    """Rotary embedding of [heads, n, size]: of neighbours, or of numbers that lie half a row apart."""
    cos, sin = angles(pos, x.shape[-1])
    half = x.shape[-1] // 2
    a, b = (x[..., :half], x[..., half:]) if in_halves else (x[..., ::2], x[..., 1::2])
    out = np.empty_like(x)
    ours, theirs = (slice(0, half), slice(half, None)) if in_halves else (slice(0, None, 2), slice(1, None, 2))
    out[..., ours], out[..., theirs] = a * cos - b * sin, a * sin + b * cos
    return out


def attention(q: Array, k: Array, v: Array, seen: NDArray[np.bool_]) -> Array:
    """[heads, n, size] of queries, fewer heads of keys and values; seen: [n, keys]."""
    k, v = (np.repeat(one, len(q) // len(one), 0) for one in (k, v))
    scores = np.where(seen, q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out: Array = weights / weights.sum(-1, keepdims=True) @ v
    return out


class Reference:
    """A target and one of its heads."""

    def __init__(self, target: Path, head: Path) -> None:
        self.target, self.head = File(target), File(head)
        self.layers = self.head.array("target_layers")

    @cached_property
    def _embedding(self) -> Array:
        return self.target["token_embd"]

    def states(self, ids: Sequence[int]) -> Array:
        """What the layers that the head reads are given, side by side."""
        f, x, pos = self.target, self._embedding[list(ids)], range(len(ids))
        seen, taken = np.tril(np.ones((len(ids), len(ids)), bool)), list[Array]()
        for i in range(max(self.layers) + 1):
            if i in self.layers:
                taken.append(x)
            block = f"blk.{i}"
            y = f.norm(x, f"{block}.attn_norm")
            q = turned(f.split(y @ f[f"{block}.attn_q"].T, f.heads), pos)
            k = turned(f.split(y @ f[f"{block}.attn_k"].T, f.heads_kv), pos)
            x = f.added(x, attention(q, k, f.split(y @ f[f"{block}.attn_v"].T, f.heads_kv), seen), block)
        return np.concatenate(taken, 1)

    def proposal(self, ids: Sequence[int], n: int) -> Proposal:
        """The likeliest n ids after these."""
        states = self.states(ids[:-1]) @ self.head["fc"].T
        return self._eagle(list(ids), states, n) if self.head.arch == "eagle3" else self._block(ids, states, n)

    def _logits(self, x: Array) -> Array:
        return self.head.norm(x, "output_norm") @ self._embedding.T

    def _eagle(self, ids: list[int], states: Array, n: int) -> Proposal:
        f, out = self.head, Proposal()
        for _ in range(n):
            pos, seen = range(1, len(ids)), np.tril(np.ones((len(states), len(states)), bool))
            read = f.norm(self._embedding[ids[1:]], "blk.0.attn_norm")
            y = np.concatenate([read, f.norm(states, "blk.0.attn_norm_2")], 1)
            q = turned(f.split(y @ f["blk.0.attn_q"].T, f.heads), pos)
            k = turned(f.split(y @ f["blk.0.attn_k"].T, f.heads_kv), pos)
            own = f.added(states, attention(q, k, f.split(y @ f["blk.0.attn_v"].T, f.heads_kv), seen), "blk.0")[-1:]
            (logits,) = self._logits(own)
            out.append((int(logits.argmax()), logits))
            ids, states = [*ids, out[-1][0]], np.concatenate([states, own])
        return out

    def _block(self, ids: Sequence[int], states: Array, n: int) -> Proposal:
        f, size = self.head, int(self.head.number("block_size"))
        fused = f.norm(states, "enc.output_norm")
        x = self._embedding[[ids[-1], *[f.value("tokenizer.ggml.mask_token_id")] * (size - 1)]]
        before, own = range(len(fused)), range(len(fused), len(fused) + size)
        seen = np.ones((size, len(fused) + size), bool)
        for i in range(int(f.number("block_count"))):
            block = f"blk.{i}"
            y = f.norm(x, f"{block}.attn_norm")

            def keys(z: Array, pos: Sequence[int], name: str, heads: int, block: str = block) -> Array:
                rows = f.norm(f.split(z @ f[f"{block}.{name}"].T, heads), f"{block}.{name}_norm")
                return turned(rows, pos, in_halves=True)

            q = keys(y, own, "attn_q", f.heads)
            k = np.concatenate([keys(fused, before, "attn_k", f.heads_kv), keys(y, own, "attn_k", f.heads_kv)], 1)
            v = f.split(np.concatenate([fused, y]) @ f[f"{block}.attn_v"].T, f.heads_kv)
            x = f.added(x, attention(q, k, v, seen), block)
        return [(int(row.argmax()), row) for row in self._logits(x)[1 : n + 1]]
