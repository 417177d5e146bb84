"""What other parts may ask a loaded target, perhaps with a draft. Runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import TracebackType
from typing import Self

from uad.calls.forced import behind_thoughts, call_constraint
from uad.calls.format import AnswerFormat
from uad.calls.parser import Start
from uad.calls.tools import Calls, Schema
from uad.errors import InvalidRequestError
from uad.events import AdapterInfo, RuntimeInfo, SlotInfo, Totals
from uad.runtime.parts import Parts
from uad.stats import DrafterStats
from uad.types import Clock, Constraint, Request, SamplingParams


class Loaded:
    """What `build` made, and all that may be read of it from any thread. Use with `with`, or call `close()`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._engine = parts.engine
        self._prompts = parts.prompts
        self.info: RuntimeInfo = parts.info

    def close(self) -> None:
        """Frees the models."""
        self._parts.stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def clock(self) -> Clock:
        """What requests are timed with."""
        return self._parts.wiring.clock

    def check(self, request: Request) -> None:
        """Raises InvalidRequestError or ContextOverflowError where the request cannot be answered."""
        self._check_ids(request)
        self._engine.check(request)

    def _check_ids(self, request: Request) -> None:
        last, sampling = self.info.target.n_vocab - 1, request.sampling
        if not all(sampling.bad_words):
            raise InvalidRequestError("bad_words: a word without tokens cannot be written anyway", "bad_words")
        biased = [id_ for id_, _ in sampling.logit_bias]
        bound = (*sampling.allowed, *chain.from_iterable(sampling.bad_words))
        for field, ids, wrong in (
            ("prompt", request.prompt, f"the prompt has a token id outside the vocabulary (0 to {last})"),
            ("stop_token_ids", request.stop_token_ids, f"stop_token_ids: token ids must lie between 0 and {last}"),
            ("logit_bias", biased, f"logit_bias names a token id outside the vocabulary (0 to {last})"),
            ("allowed_token_ids", bound, f"token ids must lie between 0 and {last}"),
        ):
            if ids and not 0 <= min(ids) <= max(ids) <= last:
                raise InvalidRequestError(wrong, field)

    def check_constraint(self, constraint: Constraint) -> None:
        """Compile it ahead of its request, on any thread but the model's. Raises InvalidRequestError, with the place
        where there is one.
        """
        self._parts.grammars.check(constraint)

    def check_sampling(self, sampling: SamplingParams) -> None:
        """Find ahead of its request what takes long to find, on any thread but the model's."""
        if sampling.dry_multiplier:
            self._parts.breakers(sampling.dry_sequence_breakers)

    def call_constraint(self, calls: Calls, start: Start, tail: str, answer: Schema | None = None) -> Constraint | None:
        """See `forced.call_constraint`. Compiles nothing."""
        return call_constraint(self._parts.target.model.vocab, self.answers, calls, start, tail, answer)

    def behind_thoughts(self, bound: Constraint, start: Start, tail: str) -> Constraint:
        """See `forced.behind_thoughts`. Compiles nothing."""
        return behind_thoughts(self._parts.target.model.vocab, self.answers, bound, start, tail)

    def slots(self) -> tuple[SlotInfo, ...]:
        """What each slot does and holds."""
        return self._engine.slots()

    def totals(self) -> Totals:
        """Counts over all finished requests since start."""
        return self._engine.totals()

    def drafters(self) -> tuple[DrafterStats, ...]:
        """What each drafter did since start."""
        return self._engine.drafters()

    def adapters(self) -> tuple[AdapterInfo, ...]:
        """The target's adapters, with how much of each is added for requests that do not say."""
        infos = self._parts.target.model.adapters.infos
        return tuple(replace(info, scale=scale) for info, scale in zip(infos, self._parts.turns.default, strict=True))

    # --- text

    @property
    def answers(self) -> AnswerFormat:
        """How the target writes thoughts and calls."""
        return self._prompts.answers

    def template_caps(self) -> Mapping[str, bool]:
        """See `Prompts.template_caps`."""
        return self._prompts.template_caps()

    def check_length(self, text: str) -> None:
        """Raises ContextOverflowError where a prompt with this text cannot fit: cheap, to be asked before it is
        tokenized.
        """
        self._prompts.check_length(text)

    def tokenize(self, text: str, add_special: bool = False, parse_special: bool = True) -> list[int]:
        """See `Prompts.tokenize`."""
        return self._prompts.tokenize(text, add_special, parse_special)

    def detokenize(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids, specials as their names. Raises InvalidRequestError for an id outside the vocabulary."""
        if not all(0 <= id_ < self.info.target.n_vocab for id_ in ids):
            raise InvalidRequestError(f"token ids must be between 0 and {self.info.target.n_vocab - 1}", "tokens")
        return b"".join(self.piece(id_) for id_ in ids)

    def piece(self, id_: int) -> bytes:
        """See `Prompts.piece`."""
        return self._prompts.piece(id_)

    def is_special(self, id_: int) -> bool:
        """Whether an id shows nothing in an answer."""
        return not self._parts.target.model.vocab.texts[id_]

    def chat_prompt(
        self,
        messages: Sequence[Mapping[str, object]],
        template_kwargs: Mapping[str, object],
        add_generation_prompt: bool = True,
        prefill: str = "",
        add_special: bool = True,
    ) -> list[int]:
        """See `Prompts.chat`. Raises InvalidRequestError or ContextOverflowError."""
        return self._prompts.chat(messages, template_kwargs, add_generation_prompt, prefill, add_special)

    def render_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        template_kwargs: Mapping[str, object],
        add_generation_prompt: bool = True,
        prefill: str = "",
        add_special: bool = True,
    ) -> str:
        """The prompt of a conversation as text, of which `tokenize` with the same add_special makes the ids of
        `chat_prompt`. Raises InvalidRequestError.
        """
        rendered = self._prompts.render(messages, template_kwargs, add_generation_prompt, prefill)
        return self._prompts.raw(rendered) if add_special else rendered.text
