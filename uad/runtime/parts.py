"""Builds the parts of a runtime from its configuration, and takes them down again in order."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from uad.backend.devices import offloads
from uad.config import Config, ModelConfig
from uad.costs.fit import fitted, fitted_alone
from uad.costs.profile import most_singly
from uad.decode.drafting import Drafting
from uad.decode.ends import ends_of, name_of
from uad.decode.guard import reason
from uad.decode.prompt_cache import PromptCache
from uad.decode.scheduler import SamplerFactory
from uad.decode.step import Engine
from uad.drafters.draft_work import DraftContext
from uad.drafters.model import ModelDrafter
from uad.drafters.protocol import Drafter
from uad.drafters.row_by_row import RowByRow
from uad.errors import ConfigError, InvalidRequestError, MappingError, ModelLoadError, NotSupportedError
from uad.events import ModelInfo, RuntimeInfo
from uad.grammar.drafter import GrammarDrafter
from uad.grammar.grammars import Grammars
from uad.grammar.protocol import Matcher
from uad.grammar.vocabulary import GrammarVocabulary
from uad.llama import native
from uad.llama.context import Context
from uad.llama.memory import SavedSequence
from uad.llama.model import Model
from uad.llama.samplers import SamplerChain
from uad.llama.trained import training_note
from uad.mapping.plan import Options, plan
from uad.mapping.recognise import Side, bos_name, eos_name
from uad.policy.fixed import FixedPolicy
from uad.runtime import drafters, remote
from uad.runtime.adapters import AdapterTurns
from uad.runtime.drafters import Lookup
from uad.runtime.heads import open_head, plan_head
from uad.runtime.open import open_model, tokenizer_notes
from uad.runtime.pacing import Policies, Steps, draft_steps, open_policy
from uad.runtime.prompt_cache import open_prompt_cache
from uad.runtime.prompts import Prompts
from uad.runtime.remote import connected
from uad.runtime.target import LoadedTarget, Progress, open_target
from uad.runtime.wiring import WIRING, Wiring
from uad.sampling.dry import BreakersOf, breakers_of
from uad.sampling.noise import token_keys
from uad.sampling.sampler import Sampler
from uad.sampling.stages import Stage
from uad.types import Origin, Request
from uad.vocab.encode import Encoder

_log = logging.getLogger("uad")
_SNAPSHOTS = 8  # ids of most drafts that pay; each takes as much memory as the state


@dataclass(frozen=True)
class Parts:
    """What a runtime is made of. Closing `stack` frees everything native. samplers: for any engine on this target.
    drafter: the draft model's. wiring: how they were joined. grammars: constraints of requests, compiled.
    breakers: finds those of DRY.
    """

    config: Config
    engine: Engine
    turns: AdapterTurns
    prompts: Prompts
    grammars: Grammars
    breakers: BreakersOf
    target: LoadedTarget
    samplers: SamplerFactory
    info: RuntimeInfo
    drafter: ModelDrafter | None
    policies: Policies | None
    wiring: Wiring
    stack: ExitStack


def build(config: Config, progress: Progress, wiring: Wiring = WIRING) -> Parts:
    """Loads the models and wires the parts.

    Raises ModelLoadError, MappingError or ConfigError; nothing stays loaded then.
    """
    native.start().verbose = config.verbose
    native.use_numa(config.numa)
    planned = plan_head(connected(config))
    fit = fitted(_with_snapshots(planned.config), head=planned.file)
    config = fit.config
    placed = remote.notes(config)
    with ExitStack() as stack:
        target = open_target(config, stack, progress)
        model, context = target.model, target.context
        _check_bias(config, model.info.n_vocab)
        encoder = Encoder(model.vocab)
        prompts = Prompts(
            model.vocab, encoder, config.templates, model.info.chat_template, _name(model.info), context.n_ctx
        )
        head = open_head(planned, config, stack, target, progress, wiring)
        draft = _open_draft(config, stack, target, encoder, progress, wiring)
        free = _open_lookup(config, stack, target, encoder)
        policies, drafting = None, None
        every: list[Drafter] = [*free, *(one for one in (head.drafter, draft.drafter) if one is not None)]
        grammars, matchers = _grammars(config, model, encoder), dict[int, Matcher]()
        forced = _forced(config, target, matchers)
        policy_notes: tuple[str, ...] = ()
        if every:
            is_seldom = _only_by_request(every)
            policies, policy_notes = open_policy(config, target, draft.steps, head.steps, wiring, is_seldom)
        if every or forced:
            drafting = wiring.drafting((*forced, *every), policies or FixedPolicy, model, matchers)
        breakers = _breakers(model)
        samplers = wiring.samplers(_samplers(context, model, grammars, breakers), model)
        engine = _engine(target, drafting, samplers, wiring, matchers, open_prompt_cache(config, context, wiring.clock))
        notes = (
            *placed,
            *target.notes,
            *fit.notes,
            *prompts.notes,
            prompts.answers_note(),
            *grammars.notes,
            *head.notes,
            *draft.notes,
        )
        info = RuntimeInfo(
            target=model.info,
            draft=draft.info,
            n_ctx=context.n_ctx,
            n_slots=config.n_parallel,
            build=native.build_info(),
            notes=(*notes, *drafters.notes(free, config.drafting.lookup), *policy_notes),
            drafters=tuple(one.origin for one in every),
            eog={id_: name_of(id_, model.vocab) for id_ in sorted(model.vocab.eog)},
            fim=model.vocab.fim,
            bos_token=bos_name(model.vocab),
            eos_token=eos_name(model.vocab),
        )
        return Parts(
            config,
            engine,
            _turns(engine, target),
            prompts,
            grammars,
            breakers,
            target,
            samplers,
            info,
            draft.drafter,
            policies,
            wiring,
            stack.pop_all(),
        )


def _with_snapshots(config: Config) -> Config:
    """Where something drafts, a recurrent state of the target keeps its last values, which cost memory for each."""
    defaults, drafts = config.drafting.defaults, config.draft is not None or set(config.drafting.types) - {Origin.MODEL}
    n = min(_SNAPSHOTS, defaults.longest) if defaults.enabled and drafts else 0
    return replace(config, target=replace(config.target, n_snapshots=n))


def _check_bias(config: Config, n_vocab: int) -> None:
    for id_, _ in config.sampling.logit_bias:
        if not 0 <= id_ < n_vocab:
            raise ConfigError(f"--logit-bias {id_}: the target has no such token id (0 to {n_vocab - 1})")


def alone(parts: Parts) -> Parts:
    """The same target by itself: its weights, a context and slots of its own, nothing that drafts. To be closed before
    `parts`.
    """
    target, info, wiring = parts.target, parts.info, parts.wiring.twin()
    with ExitStack() as stack:
        own = fitted_alone(parts.config, target.config, "target", info.n_slots)
        context = stack.enter_context(Context(target.model, own, info.n_slots, "target"))
        target = replace(target, context=context)
        engine = _engine(target, None, parts.samplers, wiring)
        return replace(
            parts,
            engine=engine,
            turns=_turns(engine, target),
            target=target,
            info=replace(info, draft=None, drafters=(), notes=(*target.notes, *parts.prompts.notes)),
            drafter=None,
            policies=None,
            wiring=wiring,
            stack=stack.pop_all(),
        )


def _turns(engine: Engine, target: LoadedTarget) -> AdapterTurns:
    return AdapterTurns(engine, target.context.add_adapters, target.model.adapters.scales)


def _engine(
    target: LoadedTarget,
    drafting: Drafting | None,
    samplers: SamplerFactory,
    wiring: Wiring,
    matchers: dict[int, Matcher] | None = None,
    cache: PromptCache[SavedSequence] | None = None,
) -> Engine:
    decoder, seeds = wiring.target(target.context), lambda: secrets.randbits(32)
    return Engine(
        decoder, drafting, samplers, seeds, least=target.least, clock=wiring.clock, matchers=matchers, cache=cache
    )


def _grammars(config: Config, model: Model, encoder: Encoder) -> Grammars:
    grammars = Grammars(GrammarVocabulary(model.vocab, encoder.encode))
    if config.constraint is not None:
        try:
            grammars.check(config.constraint)
        except (InvalidRequestError, NotSupportedError) as error:
            raise ConfigError(f"the {config.constraint.kind} given for all requests: {error}") from None
    return grammars


def _forced(config: Config, target: LoadedTarget, matchers: Mapping[int, Matcher]) -> tuple[Drafter, ...]:
    """The drafter of what constraints force. Where it is the only one, its drafts are taken as they come: no costs are
    weighed.
    """
    if not (target.context.can_take_back and config.drafting.grammar and config.drafting.defaults.enabled):
        return ()
    return (GrammarDrafter(matchers),)


def _only_by_request(every: Sequence[Drafter]) -> bool:
    """Whether nothing drafts but for requests that bring what it drafts from."""
    return all(one.origin is Origin.PREDICTION for one in every)


def _open_lookup(config: Config, stack: ExitStack, target: LoadedTarget, encoder: Encoder) -> tuple[Lookup, ...]:
    """The drafters that need no model. Closing them writes their files."""
    if not target.context.can_take_back or not config.drafting.defaults.enabled:
        return ()
    free = drafters.build(config.drafting, target.model.vocab, config.n_parallel, encoder.sharing())
    for drafter in free:
        stack.callback(_close, drafter)
    return free


def _close(drafter: Lookup) -> None:
    """Write what it keeps in files. A failure is told, and keeps nothing else from being closed."""
    try:
        drafter.close()
    except Exception as error:
        _log.warning(
            "%s could not write what it has learned (%s); its file is as it was", drafter.origin, reason(error)
        )


def template_options(config: Config) -> Options:
    """The slice of the configuration that rules are made of."""
    t = config.templates
    return Options(mappings=t.mappings, replace=t.replace, target_family=t.target_family, draft_family=t.draft_family)


def side(model: Model, template: str | None = None) -> Side:
    """What recognition and rules need of a model; `template` replaces the chat template of its file."""
    return Side(model.vocab, template or model.info.chat_template, _name(model.info))


def _name(info: ModelInfo) -> str:
    return info.desc


@dataclass(frozen=True)
class _OpenedDraft:
    """The draft model's part, or why there is none."""

    notes: tuple[str, ...]
    drafter: ModelDrafter | None = None
    steps: Steps | None = None
    info: ModelInfo | None = None


