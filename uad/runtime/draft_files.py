"""Finds out what drafts, by the headers of the files: draft models, the target's head for multi-token prediction, or a
file that holds nothing but a head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from uad.base.config import HEAD_TYPE, MODEL_TYPE, Config, ModelConfig
from uad.base.errors import ConfigError
from uad.llama import nextn
from uad.llama.head_file import HeadFile, head_in, refuse_alone


@dataclass(frozen=True, slots=True)
class DraftFiles:
    """The drafters, by the headers of the files. types: of drafters; drafts: the draft models; is_in_target: whether
    the head in the target's file drafts; head: the head's own file; notes: lines to print.
    """

    types: tuple[str, ...]
    drafts: tuple[ModelConfig, ...]
    is_in_target: bool = False
    head: ModelConfig | None = None
    notes: tuple[str, ...] = ()


def draft_files(config: Config) -> DraftFiles:
    """Read the headers of the files before anything is loaded. Raises ConfigError where a head is asked for that is not
    there, or that cannot be run, and where several files hold heads.
    """
    drafts, types = config.drafts, config.drafting.types
    of_target, own = head_in(config.target.path), [head_in(draft.path) for draft in drafts]
    refuse_alone(of_target, f"target {config.target.path}")
    alone = [draft for draft, head in zip(drafts, own, strict=True) if head is not None and head.is_alone]
    models = tuple(draft for draft in drafts if draft not in alone)
    notes: tuple[str, ...] = ()
    if alone and HEAD_TYPE not in types:
        types = (*types, HEAD_TYPE) if models else tuple(HEAD_TYPE if name == MODEL_TYPE else name for name in types)
        notes = (f"{alone[0].path.name} holds a head alone: it drafts as {HEAD_TYPE}",)
    if HEAD_TYPE not in types or not config.drafting.defaults.enabled:
        return DraftFiles(types, drafts, notes=_hint(config, of_target))
    nextn.check()
    if drafts and MODEL_TYPE not in types:
        alone, models = [*drafts], ()
    if len(alone) > 1:
        names = " and ".join(draft.path.name for draft in alone)
        raise ConfigError(f"draft: {names} would all be heads of the target, which has one; leave the others out")
    if alone:
        head = _own_file(alone[0], own[drafts.index(alone[0])], types if not models else (HEAD_TYPE,))
        return DraftFiles(types, models, head=head, notes=notes)
    _checked(of_target, f"target {config.target.path}", "give its head as --model-draft FILE, or ")
    return DraftFiles(types, drafts, is_in_target=True)


def _hint(config: Config, head: HeadFile | None) -> tuple[str, ...]:
    """A line where the target's file has a head that --spec-type does not name."""
    if not config.drafting.defaults.enabled or head is None or head.obstacle:
        return ()
    return (f"the target's file has a head for multi-token prediction: --spec-type {HEAD_TYPE} drafts with it",)


def _own_file(draft: ModelConfig, head: HeadFile | None, types: tuple[str, ...]) -> ModelConfig:
    if MODEL_TYPE in types:
        raise ConfigError(
            f"draft {draft.path}: a head alone cannot draft as {MODEL_TYPE}; leave {MODEL_TYPE} out of --spec-type"
        )
    _checked(head, f"draft {draft.path}", f"leave it out if the target's file has one, add {MODEL_TYPE}, or ")
    return replace(draft, with_head=True)


def _checked(head: HeadFile | None, what: str, remedy: str) -> None:
    """Raises ConfigError unless a head that can be run was found."""
    if head is None:
        raise ConfigError(
            f"{what}: no head for multi-token prediction in it, which --spec-type {HEAD_TYPE} needs; {remedy}"
            "use suffix, which needs no model"
        )
    if head.obstacle:
        raise ConfigError(f"{what}: {head.obstacle}; leave {HEAD_TYPE} out of --spec-type")
