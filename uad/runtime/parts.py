"""Builds the parts of a runtime from its configuration, and takes them down again in order."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from uad.base.common.available import Limit, available
from uad.base.common.files import size_text
from uad.base.config import Config, DraftingConfig, LookupConfig
from uad.base.config.drafter_types import LOOKUP_TYPES
from uad.base.errors import ConfigError, InvalidRequestError, NotSupportedError
from uad.base.events import ModelInfo, RuntimeInfo
from uad.base.types import BY_REQUEST, WRITERS, Clock, Origin, Request
from uad.drafts.lookup.build import build_one
from uad.drafts.lookup.lookup_drafter import GrammarDrafter, LookupDrafter
from uad.drafts.lookup.store import fingerprint
from uad.drafts.model.model_drafter import ModelDrafter
from uad.engine.decode.drafting import Drafting
from uad.engine.decode.engine import Engine
from uad.engine.decode.guard import reason, warn
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
from uad.llama.memory import SavedSequence, SequenceCopies
from uad.llama.model import Model
from uad.llama.samplers import SamplerChain
from uad.runtime.adapters import AdapterTurns
from uad.runtime.costs.fit import Fitted, fitted
from uad.runtime.draft_model import OpenedDraft, open_draft
from uad.runtime.heads import PlannedHead, open_head, plan_head
from uad.runtime.open import WIRING, Wiring, connected, device_notes
from uad.runtime.pacing import Policies, Remeasurement, open_policy
from uad.runtime.sight import open_sight
from uad.runtime.slots.copies import SlotCopies, kept_model, kept_target
from uad.runtime.slots.disk import DiskTexts
from uad.runtime.slots.disk_files import DiskFiles, make_folder
from uad.runtime.slots.file import SavedSlot
from uad.runtime.slots.keeper import SlotKeeper
from uad.runtime.target import LoadedTarget, Progress, open_target
from uad.text.grammar.grammars import Grammars
from uad.text.grammar.protocol import Matcher
from uad.text.grammar.vocabulary import GrammarVocabulary
from uad.text.mapping.recognise import bos_name, eos_name
from uad.text.prompts import TextService
from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable

_log = logging.getLogger("uad")
_BY_REQUEST = [kind.origin for kind in LOOKUP_TYPES if kind.by_request]
_SNAPSHOT_IDS = 8  # ids of most drafts that pay; each takes as much memory as the state


@dataclass(frozen=True)
class Parts:
    """What a runtime is made of. Closing `stack` frees everything native. samplers: for any engine on this target.
    drafter: the draft model's. again: measures costs again while nothing runs. wiring: how they were joined.
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
    drafter: ModelDrafter | None
    policies: Policies | None
    again: Remeasurement | None
    wiring: Wiring
    keeper: SlotKeeper | None
    contexts: tuple[Context, ...]
    stack: ExitStack
    disk: DiskTexts | None = None


def build(config: Config, progress: Progress, wiring: Wiring = WIRING) -> Parts:
    """Loads the models and wires the parts.

    Raises ModelLoadError, MappingError or ConfigError; nothing stays loaded then.
    """
    if config.cache_disk is not None:
        make_folder(config.cache_disk)
    native.start().verbose = config.verbose
    native.use_numa(config.numa)
    planned, fit = _planned(config)
    config = fit.config
    placed = device_notes(config)
    with ExitStack() as stack:
        target = open_target(config, stack, progress)
        model, context = target.model, target.context
        _check_bias(config, model.info.n_vocab)
        encoder = Encoder(model.vocab)
        grammars, matchers, breakers = _grammars(config, model, encoder), dict[int, Matcher](), _breakers(model)
        template, name = model.info.chat_template, model.info.desc
        text = TextService(model.vocab, encoder, config.templates, template, name, context.n_ctx, grammars, breakers)
        text.sight, sight_notes = open_sight(config, stack, target, encoder.encode)
        head = open_head(planned, config, stack, target, progress, wiring)
        draft = open_draft(config, stack, target, encoder, progress, wiring)
        if config.draft_from:
            config = replace(config, draft=draft.config)
        free = _open_lookup(config, stack, target, encoder)
        every: list[Drafter] = [*free, *(drafter for drafter in (head.drafter, draft.drafter) if drafter is not None)]
        forced = _forced(config, target, matchers)
        policies, policy_notes, again = None, tuple[str, ...](), None
        if every:
            is_seldom = all(drafter.origin in BY_REQUEST for drafter in every)
            policies, policy_notes, again = open_policy(config, target, draft.steps, head.steps, wiring, is_seldom)
        drafts = (*forced, *every)
        drafting = wiring.drafting(drafts, policies or AutoPolicy, model, matchers) if drafts else None
        samplers = wiring.samplers(_samplers(context, model, grammars, breakers), model)
        copies = _open_copies(config, target, draft, lambda: turns.active)
        disk = _open_disk(config, stack, target, copies, wiring.clock)
        cache = open_prompt_cache(config, context, wiring.clock, copies, disk, drafting)
        engine = engine_on(target, drafting, samplers, wiring, matchers, cache)
        notes = (
            *placed,
            *target.notes,
            *sight_notes,
            *fit.notes,
            *text.notes,
            text.answers_note(),
            *grammars.notes,
            *head.notes,
            *draft.notes,
            *lookup_notes(free, config.drafting.lookup),
            *policy_notes,
            *_disk_notes(disk, config),
        )
        turns = turns_on(engine, target)
        contexts = tuple(opened for opened in (context, head.context, draft.context) if opened is not None)
        return Parts(
            config,
            engine,
            turns,
            text,
            target,
            samplers,
            _info(target, every, draft.info, notes),
            draft.drafter,
            policies,
            again,
            wiring,
            SlotKeeper(engine, copies, turns) if copies is not None and config.server.slot_save_path else None,
            contexts,
            stack.pop_all(),
            disk,
        )


