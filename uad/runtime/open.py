"""Opens what a plan says: loads the models, joins the parts of a runtime, and takes them down again in order."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from uad.base.config import Config
from uad.base.console import Report
from uad.base.errors import ConfigError, InvalidRequestError, NotSupportedError
from uad.base.events import ModelInfo, RuntimeInfo
from uad.base.types import BY_REQUEST, ConstraintKind, Request
from uad.drafts.lookup.lookup_drafter import GrammarDrafter, LookupDrafter
from uad.engine.decode.drafting import Drafting
from uad.engine.decode.engine import Engine
from uad.engine.decode.prompt_cache import PromptCache
from uad.engine.decode.scheduler import SamplerFactory
from uad.engine.decode.sequence import ends_of, name_of
from uad.engine.drafter import Drafter
from uad.engine.policy.auto import AutoPolicy
from uad.engine.sampling.dry import BreakersOf, breakers_of
from uad.engine.sampling.noise import token_keys
from uad.engine.sampling.sampler import Sampler
from uad.engine.sampling.stages import Stage
from uad.llama.backend import native
from uad.llama.context import Context
from uad.llama.memory import SavedSequence
from uad.llama.model import Model
from uad.llama.samplers import SamplerChain
from uad.runtime.adapters import AdapterTurns
from uad.runtime.caches import disk_notes, open_copies, open_disk, open_prompt_cache
from uad.runtime.draft_model import OpenedDrafts, open_drafts
from uad.runtime.heads import open_head
from uad.runtime.lookups import build_lookups, close_lookup, lookup_notes
from uad.runtime.pacing import Policies, Remeasurement, open_policy
from uad.runtime.plan import Plan, plan
from uad.runtime.sight import open_sight
from uad.runtime.slots.disk import DiskTexts
from uad.runtime.slots.disk_files import make_folder
from uad.runtime.slots.file import SavedSlot
from uad.runtime.slots.keeper import SlotKeeper
from uad.runtime.target import LoadedTarget, open_target
from uad.runtime.timing import TIMING, Timing
from uad.text.grammar.grammars import Grammars
from uad.text.grammar.protocol import Matcher
from uad.text.grammar.schema_words import unread_words
from uad.text.grammar.vocabulary import GrammarVocabulary
from uad.text.mapping.recognise import bos_name, eos_name
from uad.text.prompts import TextService
from uad.text.vocab.encode import Encoder


@dataclass(frozen=True)
class Parts:
    """The parts of a runtime. Closing `stack` frees everything native. samplers: for any engine on this target.
    drafts: the draft models' parts. again: measures costs again while nothing runs. timing: how they were joined.
    keeper: copies slots, with --slot-save-path. contexts: all that are open, in the order in which they were made.
    disk: the prompt cache's level on a disk, with --cache-disk.
    """

    config: Config
    engine: Engine
    turns: AdapterTurns
    text: TextService
    target: LoadedTarget
    samplers: SamplerFactory
    info: RuntimeInfo
    drafts: OpenedDrafts
    policies: Policies | None
    again: Remeasurement | None
    timing: Timing
    keeper: SlotKeeper | None
    contexts: tuple[Context, ...]
    stack: ExitStack
    disk: DiskTexts | None = None


def build(
    config: Config, progress: Report, timing: Timing = TIMING, planned: Callable[[Plan], None] = lambda plan: None
) -> Parts:
    """Plan, tell `planned`, and open what was planned. Raises what both do."""
    wanted = plan(config)
    planned(wanted)
    return open_parts(wanted, progress, timing)


def open_parts(plan: Plan, progress: Report, timing: Timing = TIMING) -> Parts:
    """Loads the models as planned and wires the parts.

    Raises ModelLoadError, MappingError or ConfigError; nothing stays loaded then.
    """
    config = plan.config
    if config.cache_disk is not None:
        make_folder(config.cache_disk)
    with ExitStack() as stack:
        target = open_target(plan, stack, progress)
        model, context = target.model, target.context
        _check_bias(config, model.info.n_vocab)
        encoder = Encoder(model.vocab)
        grammars, matchers, breakers = _grammars(config, model, encoder), dict[int, Matcher](), _breakers(model)
        template, name = model.info.chat_template, model.info.desc
        text = TextService(model.vocab, encoder, config.templates, template, name, context.n_ctx, grammars, breakers)
        text.sight, sight_notes = open_sight(config, stack, target, encoder.encode)
        head = open_head(plan, stack, target, progress, timing)
        models = open_drafts(config, stack, target, encoder, progress, timing)
        free = _open_lookup(config, stack, target, encoder)
        heads = [] if head.drafter is None else [head.drafter]
        every: list[Drafter] = [*free, *heads, *models.drafters]
        forced = _forced(config, target, matchers)
        policies, policy_notes, again = None, tuple[str, ...](), None
        if every:
            is_seldom = all(drafter.origin in BY_REQUEST for drafter in every)
            steps = dict(models.steps)
            if head.drafter is not None and head.steps is not None:
                steps[head.drafter.origin] = head.steps
            policies, policy_notes, again = open_policy(config, target, steps, timing, is_seldom)
        drafts = (*forced, *every)
        drafting = None
        if drafts:
            makes_policy, n_vocab, ends = policies or AutoPolicy, model.info.n_vocab, model.vocab.eog
            drafting = Drafting(drafts, makes_policy, n_vocab, ends, timing.clock, matchers)
        samplers = _samplers(context, model, grammars, breakers)
        copies = open_copies(config, target, models, lambda: turns.active)
        disk = open_disk(config, stack, target, copies, timing.clock)
        cache = open_prompt_cache(config, target, models, timing.clock, copies, disk, drafting)
        engine = engine_on(target, drafting, samplers, timing, matchers, cache)
        notes = (
            *plan.notes,
            *target.notes,
            *sight_notes,
            *text.notes,
            text.answers_note(),
            *grammars.notes,
            *head.notes,
            *models.notes,
            *lookup_notes(free, config.drafting.lookup),
            *policy_notes,
            *disk_notes(disk, config),
        )
        turns = turns_on(engine, target)
        of_head = () if head.context is None else (head.context,)
        contexts = (context, *of_head, *models.contexts)
        return Parts(
            config,
            engine,
            turns,
            text,
            target,
            samplers,
            _info(target, every, models.infos, notes),
            models,
            policies,
            again,
            timing,
            SlotKeeper(engine, copies, turns) if copies is not None and config.server.slot_save_path else None,
            contexts,
            stack.pop_all(),
            disk,
        )


def _info(
    target: LoadedTarget, every: Sequence[Drafter], drafts: Sequence[ModelInfo], notes: tuple[str, ...]
) -> RuntimeInfo:
    """The description of a runtime in which all of these draft."""
    context, vocab = target.context, target.model.vocab
    return RuntimeInfo(
        target=target.model.info,
        draft=next(iter(drafts), None),
        more_drafts=tuple(drafts[1:]),
        n_ctx=context.n_ctx,
        n_slots=context.n_seq,
        build=native.build_info(),
        notes=notes,
        drafters=tuple(drafter.origin for drafter in every),
        eog={id_: name_of(id_, vocab) for id_ in sorted(vocab.eog)},
        fim=vocab.fim,
        bos_token=bos_name(vocab),
        eos_token=eos_name(vocab),
    )


def _check_bias(config: Config, n_vocab: int) -> None:
    for id_, _ in config.sampling.logit_bias:
        if not 0 <= id_ < n_vocab:
            raise ConfigError(f"--logit-bias {id_}: the target has no such token id (0 to {n_vocab - 1})")


def turns_on(engine: Engine, target: LoadedTarget) -> AdapterTurns:
    """Requests to this engine, by the adapters that they want."""
    return AdapterTurns(engine, target.context.add_adapters, target.model.adapters.scales)


def engine_on(
    target: LoadedTarget,
    drafting: Drafting | None,
    samplers: SamplerFactory,
    timing: Timing,
    matchers: dict[int, Matcher] | None = None,
    cache: PromptCache[SavedSequence] | PromptCache[SavedSlot] | None = None,
) -> Engine:
    """The loop on this target."""
    return Engine(
        target.context,
        drafting,
        samplers,
        lambda: secrets.randbits(32),
        least=target.least,
        clock=timing.clock,
        matchers=matchers,
        cache=cache,
    )


def _grammars(config: Config, model: Model, encoder: Encoder) -> Grammars:
    grammars = Grammars(GrammarVocabulary(model.vocab, encoder.encode))
    if config.constraint is not None:
        try:
            grammars.check(config.constraint)
            is_schema = config.constraint.kind is ConstraintKind.JSON_SCHEMA
            given = json.loads(config.constraint.text) if is_schema else None
            words = unread_words(given) if isinstance(given, dict) else []
            grammars.notes += tuple(f"--json-schema: the word {word!r} has no effect" for word in words)
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


def _open_lookup(config: Config, stack: ExitStack, target: LoadedTarget, encoder: Encoder) -> tuple[LookupDrafter, ...]:
    """The drafters that need no model. Closing them writes their files."""
    if not target.context.can_take_back or not config.drafting.defaults.enabled:
        return ()
    free = build_lookups(config.drafting, target.model.vocab, config.n_parallel, encoder.sharing())
    for drafter in free:
        stack.callback(close_lookup, drafter)
    return free


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
            request.text_ids,
            ends.late,
            request.min_tokens,
            matcher,
            breakers,
        )

    return sampler
