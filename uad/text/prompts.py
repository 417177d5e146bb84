"""Text to prompt ids and back, for one target. Thread-safe: nothing here touches a context."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Protocol

from uad.base.checkpoint import checkpoint
from uad.base.config import TemplateConfig
from uad.base.errors import ConfigError, ContextOverflowError, InvalidRequestError
from uad.base.types import Constraint, Image, SamplingParams
from uad.text.calls.files import load_all_calls
from uad.text.calls.format import AnswerFormat
from uad.text.calls.recognise import answer_format
from uad.text.grammar.grammars import Grammars
from uad.text.mapping.families import bundled_mappings, find_family, load_families
from uad.text.mapping.patterns import encode_parts, encode_text
from uad.text.mapping.plan import Options, usable_template
from uad.text.mapping.recognise import Side, bos_name, eos_name, recognise
from uad.text.sight import Sight, with_images
from uad.text.templates.calling import calling, capabilities
from uad.text.templates.conversation import Talk, converse
from uad.text.templates.history import Message
from uad.text.templates.prefill import without_thoughts
from uad.text.templates.render import Rendered, settle_kwargs
from uad.text.templates.sandbox import compile_template
from uad.text.templates.seams import Part
from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable

_log = logging.getLogger("uad")
_THINKING = ("enable_thinking", "thinking")
"""The names that templates give the switch for thoughts."""
PIECE_BYTES = 1 << 16  # bytes
# bytes without a safe boundary; whatever is done with them stops other threads for a tenth of a second
LONGEST = 1 << 20
_N_KEPT, _LONGEST_KEPT_CHARS = 16, 1 << 14  # chats whose ids are kept, and characters of the JSON of each
_CHANGING = ("strftime_now", "date_string", "datetime", "uad_now", "random")
"""With one of these in it a template may write another text the next time."""


class Text(Protocol):
    """The target's texts and vocabulary. Every method may be called from any thread but the model's, but most may take
    long: they are for worker threads.
    """

    @property
    def vocab(self) -> VocabTable:
        """The target's vocabulary."""

    @property
    def answers(self) -> AnswerFormat:
        """How the target writes thoughts and calls."""

    def template_caps(self) -> Mapping[str, bool]:
        """The capabilities of the chat template, under llama-server's names. May render."""

    def check_length(self, text: str) -> None:
        """Raises ContextOverflowError where a prompt with this text cannot fit into a slot. Cheaper than `tokenize`."""

    def tokenize(
        self, text: str, add_special: bool = False, parse_special: bool = True, images: Sequence[Image] = ()
    ) -> list[int]:
        """The target's ids of a text. add_special: with BOS in front, where the model wants one. parse_special: names
        of specials become their ids. images: what its markers (`IMAGE_PLACE`) stand for, in their order; without any a
        marker is text. Raises InvalidRequestError, for another number of markers, too."""

    def detokenize(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids, specials as their names. Raises InvalidRequestError for an id outside the vocabulary."""

    def piece(self, id_: int) -> bytes:
        """The bytes of one id, a special as its name."""

    def chat(
        self,
        messages: Sequence[Message],
        kwargs: Mapping[str, object],
        add_generation_prompt: bool = True,
        prefill: str = "",
        add_special: bool = True,
        images: Sequence[Image] = (),
    ) -> list[int]:
        """The target's ids of a conversation; prefill: how the answer begins; add_special: with BOS, where the model
        wants one and the template writes none; images: as in `tokenize`. Raises InvalidRequestError or
        ContextOverflowError."""

    def chat_text(
        self,
        messages: Sequence[Message],
        kwargs: Mapping[str, object],
        add_generation_prompt: bool = True,
        prefill: str = "",
        add_special: bool = True,
    ) -> str:
        """The text of the same prompt, as `tokenize` with the same add_special takes it. Raises InvalidRequestError."""

    def check_constraint(self, constraint: Constraint) -> None:
        """Compile it. Raises InvalidRequestError."""

    def check_sampling(self, sampling: SamplingParams) -> None:
        """Find what its samplers need of the vocabulary."""


class Prompts:
    """Renders conversations with the target's chat template and tokenizes: specials in template text only, never in
    what users wrote.
    """

    def __init__(
        self,
        vocab: VocabTable,
        encoder: Encoder,
        config: TemplateConfig,
        template: str | None,
        name: str,
        n_ctx: int | None = None,
    ) -> None:
        self._n_ctx = n_ctx
        self.vocab = vocab
        self._config = config
        self._name = name
        self._encode = partial(encode_in_pieces, encoder)
        if config.chat_template:
            try:
                compile_template(config.chat_template)
            except InvalidRequestError as error:
                raise ConfigError(f"--chat-template: {error}") from None
        chosen, note = usable_template(
            Side(vocab, config.chat_template or template, name),
            Options(config.mappings, target_family=config.target_family),
        )
        self.notes = (note,) if note else ()
        self.template = chosen
        self.sight: Sight | None = None
        """Puts images into prompts; None: they are refused."""
        self._kwargs = _defaults(chosen, config.variables)
        self._ids_of_chats: dict[str, list[int]] = {}
        self._keeps_ids = not any(word in chosen for word in _CHANGING)
        self._lock = threading.Lock()
        self._warned = threading.Event()
        self._doubled = threading.Event()

    @cached_property
    def answers(self) -> AnswerFormat:
        directories = (*self._config.mappings, bundled_mappings())
        families = load_families(directories)
        formats = {name: file.format for name, file in load_all_calls(directories).items()}
        if self._config.target_family is None:
            family = recognise(Side(self.vocab, self.template, self._name), families).family
        else:
            family = find_family(families, self._config.target_family)
        hidden = [name for name, id_ in self.vocab.specials.items() if not self.vocab.texts[id_]]
        return answer_format(self.template, calling(self.template), formats, family, hidden)

    def template_caps(self) -> Mapping[str, bool]:
        return capabilities(self.template)

    def answers_note(self) -> str:
        """The known format of its answers, in a line."""
        thought, calls = (
            self.answers.thought,
            ", ".join(format_.name for format_ in self.answers.calls) or "in no known format",
        )
        return f"answers of {self._name}: thoughts between {thought.start} and {thought.end}, tool calls {calls}"

    def render(
        self, messages: Sequence[Message], kwargs: Mapping[str, object], add_generation_prompt: bool, prefill: str = ""
    ) -> Rendered:
        """The prompt of a conversation, in pieces; `prefill` is the beginning of the answer. Raises
        InvalidRequestError.
        """
        given = {**self._kwargs, **settle_kwargs(self.template, kwargs)}
        talk = Talk(self.template, bos_name(self.vocab), eos_name(self.vocab), given, add_generation_prompt, prefill)
        rendered = converse(messages, talk)
        if add_generation_prompt and not prefill and any(given.get(name) is False for name in _THINKING):
            rendered = without_thoughts(rendered)
        if not rendered.exact and not self._warned.is_set():
            self._warned.set()
            _log.warning(
                "the chat template transforms its input: message text was found by search, specials in it stay text"
            )
        return rendered

    def chat(
        self,
        messages: Sequence[Message],
        kwargs: Mapping[str, object],
        add_generation_prompt: bool = True,
        prefill: str = "",
        add_special: bool = True,
        images: Sequence[Image] = (),
    ) -> list[int]:
        key = "" if images else self._key(messages, kwargs, add_generation_prompt, prefill, add_special)
        if (known := self._ids_of_chats.get(key)) is not None:
            return list(known)
        rendered = self.render(messages, kwargs, add_generation_prompt, prefill)
        self.check_length(rendered.text)
        if images:
            return with_images(rendered.parts, images, self.sight, partial(self._stretch, add_bos=add_special))
        ids = encode_parts(rendered.parts, self.vocab, self._encode, add_bos=add_special)
        if key:
            with self._lock:
                self._ids_of_chats[key] = list(ids)
                if len(self._ids_of_chats) > _N_KEPT:
                    self._ids_of_chats.pop(next(iter(self._ids_of_chats)))
        return ids

    def _key(self, *chat: object) -> str:
        """A key that tells a chat from others: clients count the ids of one and then send it, or send it several times.
        Empty for one that is not kept.
        """
        if not self._keeps_ids:
            return ""
        try:
            key = json.dumps(chat, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):  # rendering says what is wrong
            return ""
        return key if len(key) <= _LONGEST_KEPT_CHARS else ""

    def _stretch(self, parts: Sequence[Part], is_first: bool, *, add_bos: bool) -> list[int]:
        """The ids of what stands before, between or after images."""
        return encode_parts(parts, self.vocab, self._encode, add_bos=add_bos and is_first)

    def chat_text(
        self,
        messages: Sequence[Message],
        kwargs: Mapping[str, object],
        add_generation_prompt: bool = True,
        prefill: str = "",
        add_special: bool = True,
    ) -> str:
        rendered = self.render(messages, kwargs, add_generation_prompt, prefill)
        return self.raw(rendered) if add_special else rendered.text

    def raw(self, rendered: Rendered) -> str:
        """The text of a conversation as `tokenize` takes it: without the BOS that stands in front of it there."""
        return rendered.text.removeprefix(bos_name(self.vocab)) if self.vocab.add_bos else rendered.text

    def check_length(self, text: str) -> None:
        n_least = -(-len(text.encode("utf-8", "surrogatepass")) // self.vocab.longest)
        if self._n_ctx is not None and n_least > self._n_ctx:
            raise ContextOverflowError(n_least, self._n_ctx)

    def tokenize(
        self, text: str, add_special: bool = False, parse_special: bool = True, images: Sequence[Image] = ()
    ) -> list[int]:
        if images:
            ids = with_images([Part(text, parse_special)], images, self.sight, partial(self._stretch, add_bos=False))
            bos = [self.vocab.bos] if self.vocab.add_bos and self.vocab.bos is not None else []
            ids = [*bos, *ids] if add_special else ids
        else:
            ids = encode_text(text, self.vocab, self._encode, add_special=add_special, parse_special=parse_special)
        if add_special and parse_special and ids[:2] == [self.vocab.bos] * 2 and not self._doubled.is_set():
            self._doubled.set()
            _log.warning(
                "a prompt begins with %s, and the model wants one more in front; leave it out of the prompt, or send "
                "add_special_tokens: false",
                bos_name(self.vocab),
            )
        return ids

    def detokenize(self, ids: Sequence[int]) -> bytes:
        if not all(0 <= id_ < self.vocab.n_vocab for id_ in ids):
            raise InvalidRequestError(f"token ids must be between 0 and {self.vocab.n_vocab - 1}", "tokens")
        return b"".join(map(self.piece, ids))

    def is_special(self, id_: int) -> bool:
        """Whether an id shows nothing in an answer."""
        return not self.vocab.texts[id_]

    def piece(self, id_: int) -> bytes:
        return self.vocab.texts[id_] or self.vocab.special_names.get(id_, "").encode()


class TextService(Prompts):
    """All that requests ask of the target's texts and vocabulary, from any thread but the model's."""

    def __init__(
        self,
        vocab: VocabTable,
        encoder: Encoder,
        config: TemplateConfig,
        template: str | None,
        name: str,
        n_ctx: int,
        grammars: Grammars,
        breakers: Callable[[tuple[str, ...]], object],
    ) -> None:
        super().__init__(vocab, encoder, config, template, name, n_ctx)
        self._grammars = grammars
        self._breakers = breakers

    def check_constraint(self, constraint: Constraint) -> None:
        self._grammars.check(constraint)

    def check_sampling(self, sampling: SamplingParams) -> None:
        if sampling.dry_multiplier:
            self._breakers(sampling.dry_sequence_breakers)


def _defaults(template: str, kwargs: Mapping[str, object]) -> Mapping[str, object]:
    """The configured template variables, checked. Raises ConfigError."""
    try:
        return settle_kwargs(template, kwargs) if kwargs else {}
    except InvalidRequestError as error:
        raise ConfigError(f"--chat-template-kwargs: {error}") from None


def encode_in_pieces(encoder: Encoder, data: bytes) -> list[int]:
    """The ids that `encoder.encode(data)` gives. Raises InvalidRequestError where a megabyte has no safe boundary."""
    if len(data) <= PIECE_BYTES:
        return encoder.encode(data)
    ids: list[int] = []
    start = 0
    while start < len(data):
        checkpoint()
        end = _end(encoder, data, start)
        ids += encoder.encode(data[start:end])
        start = end
    return ids


def _end(encoder: Encoder, data: bytes, start: int) -> int:
    """The last safe boundary within a piece, or within twice of one and so on."""
    floor, limit = start, start + PIECE_BYTES
    while limit < len(data):
        cut = encoder.boundaries.last(data, limit, floor)
        if cut > floor:
            return cut
        if limit - start >= LONGEST:
            raise InvalidRequestError(
                f"the text holds {LONGEST} bytes without white space or punctuation; it is not tokenized"
            )
        floor, limit = limit, limit + (limit - start)
    return len(data)
