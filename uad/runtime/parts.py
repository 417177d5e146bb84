"""Builds the parts of a runtime from its configuration, and takes them down again in order."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from uad.config import Config, ModelConfig
from uad.decode.drafting import Drafting
from uad.decode.layout import Least
from uad.decode.step import Engine
from uad.drafters.model import ModelDrafter
from uad.llama import native
from uad.llama.context import Context, physical_cores
from uad.llama.model import Model
from uad.llama.probe import least_agreeing_rows
from uad.llama.samplers import SamplerChain
from uad.policy.auto import AutoPolicy
from uad.policy.cost import CostCurve
from uad.policy.machine import Machine
from uad.runtime.open import open_model, tokenizer_notes
from uad.runtime.profiling import curve
from uad.runtime.prompts import Prompts
from uad.sampling.noise import token_keys
from uad.sampling.sampler import Sampler
from uad.sampling.stages import Stage
from uad.templates.plan import Options, plan
from uad.templates.recognise import Side
from uad.types import ModelInfo, Request, RuntimeInfo
from uad.vocab.encode import Encoder

Progress = Callable[[str, float], None]

_TARGET_SECONDS, _DRAFT_SECONDS = 1.7, 0.3  # at start, where no curve is stored
_MOST_DRAFT_ROWS = 16


@dataclass(frozen=True)
class Parts:
    """What a runtime is made of. Closing `stack` frees everything native."""

    engine: Engine
    prompts: Prompts
    model: Model
    info: RuntimeInfo
    policy: AutoPolicy
    stack: ExitStack


def build(config: Config, progress: Progress) -> Parts:
    """Loads the models and wires the parts. Raises ModelLoadError, MappingError or ConfigError; nothing stays loaded then."""
    native.start().verbose = config.verbose
    with ExitStack() as stack:
        target, context, least, notes = _open_target(config, stack, progress)
        encoder = Encoder(target.vocab)
        prompts = Prompts(target.vocab, encoder, config.templates, target.info.chat_template, _name(target.info))
        draft = _build_draft(config, stack, target, context, encoder, progress)
        policy, policy_notes = _build_policy(config, context, draft.context, least)
        drafting = None if draft.drafter is None else Drafting([draft.drafter], policy)
        engine = Engine(context, drafting, _samplers(context, target), lambda: secrets.randbits(32), least=least)
        info = RuntimeInfo(
            target=target.info,
            draft=draft.info,
            n_ctx=context.n_ctx,
            n_slots=config.n_parallel,
            build=native.build_info(),
            notes=(*notes, *prompts.notes, *draft.notes, *policy_notes),
        )
        return Parts(engine, prompts, target, info, policy, stack.pop_all())


def _build_policy(config: Config, context: Context, draft_context: Context | None, least: Least) -> tuple[AutoPolicy, tuple[str, ...]]:
    """The policy with the cost curves of both models: stored ones, else what two seconds tell."""
    n_max = min(context.n_ubatch, config.n_parallel * (1 + config.drafting.defaults.n_max))
    samples, stored = curve(context, config.target, "target", range(1, n_max + 1), _TARGET_SECONDS)
    draft = None
    if draft_context is not None and config.draft is not None:
        sizes = range(1, min(config.n_parallel, _MOST_DRAFT_ROWS) + 1)
        draft = CostCurve(curve(draft_context, config.draft, "draft", sizes, _DRAFT_SECONDS)[0])
    machine = Machine(CostCurve(samples), draft, n_ubatch=context.n_ubatch, least=least.rows, of_each=least.of_each)
    note = _curve_note(machine, n_max) + ("" if stored else "; measured quickly, `uad profile` measures well and remembers")
    return AutoPolicy(machine), (note,)


def _curve_note(machine: Machine, n_max: int) -> str:
    one = machine.target.ms(1)
    sizes = [n for n in (2, 4, 8, 16) if n <= n_max]
    return f"one token takes {one:.1f} ms; " + ", ".join(f"{n} at once {machine.target.ms(n) / one:.1f} times that" for n in sizes)


def template_options(config: Config) -> Options:
    """The slice of the configuration that rules are made of."""
    t = config.templates
    return Options(mappings=t.mappings, replace=t.replace, target_family=t.target_family, draft_family=t.draft_family)


def side(model: Model, template: str | None = None) -> Side:
    return Side(model.vocab, template or model.info.chat_template, _name(model.info))


def _name(info: ModelInfo) -> str:
    return info.desc


@dataclass(frozen=True)
class _Draft:
    """The draft model's part, or why there is none."""

    notes: tuple[str, ...]
    drafter: ModelDrafter | None = None
    context: Context | None = None
    info: ModelInfo | None = None


def _build_draft(config: Config, stack: ExitStack, target: Model, context: Context, encoder: Encoder, progress: Progress) -> _Draft:
    if config.draft is None:
        return _Draft(("no draft model: plain decoding",))
    if not context.can_truncate:
        name = _name(target.info)
        return _Draft((f"{name} cannot take back single positions (recurrent memory): plain decoding, the draft is not loaded",))
    model = stack.enter_context(open_model(config.draft, "draft", lambda share: progress("loading draft", share)))
    draft = stack.enter_context(Context(model, _draft_config(config.draft, model, context), config.n_parallel, "draft"))
    if not draft.can_truncate:
        return _Draft((f"draft {_name(model.info)} cannot take back single positions (recurrent memory): plain decoding",))
    if not config.draft.n_threads and (cores := physical_cores()) > 1:
        draft.choose_threads((1, cores))
    rules = plan(side(target, config.templates.chat_template), side(model), template_options(config))
    drafter = ModelDrafter(draft, encoder.sharing(), rules.rules, heal=config.drafting.heal, salvage=config.drafting.salvage)
    notes = (*tokenizer_notes(config.draft, "draft"), *rules.notes, *_window_note(draft, context))
    return _Draft(notes, drafter, draft, model.info)


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
        target = attempt.enter_context(open_model(config.target, "target", lambda share: progress("loading target", share)))
        context = attempt.enter_context(Context(target, config.target, config.n_parallel, "target"))
        notes = (f"context: {context.n_ctx} tokens in each of {context.n_seq} slots", *tokenizer_notes(config.target, "target"))
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
