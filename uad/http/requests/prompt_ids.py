"""From a request's prompt or messages to token ids, those of prompts that fill in the middle (FIM) too: POST /infill,
and `suffix` of completions. Slow-ish: runs in worker threads, never on the event loop.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from uad.base.checkpoint import checkpoint
from uad.base.common.json_out import chunks
from uad.base.errors import ContextOverflowError, InvalidRequestError, NotSupportedError
from uad.base.types import FimTokens, Image
from uad.http.requests.fields import CompletionBody, ExtraBody, InfillBody, MessageBody, NativeBody, TemplateBody
from uad.http.requests.generation import Backend
from uad.http.requests.message_fields import TextPart
from uad.http.requests.pictures import with_markers, with_places
from uad.http.requests.thoughts import switched
from uad.text.calls.format import THINK_TAGS, AnswerFormat
from uad.text.prompts import Text
from uad.text.templates.history import Message

PromptPart = str | int
RESERVED_KWARGS = frozenset(
    (
        *("messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "chat_template"),
        *("tokenize", "continue_final_message", "self"),
    )
)
"""Names that a template has from here, and arguments of the function that renders it."""
MAX_KWARG_CHARS = 65536
MAX_TOOL_CHARS = 1 << 22
_IDS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt as ids."""

    ids: tuple[int, ...]
    """The prompt's ids; those below 0 stand for parts of pictures."""
    text: str
    """For display; empty where no answer shows it."""
    drafted: tuple[int, ...] = ()
    """See `Request.drafted_prompt`."""
    images: tuple[Image, ...] = ()
    """See `Request.images`."""

    @property
    def shown_ids(self) -> tuple[int, ...]:
        """The ids as clients see them, with -1 for parts of pictures, as llama-server has it."""
        return tuple(max(id_, -1) for id_ in self.ids) if self.images else self.ids


def split_prompts(value: object) -> list[object]:
    """The prompts in `prompt`: a string, ids, strings mixed with ids, an object with `prompt_string`, or a list of
    these.
    """
    # [1, 2] is one prompt of two ids, ["a", 2] one of a text and an id, ["a", "b"] are two prompts, [[1], [2]] as well.
    if not isinstance(value, list) or any(isinstance(item, int | float) for item in value):
        return [value]
    if not value:
        raise InvalidRequestError.at("prompt", "must not be an empty list")
    return value


def parts_of(value: object, n_vocab: int, param: str) -> list[PromptPart]:
    """The strings and ids of one prompt, checked."""
    if isinstance(value, dict):
        if value.get("multimodal_data"):
            raise InvalidRequestError.at(param, "this is read as text only; leave multimodal_data out")
        value = value.get("prompt_string")
    items: list[object] = value if isinstance(value, list) else [value] if isinstance(value, str) else [None]
    parts: list[PromptPart] = []
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int | str):
            raise InvalidRequestError.at(param, "must be a string, or a list of token ids and strings")
        if isinstance(item, int) and not 0 <= item < n_vocab:
            raise InvalidRequestError.at(param, f"token ids must lie between 0 and {n_vocab - 1}")
        parts.append(item)
    return parts


def ids_of(value: object, n_vocab: int, param: str) -> list[int]:
    """The token ids in a list of numbers, checked."""
    if not isinstance(value, list):
        raise InvalidRequestError.at(param, "must be a list of token ids")
    ids = [
        int(item)
        for item in value
        if isinstance(item, int | float) and not isinstance(item, bool) and item == item // 1
    ]
    if len(ids) < len(value) or not all(0 <= id_ < n_vocab for id_ in ids):
        raise InvalidRequestError.at(param, f"must be token ids between 0 and {n_vocab - 1}")
    return ids


def mixed_ids(text: Text, parts: list[PromptPart], add_special: bool, parse_special: bool) -> list[int]:
    """Ids of strings and ids in a row. add_special: what the model wants in front of a text stands in front of the
    first part, if that is a text.
    """
    ids: list[int] = []
    for i, part in enumerate(parts):
        checkpoint()
        if isinstance(part, str):
            ids += text.tokenize(part, add_special=add_special and i == 0, parse_special=parse_special)
        else:
            ids.append(part)
    return ids


def text_of(text: Text, ids: Sequence[int]) -> str:
    """The text of ids, some thousand at a time; bytes that are no text become U+FFFD. Those below 0, which stand for
    pictures in prompts, have none.
    """
    # A character may be cut between two batches of ids, or end in none: "\xc3" and "\xa9" make one é
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts: list[str] = []
    for start in range(0, len(ids), _IDS_AT_ONCE):
        checkpoint()
        chunk = [id_ for id_ in ids[start : start + _IDS_AT_ONCE] if id_ >= 0]
        texts.append(decoder.decode(text.detokenize(chunk)))
    return "".join(texts) + decoder.decode(b"", final=True)


