"""Texts of an embedding model to ids and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uad.base.config import TemplateConfig
from uad.base.errors import InvalidRequestError
from uad.base.types import Constraint, Image, SamplingParams
from uad.llama.model import Model
from uad.llama.vocab import around, native_tokenize
from uad.text.prompts import Prompts
from uad.text.sight import no_sight
from uad.text.vocab.encode import Encoder

_PAIR = "tokenizer.chat_template.rerank"
_MOST_BYTES = 64
"""Bytes of a text for each id that it may have: what lies beyond is cut off before it is tokenized."""


class EmbeddingText(Prompts):
    """Whole texts, with what the model wants around them, as llama-server has it. n_most: ids of the longest."""

    def __init__(self, model: Model, config: TemplateConfig, n_most: int) -> None:
        super().__init__(model.vocab, Encoder(model.vocab), config, None, model.info.desc, n_most)
        self._around, self._native = around(model.native_vocab), native_tokenize(model.native_vocab)
        self._pair, self._n_most = model.meta(_PAIR), n_most

    def ids(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """The ids of a text. Raises InvalidRequestError."""
        if self._native is not None:
            return self._native(text.encode("utf-8", "replace"), add_special, parse_special)
        ids = super().tokenize(text, add_special, parse_special)
        return [*ids, self._around.eos] if add_special and self._around.eos is not None else ids

    def pair(self, query: str, document: str) -> list[int]:
        """The ids of a query and a document, for a model that ranks."""
        if self._pair is not None:
            # both at once: braces of a document are no place for another text
            parts = self._pair.replace("{query}", "\0q").replace("{document}", "\0d").split("\0")
            given = {"q": query, "d": document}
            text = parts[0] + "".join(given[part[:1]] + part[1:] for part in parts[1:])
            return self.ids(text, add_special=False)
        texts = [self.ids(text, add_special=False, parse_special=False) for text in (query, document)]
        bos, eos, sep = ([] if id_ is None else [id_] for id_ in self._around)
        return [*bos, *texts[0], *eos, *sep, *texts[1], *eos]

    def cut(self, ids: list[int]) -> list[int]:
        """The first ids that the model can read, the last of them what ends a text."""
        if len(ids) <= self._n_most:
            return ids
        ends = {self._around.eos, self._around.sep} - {None}
        end = ids[-1:] if ids[-1] in ends else []
        return ids[: self._n_most - len(end)] + end

    def tokenize(
        self, text: str, add_special: bool = False, parse_special: bool = True, images: Sequence[Image] = ()
    ) -> list[int]:
        if images:
            raise no_sight()
        return self.ids(text, add_special, parse_special)

    def template_caps(self) -> Mapping[str, bool]:
        return {}

    def check_constraint(self, constraint: Constraint) -> None:
        raise InvalidRequestError("an embedding model writes no text")

    def check_sampling(self, sampling: SamplingParams) -> None:
        raise InvalidRequestError("an embedding model writes no text")
