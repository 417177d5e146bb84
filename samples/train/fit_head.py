"""Training of a head: the target's weights, vocabulary and template are read from its file, and the head learns to
foretell the target's own chances on the training text. The target stays as it is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from corpus import documents
from export import LICENSE, N_CTX, gguf_name, replacing, stored
from fit import make_optimizers, rate, set_rates
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, LlamaFileType
from gguf.quants import quantize
from heads import HEADS, TAPS, Head, taught
from model import RMS_EPS, ROPE_BASE, Llama
from numpy.typing import NDArray
from recipes import RECIPES, Recipe
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

SEED = 0


class TargetError(Exception):
    """The target is none of the models that `train.py` makes."""


def target_of(reader: GGUFReader, n_ctx: int) -> tuple[Recipe, Llama]:
    """The recipe and the frozen weights of a bundled target. Raises TargetError."""
    name = str(reader.fields["general.name"].contents()).removeprefix("uad-sample-")
    recipe = next((recipe for recipe in RECIPES if recipe.name == name and recipe.pre), None)
    if recipe is None:
        raise TargetError(f"{name} is no target of these recipes; give target-chatml.gguf")
    model = Llama(recipe, n_ctx)
    weights = {one.name: torch.from_numpy(np.array(one.data, np.float32)) for one in reader.tensors}
    with torch.no_grad():
        for ours, weight in model.named_parameters():
            weight.copy_(weights[gguf_name(ours)])
            weight.requires_grad_(False)
    return recipe, model


def encoded(reader: GGUFReader, recipe: Recipe, texts: list[str]) -> NDArray[np.int32]:
    """The documents as one stream of ids, each after the recipe's `doc`."""
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ", 1)) for merge in reader.fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(tokens)}, merges))
    split = pre_tokenizers.Split(Regex(recipe.pattern), "isolated")
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, plain])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(recipe.specials))
    doc = tokens.index(recipe.doc)
    return np.fromiter((id_ for one in tokenizer.encode_batch(texts) for id_ in (doc, *one.ids)), np.int32)


def drawn(ids: NDArray[np.int32], n_ctx: int, n_batch: int) -> Iterator[Tensor]:
    """Endless batches of ids, (n_batch, n_ctx), cut at random places."""
    rng, span = np.random.default_rng(SEED), np.arange(n_ctx)
    while True:
        starts = rng.integers(0, len(ids) - n_ctx, n_batch)
        yield torch.from_numpy(ids[starts[:, None] + span]).long()


def train(args: argparse.Namespace) -> str:
    """Train and write; returns a line that says what was made. Raises TargetError."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(SEED)
    reader = GGUFReader(args.target)
    recipe, target = target_of(reader, args.seq)
    ids = encoded(reader, recipe, documents(recipe.template, (), round(args.chat_mb * 1e6), SEED))
    head = HEADS[args.kind](recipe, target)
    optimizers, smooth = make_optimizers(head), 0.0
    for step, batch in zip(range(args.steps), drawn(ids, args.seq, args.batch), strict=False):
        set_rates(optimizers, rate(step / args.steps, step))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = head(taught(target, batch))
        loss.backward()
        for optimizer, _ in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        smooth = loss.item() if not step else 0.95 * smooth + 0.05 * loss.item()
        if step % 20 == 0:
            print(f"step {step} of {args.steps}: loss {smooth:.3f}", file=sys.stderr)
    export(head, recipe, reader, args.out)
    n = sum(weight.numel() for weight in head.parameters())
    return f"{args.out}: {n:,} parameters, {args.steps * args.batch * args.seq / 1e6:.1f}M tokens, loss {smooth:.2f}"


def export(head: Head, recipe: Recipe, reader: GGUFReader, out: Path) -> None:
    """Writes `out`: the head's weights, and the vocabulary of its target."""
    with replacing(out, head.arch) as writer:
        writer.add_name(f"uad-sample-{head.arch}-{recipe.name}")
        writer.add_license(LICENSE)
        writer.add_context_length(N_CTX)
        writer.add_embedding_length(recipe.width)
        writer.add_block_count(len(head.blocks))
        writer.add_feed_forward_length(head.recipe.ff)
        writer.add_head_count(recipe.heads)
        writer.add_head_count_kv(recipe.heads_kv)
        writer.add_layer_norm_rms_eps(RMS_EPS)
        writer.add_rope_dimension_count(recipe.head_dim)
        writer.add_rope_freq_base(ROPE_BASE)
        writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
        writer.add_array(f"{head.arch}.target_layers", list(TAPS))
        for key, value in head.numbers.items():
            writer.add_uint32(f"{head.arch}.{key}", value)
        for name, field in reader.fields.items():
            if name.startswith("tokenizer."):
                inner = field.types[-1] if field.types[0] is GGUFValueType.ARRAY else None
                writer.add_key_value(name, field.contents(), field.types[0], inner)
        if head.mask:
            writer.add_mask_token_id(reader.fields["tokenizer.ggml.tokens"].contents().index(head.mask))
        for name, weight in head.named_parameters():
            if weight.dim() == 2:
                packed = quantize(weight.detach().float().numpy(), GGMLQuantizationType.Q8_0)
                writer.add_tensor(gguf_name(name), packed, raw_dtype=GGMLQuantizationType.Q8_0)
            else:
                writer.add_tensor(gguf_name(name), stored(weight))