def check_prompts(engine: Backend, body: CompletionBody | NativeBody, prompts: Sequence[object]) -> None:
    """Raise for what `encode_completion` refuses and that neither models nor vocabularies are needed for."""
    n_vocab = engine.info.target.n_vocab
    if isinstance(body, InfillBody):
        check_fim(engine, "input_suffix")
        parts_of(body.input_prefix, n_vocab, "input_prefix")
        parts_of(body.input_suffix, n_vocab, "input_suffix")
        return
    if isinstance(body, CompletionBody) and body.suffix:
        check_fim(engine, "suffix")
    for prompt in prompts:
        if not (isinstance(prompt, dict) and prompt.get("multimodal_data")):
            _check_number(engine, parts_of(prompt, n_vocab, "prompt"))


def encode_completion(
    engine: Backend, body: CompletionBody | NativeBody, prompt: object, images: Sequence[Image] = ()
) -> Prompt:
    """One prompt of a body without messages."""
    if isinstance(body, InfillBody):
        return encode_infill(engine, body)
    if isinstance(body, CompletionBody) and body.suffix:
        return encode_insertion(engine, prompt, body.suffix, body.add_special_tokens)
    encoded = encode_prompt(engine, prompt, body.add_special_tokens, images)
    return replace(encoded, text=text_of(engine.text, encoded.ids)) if isinstance(body, NativeBody) else encoded


def encode_prompt(engine: Backend, prompt: object, add_special: bool = True, images: Sequence[Image] = ()) -> Prompt:
    """One prompt of a completion; add_special is as `mixed_ids` has it. With images it is an object with
    `prompt_string`, a text.
    """
    if images:
        assert isinstance(prompt, dict), "other prompts have no images"
        text = prompt["prompt_string"]
        engine.text.check_length(text)
        placed = with_places(text, len(images))
        ids = tuple(engine.text.tokenize(placed, add_special=add_special, parse_special=True, images=images))
        return filled(Prompt(ids, text, images=tuple(images)), "prompt")
    ids = raw_ids(engine, prompt, add_special)
    return filled(Prompt(ids, prompt if isinstance(prompt, str) else text_of(engine.text, ids)), "prompt")


def raw_ids(engine: Backend, prompt: object, add_special: bool) -> tuple[int, ...]:
    """The ids of a prompt, which may have none. Every part but an empty text is taken for one id at least, so that too
    many are not tokenized.
    """
    parts = parts_of(prompt, engine.info.target.n_vocab, "prompt")
    _check_number(engine, parts)
    for part in parts:
        if isinstance(part, str):
            engine.text.check_length(part)
    return tuple(mixed_ids(engine.text, parts, add_special, parse_special=True))


def _check_number(engine: Backend, parts: Sequence[PromptPart]) -> None:
    # ["a", "b", 5] has three ids at least, whatever the vocabulary: a list of a million texts is refused without work.
    n_least = sum(part != "" for part in parts)
    if n_least > engine.info.n_ctx:
        raise ContextOverflowError(n_least, engine.info.n_ctx)


def encode_chat(text: Text, body: TemplateBody, images: Sequence[Image] = ()) -> Prompt:
    """The prompt of a chat. A last message of the assistant is the beginning of the answer, as llama-server has it."""
    ids = tuple(text.chat(*_for_template(text, body), images=images))
    return filled(Prompt(ids, "", images=tuple(images)), "messages")


def render_chat(text: Text, body: TemplateBody) -> str:
    """The same prompt as text, with llama-server's markers for its pictures."""
    return with_markers(text.chat_text(*_for_template(text, body)))


def _for_template(text: Text, body: TemplateBody) -> tuple[list[Message], dict[str, object], bool, str, bool]:
    """Arguments of `Text.chat`: messages, template variables, whether the answer is opened, how it begins, BOS."""
    check_begun(body)
    n = len(body.messages) - (body.messages[-1].role == "assistant")
    prefill, messages = answer_begun(body, text.answers), [*map(_message, body.messages[:n])]
    opens = True if prefill or body.add_generation_prompt is None else body.add_generation_prompt
    return messages, _template_kwargs(body), opens, prefill, body.add_special_tokens


def chat_template(engine: Backend) -> str:
    """The template in use, empty where neither the model nor the configuration has one."""
    return engine.config.templates.template(engine.info.target.chat_template)


