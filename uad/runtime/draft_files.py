"""Finds out what drafts, by the headers of the files: draft models, the target's head for multi-token prediction, or a
file that holds nothing but a head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from uad.base.config import HEAD_TYPE, HEAD_TYPES, MODEL_TYPE, Config, ModelConfig
from uad.base.errors import ConfigError
from uad.base.types import Origin
from uad.llama import nextn
from uad.llama.head_file import KINDS, HeadFile, head_in, mismatch, refuse_alone


@dataclass(frozen=True, slots=True)
class DraftFiles:
    """The drafters, by the headers of the files. types: of drafters; drafts: the draft models; head: the head that
    drafts, where one does; head_file: where it has a file of its own; notes: lines to print.
    """

    types: tuple[str, ...]
    drafts: tuple[ModelConfig, ...]
    head: HeadFile | None = None
    head_file: ModelConfig | None = None
    notes: tuple[str, ...] = ()


def draft_files(config: Config) -> DraftFiles:
    """Read the headers of the files before anything is loaded. Raises ConfigError where a head is asked for that is not
    there, that cannot be run, or that is of another target, and where several files hold heads.
    """
    drafts, types = config.drafts, config.drafting.types
    of_target, own = head_in(config.target.path), {draft.path: head_in(draft.path) for draft in drafts}
    refuse_alone(of_target, f"target {config.target.path}")
    alone = [draft for draft in drafts if (head := own[draft.path]) is not None and head.is_alone]
    models = tuple(draft for draft in drafts if draft not in alone)
    notes: tuple[str, ...] = ()
    if alone and set(types).isdisjoint(HEAD_TYPES):
        origin = next(str(head.origin) for head in own.values() if head is not None and head.is_alone)
        types = (*types, origin) if models else tuple(origin if name == MODEL_TYPE else name for name in types)
        notes = (f"{alone[0].path.name} holds a head alone: it drafts as {origin}",)
    asked = [name for name in types if name in HEAD_TYPES]
    if not asked or not config.drafting.defaults.enabled:
        return DraftFiles(types, drafts, notes=_hint(config, of_target))
    if len(asked) > 1:
        raise ConfigError(f"--spec-type: {' and '.join(asked)} are heads, of which one drafts at a time; leave one out")
    kind = Origin(asked[0])
    nextn.check(kind, is_trained=kind is not Origin.HEAD)
    if drafts and MODEL_TYPE not in types:
        alone, models = [*drafts], ()
    if len(alone) > 1:
        names = " and ".join(draft.path.name for draft in alone)
        raise ConfigError(f"draft: {names} would all be heads of the target, which has one; leave the others out")
    if alone:
        (file,) = alone
        return DraftFiles(types, models, _of_file(file, kind, config, not models), replace(file, with_head=True), notes)
    if kind is not Origin.HEAD:
        raise ConfigError(
            f"--spec-type {kind} needs {KINDS[kind]} made for the target; give it as --model-draft HEAD.gguf"
        )
    head = _checked(of_target, kind, f"target {config.target.path}", "give its head as --model-draft FILE, or ")
    return DraftFiles(types, drafts, head)


def _of_file(file: ModelConfig, kind: Origin, config: Config, is_only: bool) -> HeadFile:
    """The head in a file of its own; is_only: no draft model is beside it. Raises ConfigError where it cannot draft."""
    if MODEL_TYPE in config.drafting.types and is_only and kind in config.drafting.types:
        raise ConfigError(
            f"draft {file.path}: a head alone cannot draft as {MODEL_TYPE}; leave {MODEL_TYPE} out of --spec-type"
        )
    remedy = f"leave it out if the target's file has one, add {MODEL_TYPE}, or " if kind is Origin.HEAD else ""
    head = _checked(head_in(file.path), kind, f"draft {file.path}", remedy)
    if head.is_trained and (why := mismatch(head, config.target.path)):
        raise ConfigError(f"draft {file.path}: {KINDS[kind]} of another target: {why}; give one made for this target")
    return head


def _hint(config: Config, head: HeadFile | None) -> tuple[str, ...]:
    """A line where the target's file has a head that --spec-type does not name."""
    if not config.drafting.defaults.enabled or head is None or head.obstacle:
        return ()
    return (f"the target's file has a head for multi-token prediction: --spec-type {HEAD_TYPE} drafts with it",)


def _checked(head: HeadFile | None, kind: Origin, what: str, remedy: str) -> HeadFile:
    """The head, which must be of this kind. Raises ConfigError unless one that can be run was found."""
    if head is not None and head.origin is not kind and head.is_alone:
        remedy = f"it holds {KINDS[head.origin]}, which --spec-type {head.origin} drafts with; or "
    if head is None or head.origin is not kind:
        raise ConfigError(
            f"{what}: no {KINDS[kind].removeprefix('a ')} in it, which --spec-type {kind} needs; {remedy}"
            "use suffix, which needs no model"
        )
    if head.obstacle:
        raise ConfigError(f"{what}: {head.obstacle}; leave {kind} out of --spec-type")
    return head
