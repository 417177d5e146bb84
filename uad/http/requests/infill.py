"""Prompts that fill in the middle (FIM): POST /infill, and `suffix` of completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from uad.base.errors import NotSupportedError
from uad.base.types import FimTokens
from uad.http.requests.fields import ExtraBody, InfillBody
from uad.http.requests.generation import Backend
from uad.http.requests.prompt_ids import Part, Prompt, filled, mixed_ids, parts_of, raw_ids, text_of

_PROJECT, _FILE, _SNIPPET = "myproject\n", "filename\n", "\n\n--- snippet ---\n\n"
"""What llama-server writes for a project and a file, which requests do not name, and between chunks without a mark."""
_BESIDE: Final = 2
"""Ids that llama-server takes from the suffix's share, beside the prompt."""
_MARKS: Final = 8
"""Most ids of a prompt that stand for no text of the request."""
_MOST_CHARS: Final = 64
"""Of a text for each id that is wanted of it: a longer one is cut before it is tokenized."""
_USUAL_ANSWER: Final = 8
"""Where neither request nor server says how long an answer may be, it has this part of the context."""


@dataclass(frozen=True, slots=True)
class FimParts:
    """The ids around the cursor."""

    prefix: Sequence[int]
    suffix: Sequence[int]
    extra: Sequence[int] = ()
    """Of other files, which stand before both."""

    def prompt(self, fim: FimTokens, bos: Sequence[int], suffix_first: bool) -> tuple[int, ...]:
        """What the model reads: prefix, suffix, middle; or the suffix first, which some models prefer (SPM)."""
        # Of a file "ab|ef" the model reads <prefix>ab<suffix>ef<middle>, or <suffix>ef<prefix>ab<middle>.
        before, after = (*_mark(fim.prefix), *self.prefix), (*_mark(fim.suffix), *self.suffix)
        both = (*after, *before) if suffix_first else (*before, *after)
        return (*self.extra, *bos, *both, *_mark(fim.middle))

    def drafted(self, fim: FimTokens) -> tuple[int, ...]:
        """What drafters read: the same text without marks, and the prefix last, after which the answer goes on. What
        followed the prefix's last ids elsewhere in the file, before the cursor or after it, is a guess then.
        """
        marks = {fim.project, fim.file}
        return (*(id_ for id_ in self.extra if id_ not in marks), *self.suffix, *self.prefix)


