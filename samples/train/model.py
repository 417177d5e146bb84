"""The llama architecture in torch, as llama.cpp computes it: RMS norm, interleaved rotary embedding, grouped heads,
SwiGLU, tied output.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from recipes import Recipe
from torch import Tensor, nn

RMS_EPS = 1e-5
ROPE_BASE = 10_000.0


class Norm(nn.Module):
    """RMS norm, computed in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + RMS_EPS) * self.weight


class Attention(nn.Module):
    """Causal self-attention with grouped key-value heads."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.heads, self.heads_kv, self.head_dim = recipe.heads, recipe.heads_kv, recipe.head_dim
        self.attn_q = linear(recipe.width, recipe.heads * recipe.head_dim)
        self.attn_k = linear(recipe.width, recipe.heads_kv * recipe.head_dim)
        self.attn_v = linear(recipe.width, recipe.heads_kv * recipe.head_dim)
        self.attn_output = linear(recipe.heads * recipe.head_dim, recipe.width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q = rotated(self._split(self.attn_q(x), self.heads), cos, sin)
        k = rotated(self._split(self.attn_k(x), self.heads_kv), cos, sin)
        v = self._split(self.attn_v(x), self.heads_kv)
        group = self.heads // self.heads_kv
        if group > 1:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        mixed = F.scaled_dot_product_attention(q, k, v.contiguous(), is_causal=True)
        return self.attn_output(mixed.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor, heads: int) -> Tensor:
        """(batch, tokens, heads * head_dim) -> (batch, heads, tokens, head_dim)"""
        return x.unflatten(2, (heads, self.head_dim)).transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.ffn_gate = linear(recipe.width, recipe.ff)
        self.ffn_up = linear(recipe.width, recipe.ff)
        self.ffn_down = linear(recipe.ff, recipe.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.ffn_down(F.silu(self.ffn_gate(x)) * self.ffn_up(x))


class Block(nn.Module):
    """One layer."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.attn_norm, self.ffn_norm = Norm(recipe.width), Norm(recipe.width)
        self.attention, self.feed_forward = Attention(recipe), FeedForward(recipe)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attn_norm(x), cos, sin)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    """The whole model for sequences of at most `n_ctx` tokens in training. Layers start as the identity."""

    def __init__(self, recipe: Recipe, n_ctx: int) -> None:
        super().__init__()
        self.token_embd = nn.Embedding(recipe.n_vocab, recipe.width)
        self.blocks = nn.ModuleList(Block(recipe) for _ in range(recipe.layers))
        self.output_norm = Norm(recipe.width)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
        for block in self.blocks:
            nn.init.zeros_(block.attention.attn_output.weight)
            nn.init.zeros_(block.feed_forward.ffn_down.weight)
        frequencies = ROPE_BASE ** (-torch.arange(0, recipe.head_dim, 2).float() / recipe.head_dim)
        angles = torch.outer(torch.arange(n_ctx).float(), frequencies)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy in nats per token; `ids` and `targets` are (batch, tokens)."""
        x = self.token_embd(ids)
        n_tokens = ids.shape[1]
        for block in self.blocks:
            x = block(x, self.cos[:n_tokens], self.sin[:n_tokens])
        logits = F.linear(self.output_norm(x), self.token_embd.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def linear(n_in: int, n_out: int) -> nn.Linear:
    """A matrix without bias."""
    return nn.Linear(n_in, n_out, bias=False)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of neighbouring pairs: llama.cpp's order for this architecture. `x` is (batch, heads, tokens,
    head_dim).
    """
    even, odd = x[..., 0::2].float(), x[..., 1::2].float()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(x.dtype)