def _open_draft(
    config: Config, stack: ExitStack, target: LoadedTarget, encoder: Encoder, progress: Progress, wiring: Wiring
) -> _OpenedDraft:
    """The draft model's part on the stack; where it loads and then fails, none, and the line that says so."""
    if config.draft is None:
        return _OpenedDraft(
            ("no draft model",) if set(config.drafting.types) - {Origin.MODEL} else ("no draft model: plain decoding",)
        )
    if not target.context.can_take_back:
        return _OpenedDraft(
            (
                (
                    f"the memory of {_name(target.model.info)} cannot take drafts back: plain decoding, the draft is "
                    "not "
                    "loaded"
                ),
            )
        )
    model = stack.enter_context(open_model(config.draft, "draft", lambda share: progress("loading draft", share)))
    with ExitStack() as attempt:
        try:
            opened = _draft_of(config, config.draft, attempt, model, target, encoder, wiring)
        except (ConfigError, ModelLoadError, MappingError):  # the user's
            raise
        except Exception as error:
            _log.debug("the draft model failed at start", exc_info=error)
            return _OpenedDraft((f"draft {_name(model.info)} failed at start ({reason(error)}): plain decoding",))
        stack.enter_context(attempt.pop_all())
        return opened


def _draft_of(
    config: Config,
    own: ModelConfig,
    stack: ExitStack,
    model: Model,
    target: LoadedTarget,
    encoder: Encoder,
    wiring: Wiring,
) -> _OpenedDraft:
    draft = stack.enter_context(Context(model, _draft_config(own, model, target.context), config.n_parallel, "draft"))
    if not draft.can_take_back:
        return _OpenedDraft((f"the memory of the draft {_name(model.info)} cannot take back ids: plain decoding",))
    draft.choose_threads(own)
    rules = plan(side(target.model, config.templates.chat_template), side(model), template_options(config))
    drafter = ModelDrafter(
        _row_by_row(wiring.draft(draft), draft, own),
        encoder.sharing(),
        rules.rules,
        heal=config.drafting.heal,
        salvage=config.drafting.salvage,
        window=config.drafting.window,
        clock=wiring.clock,
    )
    notes = (
        *tokenizer_notes(own, "draft"),
        *training_note(own, "draft", draft.n_ctx, model.info.n_ctx_train, model.meta),
        *rules.notes,
        *_window_note(draft, target.context),
    )
    return _OpenedDraft(notes, drafter, draft_steps(config, draft, own, wiring), model.info)


