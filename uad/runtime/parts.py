"""Builds the parts of a runtime from its configuration, and takes them down again in order."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from uad.config import Config, ModelConfig
from uad.decode.layout import Least
from uad.decode.step import Engine
from uad.drafters.model import ModelDrafter
from uad.llama import native
from uad.llama.context import Context, physical_cores
from uad.llama.model import Model
from uad.llama.probe import least_agreeing_rows
from uad.llama.samplers import SamplerChain
from uad.policy.fixed import FixedPolicy
from uad.runtime.prompts import Prompts
from uad.sampling.noise import token_keys
from uad.sampling.sampler import Sampler
from uad.sampling.stages import Stage
from uad.templates.plan import Options, plan
from uad.templates.recognise import Side
from uad.types import ModelInfo, Request, RuntimeInfo
from uad.vocab.encode import Encoder

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Parts:
    """What a runtime is made of. Closing `stack` frees everything native."""

    engine: Engine
    prompts: Prompts
    model: Model
    info: RuntimeInfo
    stack: ExitStack


def build(config: Config, progress: Progress) -> Parts:
    """Loads the models and wires the parts. Raises ModelLoadError, MappingError or ConfigError; nothing stays loaded then."""
    native.start().verbose = config.verbose
    with ExitStack() as stack:
        target, context, least, notes = _open_target(config, stack, progress)
        encoder = Encoder(target.vocab)
        prompts = Prompts(target.vocab, encoder, config.templates, target.info.chat_template, _name(target.info))
        drafter, draft_info, draft_notes = _build_drafter(config, stack, target, context, encoder, progress)
        samplers = _samplers(context, target)
        engine = Engine(context, drafter, FixedPolicy(), samplers, lambda: secrets.randbits(32), least=least)
        info = RuntimeInfo(
            target=target.info,
            draft=draft_info,
            n_ctx=context.n_ctx,
            n_slots=config.n_parallel,
            build=native.build_info(),
            notes=(*notes, *prompts.notes, *draft_notes),
        )
        return Parts(engine, prompts, target, info, stack.pop_all())


def template_options(config: Config) -> Options:
    """The slice of the configuration that rules are made of."""
    t = config.templates
    return Options(mappings=t.mappings, replace=t.replace, target_family=t.target_family, draft_family=t.draft_family)


def side(model: Model, template: str | None = None) -> Side:
    return Side(model.vocab, template or model.info.chat_template, _name(model.info))


def _name(info: ModelInfo) -> str:
    return info.desc


def _build_drafter(
    config: Config, stack: ExitStack, target: Model, context: Context, encoder: Encoder, progress: Progress
) -> tuple[ModelDrafter | None, ModelInfo | None, tuple[str, ...]]:
    if config.draft is None:
        return None, None, ("no draft model: plain decoding",)
    if not context.can_truncate:
        return (
            None,
            None,
            (f"{_name(target.info)} cannot take back single positions (recurrent memory): plain decoding, the draft is not loaded",),
        )
    model = stack.enter_context(Model(config.draft, "draft", lambda share: progress("loading draft", share)))
    draft = stack.enter_context(Context(model, _draft_config(config.draft, model, context), config.n_parallel, "draft"))
    if not draft.can_truncate:
        return None, None, (f"draft {_name(model.info)} cannot take back single positions (recurrent memory): plain decoding",)
    if not config.draft.n_threads and (cores := physical_cores()) > 1:
        draft.choose_threads((1, cores))
    rules = plan(side(target, config.templates.chat_template), side(model), template_options(config))
    drafter = ModelDrafter(draft, encoder, rules.rules, heal=config.drafting.heal, salvage=config.drafting.salvage)
    return drafter, model.info, (*rules.notes, *_window_note(draft, context))


def _draft_config(config: ModelConfig, model: Model, target: Context) -> ModelConfig:
    """Unless told otherwise the draft gets as many positions per slot as the target, or as many as it was trained on."""
    if config.n_ctx:
        return config
    return replace(config, n_ctx=min(target.n_ctx, model.info.n_ctx_train) * target.n_seq)


def _window_note(draft: Context, target: Context) -> tuple[str, ...]:
    if draft.n_ctx >= target.n_ctx:
        return ()
    return (f"the draft's context has {draft.n_ctx} of the target's {target.n_ctx} tokens: past that it drafts from a window",)


def _open_target(config: Config, stack: ExitStack, progress: Progress) -> tuple[Model, Context, Least, tuple[str, ...]]:
    """The target, how large its passes must be, and the lines that say so. `--exact` loads it again without rearranged weights where
    only those stand in the way."""
    with ExitStack() as attempt:
        target = attempt.enter_context(Model(config.target, "target", lambda share: progress("loading target", share)))
        context = attempt.enter_context(Context(target, config.target, config.n_parallel, "target"))
        notes = (f"context: {context.n_ctx} tokens in each of {context.n_seq} slots",)
        least, exact_notes, again = _exactness(context, config)
        if not again:
            stack.enter_context(attempt.pop_all())
            return target, context, least, (*notes, *exact_notes)
    return _open_target(replace(config, target=replace(config.target, repack=False)), stack, progress)


def _exactness(context: Context, config: Config) -> tuple[Least, tuple[str, ...], bool]:
    """How large a pass must be for `--exact`, the line that says so, and whether another attempt without rearranged weights is due."""
    if not config.drafting.exact:
        return Least(), (), False
    if not context.can_truncate:
        return Least(), ("--exact has no effect: the model's memory cannot take back dummy rows",), False
    least = least_agreeing_rows(context)
    if least is None:
        return (
            Least(),
            ("--exact has no effect: on this backend no batch sizes compute the same bits for this model",),
            config.target.repack,
        )
    why = "any batch gives the same bits" if least == 1 else f"batches of {least} rows or more give the same bits; smaller ones are padded"
    how = "" if config.target.repack else " (weights are not rearranged for this processor: slower prompts)"
    return Least(least, of_each=not context.rows_are_apart), (f"--exact: {why}{how}",), False


def _samplers(context: Context, model: Model) -> Callable[[Request, int], Sampler]:
    keys = token_keys(model.vocab.pieces)
    n_vocab = model.info.n_vocab

    def chain(stages: Sequence[Stage]) -> SamplerChain:
        return SamplerChain(n_vocab, stages)

    return lambda request, seed: Sampler(request.sampling, seed, model.vocab.eog, context.n_ctx, chain, keys)
