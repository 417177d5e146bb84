"""What each bundled model is: vocabulary, chat template and sizes. Data only."""

from __future__ import annotations

from dataclasses import dataclass

# the splitting patterns that llama.cpp applies for the pre-tokenizers of these names; training must cut text in the
# same places
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ZEPHYR = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '<|endoftext|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}"
    "{% if messages[0]['role'] == 'system' %}"
    "{% set first = messages[0]['content'] + '\n\n' %}{% set loop_messages = messages[1:] %}"
    "{% else %}{% set first = '' %}{% set loop_messages = messages %}{% endif %}"
    "{% for m in loop_messages %}{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + (first if loop.first else '') + m['content'] + '<end_of_turn>\n' }}{% "
    "endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """One model. `pre` and `pattern` are of BPE; without them the vocabulary is SentencePiece with byte fallback.

    `doc` starts every document in training, `eos` ends a turn, `bos` is added by tokenizers where it is set.
    """

    name: str
    n_vocab: int
    specials: tuple[str, ...]
    doc: str
    eos: str
    bos: str | None
    template: str
    width: int
    layers: int
    heads: int
    heads_kv: int
    ff: int
    pre: str = ""
    pattern: str = ""

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads


RECIPES = (
    Recipe(
        name="target-chatml",
        n_vocab=4096,
        specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        doc="<|endoftext|>",
        eos="<|im_end|>",
        bos=None,
        template=CHATML,
        width=256,
        layers=6,
        heads=4,
        heads_kv=2,
        ff=768,
        pre="qwen2",
        pattern=QWEN2,
    ),
    Recipe(
        name="draft-zephyr",
        n_vocab=2048,
        specials=("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>"),
        doc="<|endoftext|>",
        eos="<|endoftext|>",
        bos=None,
        template=ZEPHYR,
        width=128,
        layers=2,
        heads=2,
        heads_kv=2,
        ff=384,
        pre="gpt-2",
        pattern=GPT2,
    ),
    Recipe(
        name="draft-gemma",
        n_vocab=2048,
        specials=("<start_of_turn>", "<end_of_turn>"),
        doc="<s>",
        eos="<end_of_turn>",
        bos="<s>",
        template=GEMMA,
        width=128,
        layers=2,
        heads=2,
        heads_kv=2,
        ff=384,
    ),
)
