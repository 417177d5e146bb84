"""Writes a mixture of experts with random weights, of Qwen3-30B-A3B's shapes and fewer layers, to time its passes:

    python lab/mixture.py samples/target-chatml.gguf mixture.gguf --type q4_k [--layers 6]

Its vocabulary is that of the first file. Times do not depend on values, and its texts mean nothing. Needs the gguf
package.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from gguf_files import copy_field, import_gguf, read_gguf, replacing

from uad.base.common.files import path_of
from uad.base.config.argv import Parser, typed
from uad.base.config.kinds import integer
from uad.tools.cli import run

if TYPE_CHECKING:
    from gguf import GGUFWriter

WIDTH, EXPERTS, USED, EXPERT_WIDTH, HEADS, KV_HEADS, HEAD_WIDTH = 2048, 128, 8, 768, 32, 4, 128
FACTS = {
    "context_length": 4096,
    "embedding_length": WIDTH,
    "feed_forward_length": 6144,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KV_HEADS,
    "attention.key_length": HEAD_WIDTH,
    "attention.value_length": HEAD_WIDTH,
    "expert_count": EXPERTS,
    "expert_used_count": USED,
    "expert_feed_forward_length": EXPERT_WIDTH,
}
# A block's bytes are random but for its scales, which are such halves that weights are near 0.02.
SCALES = {"q8_0": (0.02 / 73,), "q4_k": (0.02 / 240, 0.02 / 240), "iq3_xxs": (0.02 / 120,), "iq2_xs": (0.02 / 50,)}


class Weights:
    """Adds random tensors to a file."""

    def __init__(self, writer: GGUFWriter, type_: str) -> None:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        self._writer = writer
        self._kind = GGMLQuantizationType[type_.upper()]
        self._n_columns, self._n_bytes = GGML_QUANT_SIZES[self._kind]
        self._scales = np.array(SCALES[type_], np.float16).view(np.uint8)
        self._random = np.random.default_rng(0)
        self._bytes = self._random.integers(0, 256, 1 << 26, np.uint8)  # repeated: as far apart as no cache is large

    def matrix(self, name: str, *shape: int) -> None:
        """shape: with the columns last."""
        n_blocks = int(np.prod(shape)) // self._n_columns
        blocks = np.resize(self._bytes, (n_blocks, self._n_bytes))
        blocks[:, : len(self._scales)] = self._scales
        row = shape[-1] // self._n_columns * self._n_bytes
        self._writer.add_tensor(name, blocks.reshape(*shape[:-1], row), raw_dtype=self._kind)

    def ones(self, name: str, n: int) -> None:
        self._writer.add_tensor(name, np.ones(n, np.float32))

    def router(self, name: str) -> None:
        self._writer.add_tensor(name, self._random.normal(0, 0.02, (EXPERTS, WIDTH)).astype(np.float32))

    def layer(self, i: int) -> None:
        at = f"blk.{i}."
        for name, n in (
            ("attn_norm", WIDTH),
            ("ffn_norm", WIDTH),
            ("attn_q_norm", HEAD_WIDTH),
            ("attn_k_norm", HEAD_WIDTH),
        ):
            self.ones(f"{at}{name}.weight", n)
        self.matrix(f"{at}attn_q.weight", HEADS * HEAD_WIDTH, WIDTH)
        self.matrix(f"{at}attn_k.weight", KV_HEADS * HEAD_WIDTH, WIDTH)
        self.matrix(f"{at}attn_v.weight", KV_HEADS * HEAD_WIDTH, WIDTH)
        self.matrix(f"{at}attn_output.weight", WIDTH, HEADS * HEAD_WIDTH)
        self.router(f"{at}ffn_gate_inp.weight")
        self.matrix(f"{at}ffn_gate_exps.weight", EXPERTS, EXPERT_WIDTH, WIDTH)
        self.matrix(f"{at}ffn_up_exps.weight", EXPERTS, EXPERT_WIDTH, WIDTH)
        self.matrix(f"{at}ffn_down_exps.weight", EXPERTS, WIDTH, EXPERT_WIDTH)


def main(argv: Sequence[str]) -> int:
    """Write the model. Raises ConfigError or ModelLoadError."""
    parser = Parser("lab/mixture.py", "Write a mixture of experts with random weights.", positional="VOCABULARY OUT")
    parser.add_argument("vocabulary", metavar="VOCABULARY", type=path_of, help="GGUF file whose vocabulary it has")
    parser.add_argument("out", metavar="OUT", type=path_of, help="GGUF file to write; replaced if it exists")
    parser.add_argument("--type", metavar="TYPE", choices=tuple(SCALES), default="q8_0", help=", ".join(SCALES))
    parser.add_argument("--layers", metavar="N", type=typed(integer(1)), default=6, help="(default: 6)")
    given = parser.parse(argv)
    import_gguf()
    source = read_gguf(given.vocabulary)
    with replacing(given.out, "qwen3moe") as writer:
        for name, value in FACTS.items():
            writer.add_uint32(f"qwen3moe.{name}", value)
        writer.add_block_count(given.layers)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_rope_freq_base(1e6)
        for name, field in source.fields.items():
            if name.startswith("tokenizer."):
                copy_field(writer, name, field)
        n_ids = len(source.fields["tokenizer.ggml.tokens"].data)
        weights = Weights(writer, given.type)
        weights.matrix("token_embd.weight", n_ids, WIDTH)
        weights.matrix("output.weight", n_ids, WIDTH)
        weights.ones("output_norm.weight", WIDTH)
        for i in range(given.layers):
            weights.layer(i)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    return 0


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