def _planned(config: Config) -> tuple[PlannedHead, Fitted]:
    """Where a head comes from, and contexts that fit. A draft that was chosen and cannot be planned for costs a line,
    and is left out. Raises what `build` does.
    """

    def plan(config: Config) -> tuple[PlannedHead, Fitted]:
        planned = plan_head(connected(config))
        return planned, fitted(_for_slots(planned.config), head=planned.file)

    if config.draft is None or not config.draft_from:
        return plan(config)
    for path in config.draft_from:
        try:
            return plan(replace(config, draft=replace(config.draft, path=path)))
        except Exception as error:
            without = plan(replace(config, draft=None, draft_from=()))  # raises where the draft is not at fault
            warn(_log, error, "the draft %s was chosen, and is left out (%s)", path.name, reason(error))
    return without


def _info(
    target: LoadedTarget, every: Sequence[Drafter], draft: ModelInfo | None, notes: tuple[str, ...]
) -> RuntimeInfo:
    """What a runtime in which all of these draft says of itself."""
    context, vocab = target.context, target.model.vocab
    return RuntimeInfo(
        target=target.model.info,
        draft=draft,
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


def _for_slots(config: Config) -> Config:
    """Models that are loaded for so many slots; with --exact for any number, since the text must not depend on it.
    Where something drafts, a recurrent state of the target keeps its last values, which cost memory for each.
    """
    defaults, drafts = config.drafting.defaults, config.draft is not None or set(config.drafting.types) - {Origin.MODEL}
    n = min(_SNAPSHOT_IDS, defaults.longest) if defaults.enabled and drafts else 0
    draft = None if config.draft is None else replace(config.draft, n_seq=config.n_parallel)
    n_seq = 0 if config.drafting.exact else config.n_parallel
    return replace(config, target=replace(config.target, n_snapshots=n, n_seq=n_seq), draft=draft)


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
    wiring: Wiring,
    matchers: dict[int, Matcher] | None = None,
    cache: PromptCache[SavedSequence] | PromptCache[SavedSlot] | None = None,
) -> Engine:
    """The loop on this target."""
    decoder, seeds = wiring.target(target.context), lambda: secrets.randbits(32)
    return Engine(
        decoder, drafting, samplers, seeds, least=target.least, clock=wiring.clock, matchers=matchers, cache=cache
    )


def _open_copies(
    config: Config, target: LoadedTarget, draft: OpenedDraft, scales: Callable[[], tuple[float, ...]]
) -> SlotCopies | None:
    """Copies of slots for files; None where there are to be none."""
    if config.server.slot_save_path is None and config.cache_disk is None:
        return None
    kept = None
    if draft.drafter is not None and draft.context is not None and config.draft is not None:
        kept = draft.drafter, kept_model(config.draft, draft.context)
    return SlotCopies(kept_target(target.config, target.context, config.drafting.exact), kept, scales)


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


def _open_lookup(config: Config, stack: ExitStack, target: LoadedTarget, encoder: Encoder) -> tuple[LookupDrafter, ...]:
    """The drafters that need no model. Closing them writes their files."""
    if not target.context.can_take_back or not config.drafting.defaults.enabled:
        return ()
    free = build_lookups(config.drafting, target.model.vocab, config.n_parallel, encoder.sharing())
    for drafter in free:
        stack.callback(close_lookup, drafter)
    return free


def close_lookup(drafter: LookupDrafter) -> None:
    """Write what it keeps in files. A failure is logged, and keeps nothing else from being closed."""
    try:
        drafter.close()
    except Exception as error:
        text = "%s could not write what it has learned (%s); its file is as it was"
        warn(_log, error, text, drafter.origin, reason(error))


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