def filled(prompt: Prompt, param: str) -> Prompt:
    """The prompt. Raises InvalidRequestError where it is empty."""
    if not prompt.ids:
        raise InvalidRequestError.at(param, "the prompt has no tokens; send at least one character")
    return prompt


def check_begun(body: TemplateBody) -> None:
    """Raise InvalidRequestError for a last message that no answer can go on from, where the request wants that."""
    messages = body.messages
    last, is_open = messages[-1], messages[-1].role == "assistant"
    if body.continue_final_message and body.add_generation_prompt:
        raise InvalidRequestError(
            "add_generation_prompt and continue_final_message cannot both be true", "continue_final_message"
        )
    if body.continue_final_message and not is_open:
        raise InvalidRequestError.at("continue_final_message", "the last message must be the assistant's")
    if not is_open:
        return
    if len(messages) > 1 and messages[-2].role == "assistant":
        raise InvalidRequestError.at(
            "messages", "one last assistant message is continued; put what the assistant said before into it"
        )
    if last.tool_calls:
        raise InvalidRequestError.at("messages", "the last assistant message calls tools; their results must follow it")
    if body.continue_final_message == "reasoning_content" and _content_of(last):
        raise InvalidRequestError.at(
            "continue_final_message", "thoughts that go on have no content after them; leave that out"
        )
    if any(part.image_url is not None for part in last.content or ()):
        raise InvalidRequestError.at("messages", "the last assistant message is continued, and can hold no images")


def _message(message: MessageBody) -> Message:
    """For the template: a content of several parts stays in parts, but for one with images, which is one text with
    their markers, as in llama-server.
    """
    extra = message.model_dump(include={"name", "reasoning_content", "tool_call_id", "tool_calls"}, exclude_none=True)
    content = message.content or ()
    if any(part.image_url is not None for part in content):
        return {"role": message.role, "content": _with_markers(content), **extra}
    parts = [{"type": "text", "text": part.text} for part in content]
    text = "\n".join(part.text for part in content)
    return {"role": message.role, "content": parts if len(parts) > 1 else text, **extra}


def _with_markers(content: Sequence[TextPart]) -> str:
    """All parts in one: a line for each text, and nothing around markers."""
    # "a", "b", an image, "c" are "a\nb[place]c"
    texts: list[str] = []
    was_text = False
    for part in content:
        is_text = part.image_url is None
        texts.append(f"\n{part.text}" if is_text and was_text else part.text)
        was_text = is_text
    return "".join(texts)


def _content_of(message: MessageBody) -> str:
    """A message's text: its parts are paragraphs, as in llama-server."""
    return "\n\n".join(part.text for part in message.content or ())


def answer_begun(body: TemplateBody, answers: AnswerFormat) -> str:
    """The beginning of the answer that the last message of the assistant is; empty where it is another's. Thoughts are
    in the model's marks, and go on where nothing stands after them, unless the request says otherwise. A model without
    thoughts has no place for them.
    """
    last = body.messages[-1]
    if last.role != "assistant":
        return ""
    content, thoughts = _content_of(last), last.reasoning_content
    if not thoughts or not (answers.thinks or answers.channels):
        return content
    before, after, below = ("\n", "\n", "\n\n") if answers.marks == THINK_TAGS else ("", "", "")
    begun = f"{answers.marks.start}{before}{thoughts}"
    if not content and body.continue_final_message != "content":
        return begun
    return f"{begun}{after}{answers.marks.end}{below}{content}"


def _template_kwargs(body: TemplateBody) -> dict[str, object]:
    kwargs: dict[str, object] = dict(body.chat_template_kwargs)
    for name, value in kwargs.items():
        _check_kwarg(name, value)
    functions = [tool.function.for_template() for tool in body.offered]
    if sum(map(len, chunks(functions))) > MAX_TOOL_CHARS:
        raise InvalidRequestError.at("tools", f"at most {MAX_TOOL_CHARS} characters as JSON")
    if functions:
        kwargs["tools"] = [{"type": "function", "function": function} for function in functions]
    return switched(body, kwargs)


def _check_kwarg(name: str, value: object) -> None:
    """Check a template variable. The template gives the value its meaning. Raises InvalidRequestError."""
    where = f"chat_template_kwargs.{name[:64]}"
    if not name.isidentifier() or name.startswith("_") or name in RESERVED_KWARGS:
        raise InvalidRequestError(
            f"{where}: this name is reserved, or none that a template could read", "chat_template_kwargs"
        )
    if sum(map(len, chunks(value))) > MAX_KWARG_CHARS:
        raise InvalidRequestError.at(where, f"at most {MAX_KWARG_CHARS} characters as JSON")


