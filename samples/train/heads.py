"""Trained heads in torch, as llama.cpp computes them: EAGLE-3, which writes id by id, and DFlash, which writes a block
at once. Both read the states of some layers of a frozen target, and share its embedding and its output.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from model import FeedForward, Llama, Norm, linear, rotated
from recipes import Recipe
from torch import Tensor, nn

TAPS = (1, 3, 5)  # layers of the target whose inputs are read
STEPS, STEP_DECAY = (
    3,
    0.8,
)  # guesses that EAGLE-3 learns to write in a row, and the weight of each beside the one before
BLOCK, ANCHORS = 8, 16  # ids of a block with the one that is known, and blocks that are learnt from each sequence


@dataclass(frozen=True, slots=True)
class Taught:
    """The target's reading of a batch. ids: (batch, tokens); states: (batch, tokens, taps * width); chances: of the
    next id after each, (batch, tokens, vocabulary).
    """

    ids: Tensor
    states: Tensor
    chances: Tensor


def taught(target: Llama, ids: Tensor) -> Taught:
    """What the target makes of these ids; its weights learn nothing."""
    x, n_tokens, states = target.token_embd(ids), ids.shape[1], []
    for i, block in enumerate(target.blocks):
        if i in TAPS:
            states.append(x)
        x = block(x, target.cos[:n_tokens], target.sin[:n_tokens])
    logits = F.linear(target.output_norm(x), target.token_embd.weight)
    return Taught(ids, torch.cat(states, -1).float(), logits.float().softmax(-1))


def loss_of(logits: Tensor, chances: Tensor) -> Tensor:
    """Mean cross-entropy in nats per token."""
    return -(chances * logits.float().log_softmax(-1)).sum(-1).mean()


class Head(nn.Module):
    """A head of a target, which is no part of it. arch: llama.cpp's name of the architecture; mask: the special that
    stands for ids that are not known, of which no embedding is learnt.
    """

    arch = ""
    mask = ""

    def __init__(self, recipe: Recipe, target: Llama, n_blocks: int, inputs: int = 1) -> None:
        super().__init__()
        self.recipe = replace(recipe, ff=recipe.ff // 2)
        self.fc = linear(len(TAPS) * recipe.width, recipe.width)
        self.blocks = nn.ModuleList(HeadBlock(self.recipe, inputs) for _ in range(n_blocks))
        self.output_norm = Norm(recipe.width)
        self._target = (target,)  # no parameters of this module

    @property
    def target(self) -> Llama:
        """The target, whose embedding and output it shares."""
        return self._target[0]

    @property
    def numbers(self) -> dict[str, int]:
        """Whole numbers of the file's metadata that only this architecture has."""
        return {}

    def logits(self, x: Tensor) -> Tensor:
        """Logits of states."""
        return F.linear(self.output_norm(x), self.target.token_embd.weight)


class HeadBlock(nn.Module):
    """The weights of one layer. inputs: how many rows of the width its attention reads, side by side."""

    def __init__(self, recipe: Recipe, inputs: int) -> None:
        super().__init__()
        self.heads, self.heads_kv, self.head_dim = recipe.heads, recipe.heads_kv, recipe.head_dim
        self.attn_norm, self.ffn_norm = Norm(recipe.width), Norm(recipe.width)
        self.attn_q = linear(inputs * recipe.width, recipe.heads * recipe.head_dim)
        self.attn_k = linear(inputs * recipe.width, recipe.heads_kv * recipe.head_dim)
        self.attn_v = linear(inputs * recipe.width, recipe.heads_kv * recipe.head_dim)
        self.attn_output = linear(recipe.heads * recipe.head_dim, recipe.width)
        self.feed_forward = FeedForward(recipe)
        nn.init.zeros_(self.attn_output.weight)
        nn.init.zeros_(self.feed_forward.ffn_down.weight)

    def queries(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) -> (batch, heads, tokens, head_dim)"""
        return self.attn_q(x).unflatten(2, (self.heads, self.head_dim)).transpose(1, 2)

    def keys(self, x: Tensor) -> Tensor:
        """The same of the keys, before they are repeated."""
        return self.attn_k(x).unflatten(2, (self.heads_kv, self.head_dim)).transpose(1, 2)

    def values(self, x: Tensor) -> Tensor:
        """The same of the values."""
        return self.attn_v(x).unflatten(2, (self.heads_kv, self.head_dim)).transpose(1, 2)

    def repeated(self, x: Tensor) -> Tensor:
        """Keys or values for each of the heads."""
        return x.repeat_interleave(self.heads // self.heads_kv, 1)

    def added(self, x: Tensor, mixed: Tensor) -> Tensor:
        """The layer's end: what attention mixed, (batch, heads, tokens, head_dim), and the feed-forward part, added."""
        x = x + self.attn_output(mixed.transpose(1, 2).flatten(2))
        return x + self.feed_forward(self.ffn_norm(x))


