"""Vocabularies trained from text, each of which encodes documents and writes itself into a GGUF. Knows no model."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import Protocol

import sentencepiece
from gguf import GGUFWriter, TokenType
from recipes import Recipe
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPM_SENTENCES = 300_000


class VocabularyError(Exception):
    """The text is too small for the size of the vocabulary."""


class Vocabulary(Protocol):
    """What training and export need of a vocabulary."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, specials recognised, nothing added."""
        ...

    def id_of(self, piece: str) -> int:
        """The id of a special."""
        ...

    def write(self, writer: GGUFWriter) -> None:
        """Adds everything under tokenizer.ggml except the ids of the specials."""
        ...


def learn(recipe: Recipe, texts: Sequence[str], threads: int) -> Vocabulary:
    """Trains the vocabulary of `recipe` on `texts`; VocabularyError if they are too few."""
    return Bpe(recipe, texts) if recipe.pre else SentencePiece(recipe, texts, threads)


def without(text: str, specials: Sequence[str]) -> str:
    """`text` with each special replaced by a line break, so that no piece is learnt across one."""
    for special in specials:
        text = text.replace(special, "\n")
    return text


class Bpe:
    """Byte-level BPE behind a splitting pattern."""

    def __init__(self, recipe: Recipe, texts: Sequence[str]) -> None:
        self._recipe = recipe
        self._tokenizer = Tokenizer(models.BPE())
        split = pre_tokenizers.Split(Regex(recipe.pattern), "isolated")
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        self._tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=recipe.n_vocab - len(recipe.specials),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        self._tokenizer.train_from_iterator((without(text, recipe.specials) for text in texts), trainer)
        self._tokenizer.add_special_tokens(list(recipe.specials))
        if self._tokenizer.get_vocab_size() != recipe.n_vocab:
            raise VocabularyError(
                f"the text gives only {self._tokenizer.get_vocab_size()} of {recipe.n_vocab} tokens; add text"
            )

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def id_of(self, piece: str) -> int:
        found = self._tokenizer.token_to_id(piece)
        if found is None:
            raise KeyError(piece)
        return int(found)

    def write(self, writer: GGUFWriter) -> None:
        pieces = [self._tokenizer.id_to_token(i) or "" for i in range(self._recipe.n_vocab)]
        merges = json.loads(self._tokenizer.to_str())["model"]["merges"]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(self._recipe.pre)
        writer.add_token_list(pieces)
        writer.add_token_types(
            [TokenType.CONTROL if piece in self._recipe.specials else TokenType.NORMAL for piece in pieces]
        )
        writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])


class SentencePiece:
    """SentencePiece BPE with byte fallback, without normalization and without a space at the start."""

    def __init__(self, recipe: Recipe, texts: Sequence[str], threads: int) -> None:
        self._recipe = recipe
        learnt = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=lines(texts, recipe.specials),
                model_writer=learnt,
                vocab_size=recipe.n_vocab,
                model_type="bpe",
                byte_fallback=True,
                user_defined_symbols=[*recipe.specials, "\n", "\t"],
                allow_whitespace_only_pieces=True,
                add_dummy_prefix=False,
                remove_extra_whitespaces=False,
                normalization_rule_name="identity",
                split_digits=True,
                input_sentence_size=SPM_SENTENCES,
                shuffle_input_sentence=True,
                minloglevel=2,
                num_threads=threads,
            )
        except RuntimeError as error:
            raise VocabularyError(
                f"SentencePiece cannot learn {recipe.n_vocab} pieces from the text: {error}"
            ) from error
        self._tokenizer = sentencepiece.SentencePieceProcessor(model_proto=learnt.getvalue())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._tokenizer.encode(text) for text in texts]

    def id_of(self, piece: str) -> int:
        return int(self._tokenizer.piece_to_id(piece))

    def write(self, writer: GGUFWriter) -> None:
        ids = range(self._recipe.n_vocab)
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list([self._tokenizer.id_to_piece(i).encode() for i in ids])
        writer.add_token_scores([self._tokenizer.get_score(i) for i in ids])
        writer.add_token_types([self._type(i) for i in ids])
        writer.add_add_space_prefix(False)
        writer.add_unk_token_id(self._tokenizer.unk_id())

    def _type(self, id_: int) -> TokenType:
        if self._tokenizer.is_unknown(id_):
            return TokenType.UNKNOWN
        if self._tokenizer.is_control(id_) or self._tokenizer.id_to_piece(id_) in self._recipe.specials:
            return TokenType.CONTROL
        return TokenType.BYTE if self._tokenizer.is_byte(id_) else TokenType.NORMAL


def lines(texts: Sequence[str], specials: Sequence[str]) -> Iterator[str]:
    """The lines that are not blank, as SentencePiece's trainer takes them."""
    for text in texts:
        yield from (line for line in without(text, specials).split("\n") if line.strip())