# --- drafters without a model


def build_lookups(
    config: DraftingConfig, vocab: VocabTable, n_slots: int, encoder: Encoder | None = None
) -> tuple[LookupDrafter, ...]:
    """The drafters of `config.types` in that order, without those that have a model or a head; with an encoder of the
    target, after those that draft from what requests bring. Files that cannot be used are logged and left alone.

    Close each of them when no sequence runs any more: that writes their files.
    """
    vocabulary = fingerprint(vocab) if config.lookup.files() else ""
    named = [Origin(name) for name in config.types if name not in WRITERS and name not in _BY_REQUEST]
    origins = [*(_BY_REQUEST if encoder is not None else ()), *named]
    built = [_built_lookup(origin, config.lookup, vocabulary, n_slots, encoder) for origin in origins]
    return tuple(drafter for drafter in built if drafter is not None)


def _built_lookup(
    origin: Origin, config: LookupConfig, vocabulary: str, n_slots: int, encoder: Encoder | None
) -> LookupDrafter | None:
    """The drafter; None, and a line in the log, where it fails at start: no answer needs it."""
    try:
        return build_one(origin, config, vocabulary, n_slots, encoder)
    except Exception as error:
        warn(_log, error, "%s failed at start (%s); the server goes on without it", origin, reason(error))
        return None


def lookup_notes(drafters: Sequence[LookupDrafter], config: LookupConfig) -> tuple[str, ...]:
    """The line that is printed at start."""
    names = ", ".join(drafter.origin for drafter in drafters if drafter.origin not in _BY_REQUEST)
    if not names:
        return ()
    shared = {
        "off": "each request by itself",
        "slot": "with earlier texts of its slot",
        "server": "with earlier texts of all requests",
    }
    return (f"drafting from text: {names} ({shared[config.share]})",)


# --- the prompt cache


def open_prompt_cache(
    config: Config,
    context: Context,
    clock: Clock,
    copies: SlotCopies | None,
    disk: DiskTexts | None,
    drafting: Drafting | None,
) -> PromptCache[SavedSequence] | PromptCache[SavedSlot] | None:
    """A cache with nothing in memory; None where --cache-ram is 0 and there is no level on a disk."""
    if not config.cache_ram and disk is None:
        return None
    most = None if config.cache_ram < 0 else config.cache_ram << 20
    models = [config.target, *([config.draft] if config.draft is not None else [])]
    mapped = sum(model.path.stat().st_size for model in models if model.mmap)

    def free() -> int | None:
        return room(mapped, available())

    ahead = config.cache_idle_slots
    if disk is None or copies is None:
        return PromptCache(SequenceCopies(context.memory), most, clock, free, ahead)

    def restored(seq: int, ids: Sequence[int], saved: SavedSlot) -> None:
        n_read = copies.restore_draft(seq, ids, saved.draft)
        if drafting is not None:
            drafting.restored(seq, {} if n_read is None else {Origin.MODEL: n_read})

    return PromptCache(copies, most, clock, free, ahead, lower=disk, restored=restored)


def _open_disk(
    config: Config, stack: ExitStack, target: LoadedTarget, copies: SlotCopies | None, clock: Clock
) -> DiskTexts | None:
    """The cache's level on a disk. Closing it waits until all is written."""
    if config.cache_disk is None or copies is None:
        return None
    most = None if config.cache_disk_size < 0 else config.cache_disk_size << 20
    files = DiskFiles(config.cache_disk, most, copies.target.facts)
    disk = DiskTexts(files, copies, target.context.n_ctx - (target.least.rows - 1), clock)
    stack.callback(disk.close)
    return disk


def _disk_notes(disk: DiskTexts | None, config: Config) -> tuple[str, ...]:
    if disk is None:
        return ()
    counts, size = disk.counts(), config.cache_disk_size
    most = "" if size < 0 else f" of {size_text(size << 20)}"
    return (
        f"prompt cache on disk: {config.cache_disk}, {counts.n_disk_texts} texts of this model; its files take "
        f"{size_text(counts.n_disk_bytes)}{most}",
    )


def room(mapped: int, limits: Iterable[Limit]) -> int | None:
    """Bytes that this process may still take, None where that is not known. Mapped weights are to stay in memory: the
    system counts them as free, since it could drop them and read them again.
    """
    # 8 GiB free by the system, which would drop 3 GiB of mapped weights for them: 5 GiB. A container whose limit counts
    # these weights as used, with 4 GiB left: 4 GiB. The smaller one holds.
    return min((limit.n_bytes - (0 if limit.counts_mapped else mapped) for limit in limits), default=None)