class Eagle(Head):
    """One layer that reads an id and the fused states of the one before it, or its own state where that was guessed."""

    arch = "eagle3"

    def __init__(self, recipe: Recipe, target: Llama) -> None:
        super().__init__(recipe, target, n_blocks=1, inputs=2)
        self.blocks[0].attn_norm_2 = Norm(recipe.width)

    @property
    def numbers(self) -> dict[str, int]:
        return {"target_hidden_size": self.recipe.width}

    def forward(self, batch: Taught) -> Tensor:
        """The loss over guesses of one to `STEPS` ids: each step reads the states of the step before."""
        block: Any = self.blocks[0]
        read = block.attn_norm(self.target.token_embd(batch.ids[:, 1:]))
        state, n = self.fc(batch.states[:, :-1]), read.shape[1]
        cos, sin, chances = self.target.cos[:n], self.target.sin[:n], batch.chances[:, 1:]
        keys: list[Tensor] = []
        values: list[Tensor] = []
        loss = torch.zeros(())
        for step in range(STEPS):
            if step:
                state = F.pad(state, (0, 0, 1, 0))[:, :-1]
            x = torch.cat((read, block.attn_norm_2(state)), -1)
            keys.append(block.repeated(rotated(block.keys(x), cos, sin)))
            values.append(block.repeated(block.values(x)))
            state = block.added(state, mixed(rotated(block.queries(x), cos, sin), keys, values))
            loss = loss + STEP_DECAY**step * loss_of(self.logits(state)[:, step:], chances[:, step:])
        return loss / sum(STEP_DECAY**step for step in range(STEPS))


def mixed(query: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """Attention of the last step: to all of the first step's tokens that are no guesses, and to one of each later step.
    All are (batch, heads, tokens, head_dim).
    """
    n_guessed, n = len(keys) - 1, query.shape[2]
    is_seen = torch.ones(n, n, dtype=torch.bool).tril(-n_guessed)
    scores = (query @ keys[0].transpose(2, 3)).masked_fill(~is_seen, float("-inf"))
    own = [(query * shifted(key, n_guessed - i)).sum(-1, keepdim=True) for i, key in enumerate(keys[1:], 1)]
    weights = (torch.cat((scores, *own), -1) * query.shape[3] ** -0.5).softmax(-1)
    out = weights[..., :n] @ values[0]
    for i, value in enumerate(values[1:], 1):
        out = out + weights[..., n + i - 1, None] * shifted(value, n_guessed - i)
    return out


def shifted(x: Tensor, n: int) -> Tensor:
    """(batch, heads, tokens, head_dim): each token has what the one n before it had."""
    return F.pad(x, (0, 0, n, 0))[:, :, : x.shape[2]]


class Flash(Head):
    """Two layers that read an id and `BLOCK` - 1 masks at once. Keys and values of what was written come from the
    target's fused states alone.
    """

    arch = "dflash"
    mask = "<|endoftext|>"

    def __init__(self, recipe: Recipe, target: Llama) -> None:
        super().__init__(recipe, target, n_blocks=2)
        self.enc = nn.Module()
        self.enc.output_norm = Norm(recipe.width)
        for block in self.blocks:
            block.attn_q_norm, block.attn_k_norm = Norm(recipe.head_dim), Norm(recipe.head_dim)
        self.mask_id = recipe.specials.index(self.mask) + recipe.n_vocab - len(recipe.specials)

    @property
    def numbers(self) -> dict[str, int]:
        return {"block_size": BLOCK, "attention.key_length": self.recipe.head_dim}

    def forward(self, batch: Taught) -> Tensor:
        """The loss over blocks at random places."""
        n_batch, n = batch.ids.shape
        starts = torch.randint(1, n - BLOCK, (ANCHORS,)).sort().values
        at = (starts[:, None] + torch.arange(BLOCK)).flatten()  # positions of the rows, block by block
        ids = torch.full((n_batch, len(at)), self.mask_id)
        ids[:, ::BLOCK] = batch.ids[:, starts]
        x, fused = self.target.token_embd(ids), self.enc.output_norm(self.fc(batch.states))
        of_block = torch.arange(len(at)) // BLOCK
        is_seen = torch.cat((torch.arange(n) < starts[of_block][:, None], of_block[:, None] == of_block), 1)
        for block in self.blocks:
            x = block.added(x, self._mixed(block, block.attn_norm(x), fused, at, is_seen))
        guesses = torch.arange(len(at)) % BLOCK > 0
        return loss_of(self.logits(x)[:, guesses], batch.chances[:, at - 1][:, guesses])

    def _mixed(self, block: Any, x: Tensor, fused: Tensor, at: Tensor, is_seen: Tensor) -> Tensor:
        cos, sin, n = self.target.cos, self.target.sin, fused.shape[1]
        query = halves_rotated(block.attn_q_norm(block.queries(x)), cos[at], sin[at])
        written = halves_rotated(block.attn_k_norm(block.keys(fused)), cos[:n], sin[:n])
        own = halves_rotated(block.attn_k_norm(block.keys(x)), cos[at], sin[at])
        keys = block.repeated(torch.cat((written, own), 2))
        values = block.repeated(torch.cat((block.values(fused), block.values(x)), 2))
        return F.scaled_dot_product_attention(query, keys, values.to(query.dtype), is_seen)


def halves_rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of pairs that lie half a row apart: llama.cpp's order for `dflash`."""
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)


HEADS: dict[str, type[Eagle] | type[Flash]] = {"eagle3": Eagle, "dflash": Flash}