def _row_by_row(context: DraftContext, draft: Context, config: ModelConfig) -> DraftContext:
    """The draft's context, where a device computes it and few rows cost less one by one."""
    if not (draft.can_stop and offloads(config) and draft.n_ctx > 1):
        return context
    most = most_singly(draft)
    return context if most == 1 else RowByRow(context, most)


def _draft_config(config: ModelConfig, model: Model, target: Context) -> ModelConfig:
    """Unless told otherwise the draft gets as many positions per slot as the target, or as many as it was trained
    on.
    """
    if config.n_ctx:
        return config
    return replace(config, n_ctx=min(target.n_ctx, model.info.n_ctx_train) * target.n_seq)


def _window_note(draft: Context, target: Context) -> tuple[str, ...]:
    if draft.n_ctx >= target.n_ctx:
        return ()
    return (
        (
            f"the draft's context has {draft.n_ctx} of the target's {target.n_ctx} tokens: past that it drafts from a "
            "window"
        ),
    )


def _breakers(model: Model) -> BreakersOf:
    names = model.vocab.special_names
    words = [piece or names.get(id_, "").encode() for id_, piece in enumerate(model.vocab.pieces)]
    return breakers_of(words, model.vocab.tokenize)


def _samplers(context: Context, model: Model, grammars: Grammars, breakers: BreakersOf) -> SamplerFactory:
    keys = token_keys(model.vocab.texts)
    n_vocab = model.info.n_vocab

    def chain(stages: Sequence[Stage]) -> SamplerChain:
        return SamplerChain(n_vocab, stages, model.native_vocab)

    def sampler(request: Request, seed: int) -> Sampler:
        ends, matcher = ends_of(request, model.vocab), grammars.matcher_of(request)
        return Sampler(
            request.sampling,
            seed,
            ends.never,
            context.n_ctx,
            chain,
            keys,
            request.prompt,
            ends.late,
            request.min_tokens,
            matcher,
            breakers,
        )

    return sampler
