"""Flags of drafting: how far, with what, and the settings of each drafter without a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from uad.config import kinds
from uad.config.drafter_types import BESIDE_A_MODEL, LOOKUP_TYPES, MODEL_TYPE, SHARES, SPEC_TYPES, DrafterType
from uad.config.flag import Flag
from uad.config.flags import (
    DRAFTING,
    ENV,
    LOOKUP,
    setting_flag,
)
from uad.config.kinds import SWITCH, choice, integer, number
from uad.types import N_MAX_AUTO, N_MAX_FIXED


def _lookup_flags(one: DrafterType) -> Iterator[Flag]:
    """The flags of a drafter without a model; a setting without names of its own is named after its field."""
    for name, own in one.settings.items():
        flags = own.flags or f"--spec-{one.origin}-{name.replace('_', '-')}"
        yield setting_flag(
            f"drafting.lookup.{one.section}.{name}", replace(own, flags=flags, help=f"{one.origin}: {own.help}"), LOOKUP
        )


_N_MAX = "--spec-draft-n-max --draft-max --draft-n"
_N_MIN = "--spec-draft-n-min --draft-min --draft-n-min"
DRAFTING_FLAGS: Final = (
    Flag(
        "--spec-policy",
        "drafting.defaults.policy",
        kinds.SPEC_POLICY,
        DRAFTING,
        "who decides how far to draft: auto (what pays on this machine, at most --spec-draft-n-max) or fixed (n-max, "
        "n-min, p-min)",
        "POLICY",
        ENV + "SPEC_POLICY",
    ),
    Flag(
        _N_MAX,
        "drafting.defaults.n_max",
        integer(0),
        DRAFTING,
        "most tokens per draft of the draft model; 0: nothing drafts",
        "N",
        f"{ENV}SPEC_DRAFT_N_MAX {ENV}DRAFT_MAX",
        default=f"{N_MAX_FIXED} where they are fixed, {N_MAX_AUTO} where the policy chooses",
    ),
    Flag(
        _N_MIN,
        "drafting.defaults.n_min",
        integer(0),
        DRAFTING,
        "shorter drafts are not tried",
        "N",
        f"{ENV}SPEC_DRAFT_N_MIN {ENV}DRAFT_MIN",
    ),
    Flag(
        "--spec-draft-p-min --draft-p-min",
        "drafting.defaults.p_min",
        number(0, 1),
        DRAFTING,
        "a draft ends before a token less likely than this",
        "P",
        f"{ENV}SPEC_DRAFT_P_MIN {ENV}DRAFT_P_MIN",
    ),
    Flag(
        "--spec-type",
        "drafting.types",
        kinds.SPEC_TYPE,
        DRAFTING,
        f"drafters, separated by commas: {', '.join(SPEC_TYPES)}; or none",
        "TYPES",
        ENV + "SPEC_TYPE",
        default=f"{MODEL_TYPE}, with {BESIDE_A_MODEL} beside it where the policy is automatic",
    ),
    Flag("--spec-default", "drafting.spec_default", SWITCH, DRAFTING, "ngram-mod as well, as in llama-server"),
    Flag(
        "--spec-share",
        "drafting.lookup.share",
        choice(*SHARES),
        LOOKUP,
        "whose earlier texts serve a request's drafts: its own only (off), those of its slot, or all of the server",
        "SCOPE",
        default="server; slot with several API keys",
    ),
    *(flag for one in LOOKUP_TYPES for flag in _lookup_flags(one)),
    Flag(
        "",
        "drafting.defaults.enabled",
        SWITCH,
        DRAFTING,
        "do not load the draft model; plain decoding",
        off="--no-draft",
        default="",
    ),
    Flag(
        "--exact",
        "drafting.exact",
        SWITCH,
        DRAFTING,
        "measure at start which batch sizes give the same bits, and pad smaller ones (for BF16, F16 and K-quants, "
        "and with -fa off)",
    ),
    Flag(
        "--spec-draft-window",
        "drafting.window",
        integer(0),
        DRAFTING,
        "most tokens that the draft model reads to catch up with a text; of more it reads the last ones (0: all)",
        "N",
    ),
    Flag(
        "--spec-grammar",
        "drafting.grammar",
        kinds.ON_OFF,
        DRAFTING,
        "draft what a request's grammar or schema forces; needs no draft model and no --spec-type",
        "MODE",
        bare="on",
    ),
    Flag(
        "--heal",
        "drafting.heal",
        SWITCH,
        DRAFTING,
        "re-choose draft bytes where words are cut at the edge",
        off="--no-heal",
    ),
    Flag(
        "--salvage",
        "drafting.salvage",
        SWITCH,
        DRAFTING,
        "reuse what is left of a draft after other cut points",
        off="--no-salvage",
    ),
)