# --- prompts that fill in the middle


_PROJECT, _FILE, _SNIPPET = "myproject\n", "filename\n", "\n\n--- snippet ---\n\n"
"""Texts of llama-server for a project and a file, which requests do not name, and between chunks without a mark."""
_BESIDE_IDS: Final = 2
"""Ids that llama-server takes from the suffix's share, beside the prompt."""
_MARK_IDS: Final = 8
"""Most ids of a prompt that stand for no text of the request."""
_MOST_CHARS: Final = 64
"""Characters of a text for each id that is wanted of it: a longer one is cut before it is tokenized."""
_USUAL_ANSWER: Final = 8
"""Where neither request nor server says how long an answer may be, it has this part of the context."""


@dataclass(frozen=True, slots=True)
class FimParts:
    """The ids around the cursor."""

    prefix: Sequence[int]
    suffix: Sequence[int]
    extra: Sequence[int] = ()
    """Ids of other files, which stand before both."""

    def prompt(self, fim: FimTokens, bos: Sequence[int], suffix_first: bool) -> tuple[int, ...]:
        """Ids that the model reads: prefix, suffix, middle; or the suffix first, which some models prefer (SPM)."""
        # Of a file "ab|ef" the model reads <prefix>ab<suffix>ef<middle>, or <suffix>ef<prefix>ab<middle>.
        before, after = (*_mark(fim.prefix), *self.prefix), (*_mark(fim.suffix), *self.suffix)
        both = (*after, *before) if suffix_first else (*before, *after)
        return (*self.extra, *bos, *both, *_mark(fim.middle))

    def drafted(self, fim: FimTokens) -> tuple[int, ...]:
        """Ids that drafters read: the same text without marks, and the prefix last, after which the answer goes on. The
        text that followed the prefix's last ids elsewhere in the file, before the cursor or after it, is then a guess.
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
        return cls(3 * quarter, max(quarter - _BESIDE_IDS - n_begun, 0), max(n_ctx - n - 2 * n_answer - _MARK_IDS, 0))


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
    # The server's own limit, not the request's: the prompt that warms the cache, with a limit of 0, has to be that of
    # the next request.
    n = engine.config.n_predict
    n_answer = n if n >= 0 else engine.info.n_ctx // _USUAL_ANSWER
    shares = FimShares.of(engine.info.n_ctx, n_batch, len(begun), n_answer)
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
    """Ids that begin a prompt, where the model wants them and the request does not say otherwise."""
    return tuple(engine.text.tokenize("", add_special=add_special, parse_special=False))


def _extra(engine: Backend, fim: FimTokens, files: Sequence[ExtraBody], n_most: int) -> list[int]:
    """The last n_most ids of the project's mark, other files' chunks, each after its name, and this file's name."""
    name = [*_mark(fim.file), *_tokens(engine, _FILE)] if fim.file is not None else []
    ids, n_left = [name], n_most - len(name)
    for file in reversed(files):
        if n_left <= 0:
            break
        ids.append(_chunk(engine, fim, file, _MOST_CHARS * n_left))
        n_left -= len(ids[-1])
    project = [*_mark(fim.project), *_tokens(engine, _PROJECT)] if fim.project is not None else []
    return _last([*project, *chain.from_iterable(reversed(ids))], n_most)


def _chunk(engine: Backend, fim: FimTokens, file: ExtraBody, n_chars: int) -> list[int]:
    """A chunk of another file, of which the last characters are wanted, after the file's name."""
    head = _SNIPPET if fim.file is None else f"{file.filename}\n"[-n_chars:]
    return [*_mark(fim.file), *_tokens(engine, head), *_tokens(engine, file.text[-n_chars:])]


def _tokens(engine: Backend, text: str) -> list[int]:
    return engine.text.tokenize(text, add_special=False, parse_special=False)


def _ids(engine: Backend, value: object, param: str, n: int, at_end: bool) -> list[int]:
    """The ids of a text, or of texts and ids in a row, of which n are wanted, at the end or at the beginning."""
    parts = [_cut(part, _MOST_CHARS * n, at_end) for part in parts_of(value, engine.info.target.n_vocab, param)]
    return mixed_ids(engine.text, parts, add_special=False, parse_special=False)


def _cut(part: PromptPart, n_chars: int, at_end: bool) -> PromptPart:
    if isinstance(part, int):
        return part
    return part[max(len(part) - n_chars, 0) :] if at_end else part[:n_chars]


def _last(ids: list[int], n: int) -> list[int]:
    return ids[max(len(ids) - n, 0) :]