@dataclass(frozen=True, slots=True)
class FimShares:
    """Most ids of each part, as llama-server cuts them: prefix and suffix share a batch, 3 to 1, and what is extra has
    the rest of the context, less twice the answer. Three quarters of a context that is smaller count as the batch.
    """

    prefix: int
    suffix: int
    extra: int

    @classmethod
    def of(cls, n_ctx: int, n_batch: int, n_begun: int, n_answer: int) -> FimShares:
        """The shares beside a prompt of n_begun ids after the prefix."""
        # A context of 8,192, a batch of 2,048, answers of 256: prefix 1,536, suffix 510, and 8,192 - 2,048 - 512 - 8 of
        # other files.
        n = min(n_batch, n_ctx * 3 // 4)
        quarter = n // 4
        return cls(3 * quarter, max(quarter - _BESIDE - n_begun, 0), max(n_ctx - n - 2 * n_answer - _MARKS, 0))


def check_fim(engine: Backend, param: str) -> FimTokens:
    """The model's ids for it. Raises NotSupportedError where one that is needed is missing."""
    fim = engine.info.fim
    missing = [name for name in ("prefix", "suffix", "middle") if getattr(fim, name) is None]
    if missing:
        raise NotSupportedError.at(
            param,
            "this model cannot fill in the middle (its vocabulary has no FIM token for the "
            f"{', the '.join(missing)}); serve one that was trained for it, or send a prompt without what follows",
        )
    return fim


def encode_infill(engine: Backend, body: InfillBody) -> Prompt:
    """The prompt of POST /infill, cut so that it fits. Raises NotSupportedError; ContextOverflowError for a `prompt`
    that is too long, since that is never cut.
    """
    fim = check_fim(engine, "input_suffix")
    engine.text.check_length(body.prompt)
    begun = engine.text.tokenize(body.prompt, add_special=False, parse_special=True)
    n_batch = engine.config.target.n_batch
    shares = FimShares.of(engine.info.n_ctx, n_batch, len(begun), _n_answer(engine))
    prefix = _last(_ids(engine, body.input_prefix, "input_prefix", shares.prefix, at_end=True), shares.prefix)
    suffix = _ids(engine, body.input_suffix, "input_suffix", shares.suffix, at_end=False)[: shares.suffix]
    extra = _extra(engine, fim, body.input_extra, shares.extra)
    return _prompt(engine, fim, FimParts([*prefix, *begun], suffix, extra), _bos(engine, body.add_special_tokens))


def encode_insertion(engine: Backend, prompt: object, suffix: str, add_special: bool) -> Prompt:
    """The prompt of a completion after which `suffix` follows. Nothing is cut: what does not fit is refused.

    add_special: with BOS, where the model wants one; one that the prompt begins with is that one.
    """
    fim = check_fim(engine, "suffix")
    engine.text.check_length(suffix)
    before, bos = raw_ids(engine, prompt, add_special=False), _bos(engine, add_special)
    if before[: len(bos)] == bos:
        before = before[len(bos) :]
    return _prompt(engine, fim, FimParts(before, _tokens(engine, suffix)), bos)


def _prompt(engine: Backend, fim: FimTokens, parts: FimParts, bos: Sequence[int]) -> Prompt:
    ids = parts.prompt(fim, bos, engine.config.server.spm_infill)
    return filled(Prompt(ids, text_of(engine.text, ids), parts.drafted(fim)), "prompt")


def _mark(id_: int | None) -> tuple[int, ...]:
    return () if id_ is None else (id_,)


def _bos(engine: Backend, add_special: bool) -> tuple[int, ...]:
    """What a prompt begins with, where the model wants that and the request does not say otherwise."""
    return tuple(engine.text.tokenize("", add_special=add_special, parse_special=False))


def _n_answer(engine: Backend) -> int:
    """Ids that answers may have by the server's own limit. Not by the request's: the prompt that warms the cache, with
    a limit of 0, has to be that of the next request.
    """
    n = engine.config.n_predict
    return n if n >= 0 else engine.info.n_ctx // _USUAL_ANSWER


def _extra(engine: Backend, fim: FimTokens, files: Sequence[ExtraBody], n_most: int) -> list[int]:
    """The last n_most ids of the project's mark, other files' chunks, each after its name, and this file's name."""
    name = [*_mark(fim.file), *_tokens(engine, _FILE)] if fim.file is not None else []
    found, n_left = [name], n_most - len(name)
    for one in reversed(files):
        if n_left <= 0:
            break
        found.append(_chunk(engine, fim, one, _MOST_CHARS * n_left))
        n_left -= len(found[-1])
    project = [*_mark(fim.project), *_tokens(engine, _PROJECT)] if fim.project is not None else []
    return _last([*project, *chain.from_iterable(reversed(found))], n_most)


def _chunk(engine: Backend, fim: FimTokens, one: ExtraBody, n_chars: int) -> list[int]:
    """A chunk of another file, of which the last characters are wanted, after the file's name."""
    head = _SNIPPET if fim.file is None else f"{one.filename}\n"[-n_chars:]
    return [*_mark(fim.file), *_tokens(engine, head), *_tokens(engine, one.text[-n_chars:])]


def _tokens(engine: Backend, text: str) -> list[int]:
    return engine.text.tokenize(text, add_special=False, parse_special=False)


def _ids(engine: Backend, value: object, param: str, n: int, at_end: bool) -> list[int]:
    """The ids of a text, or of texts and ids in a row, of which n are wanted, at the end or at the beginning."""
    parts = [_cut(part, _MOST_CHARS * n, at_end) for part in parts_of(value, engine.info.target.n_vocab, param)]
    return mixed_ids(engine.text, parts, add_special=False, parse_special=False)


def _cut(part: Part, n_chars: int, at_end: bool) -> Part:
    if isinstance(part, int):
        return part
    return part[max(len(part) - n_chars, 0) :] if at_end else part[:n_chars]


def _last(ids: list[int], n: int) -> list[int]:
    return ids[max(len(ids) - n, 0) :]
