"""Flags of `uad bench`, checked once and frozen. Knows the words of the command line; measures nothing."""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from uad.bench.workloads import Prompt, Workload, bundled, category_names, load
from uad.common.files import path_of
from uad.config import MODEL_TYPE, SHARES, SPEC_TYPE, Config, DraftingConfig, LookupConfig, ModelConfig, TemplateConfig
from uad.config.argv import add_group
from uad.config.flags import CONTEXT, DRAFT, LOOKUP, MODEL
from uad.config.load import lookup_from, models_from
from uad.errors import ConfigError
from uad.types import N_MAX_AUTO, Origin, SpecPolicy, SpeculativeParams

_TEMPLATE_ROOM = 256
_ROOM_PER_TOKEN = 4
_OWN = (
    *("--model", "--model-draft", "--ctx-size", "--predict", "--batch-size", "--ubatch-size", "--parallel"),
    *("--ctx-size-draft", "--spec-share"),
)
"""Flags of `uad serve` that have another meaning here, or none."""
_MATRIX = ("fixed:2", "fixed:4", "fixed:8", "fixed:16", "auto")


@dataclass(frozen=True, slots=True)
class Policy:
    """A named way to choose draft lengths. `plain` does not draft at all: as a column it measures the bench's own noise."""

    name: str
    speculative: SpeculativeParams

    @property
    def is_auto(self) -> bool:
        """True if the engine chooses the lengths."""
        return self.speculative.enabled and self.speculative.policy is SpecPolicy.AUTO


PLAIN = Policy("plain", SpeculativeParams(enabled=False))
RECORDING = Policy("recording", SpeculativeParams(policy=SpecPolicy.FIXED, n_max=N_MAX_AUTO, p_min=0.0, types=(Origin.MODEL,)))
"""What the oracle is told: how many of the most ids that an automatic policy drafts would have been accepted in each round."""


def parse_policy(text: str) -> Policy:
    """`plain`, `auto`, `auto:N_MAX`, `fixed`, `fixed:N_MAX` or `fixed:N_MAX:P_MIN`. Raises ConfigError."""
    kind, *parts = text.split(":")
    most = {"plain": 0, "auto": 1, "fixed": 2}.get(kind, -1)
    if len(parts) > most:
        raise ConfigError(
            f"unknown policy {text!r}; write matrix, plain, auto, auto:N_MAX, fixed, fixed:N_MAX or fixed:N_MAX:P_MIN, "
            "for example fixed:16:0.5"
        )
    if kind == "plain":
        return PLAIN
    default = SpeculativeParams(policy=SpecPolicy(kind))
    n_max = whole_number(parts[0], f"draft length in policy {text!r}", 1) if parts else default.n_max
    p_min = number(parts[1], f"p_min in policy {text!r}", 0.0, 1.0) if len(parts) == 2 else default.p_min
    return Policy(text, replace(default, n_max=n_max, p_min=p_min))


def context_for(prompts: Iterable[Prompt], max_tokens: int) -> int:
    """Tokens of context that hold the longest prompt and its answer in any vocabulary, in steps of 256."""
    room = max(prompt.n_bytes for prompt in prompts) + _TEMPLATE_ROOM + _ROOM_PER_TOKEN * max_tokens
    return -(-room // 256) * 256


@dataclass(frozen=True, slots=True)
class Peer:
    """Another server to send the same prompts to; `model` None asks the server for its name."""

    url: str
    key: str | None
    model: str | None


@dataclass(frozen=True, slots=True)
class Drafters:
    """What drafts in a cell: drafters by --spec-type's names, and the draft model if it is among them."""

    types: tuple[str, ...]
    model: Path | None

    @property
    def label(self) -> str:
        """As in the table: the model's name where only it drafts, else the types, with the model in the place of its own."""
        return "+".join(self.model.stem if name == MODEL_TYPE and self.model else name for name in self.types)

    def policy(self, policy: Policy) -> Policy:
        """The same, with these drafters and no others."""
        return replace(policy, speculative=replace(policy.speculative, types=tuple(map(Origin, self.types))))


@dataclass(frozen=True, slots=True)
class Lineup:
    """What one engine has loaded: a draft model or none, and all that is compared in it, interleaved."""

    model: Path | None
    compared: tuple[Drafters, ...]

    @property
    def types(self) -> tuple[str, ...]:
        """The drafters of all that is compared, each once."""
        return tuple(dict.fromkeys(name for one in self.compared for name in one.types))


@dataclass(frozen=True, slots=True)
class Options:
    """A checked command line. `repeats` is the number of counted runs of each prompt under each policy; `target` and `draft` say how models
    are loaded and run, but for their paths and contexts."""

    targets: tuple[Path, ...]
    drafts: tuple[Path, ...]
    workloads: tuple[Workload, ...]
    policies: tuple[Policy, ...]
    temperatures: tuple[float, ...]
    sequences: tuple[int, ...]
    max_tokens: int
    repeats: int
    seed: int
    target: ModelConfig
    draft: ModelConfig
    n_ctx_given: int = 0
    replace: tuple[tuple[str, str], ...] = ()
    exact: bool = False
    oracle: bool = True
    peer: Peer | None = None
    overhead: bool = False
    verbose: bool = False
    json_only: bool = False
    report: Path | None = None
    spec_types: tuple[tuple[str, ...], ...] = ((MODEL_TYPE,),)
    lookup: LookupConfig = field(default_factory=lambda: LookupConfig(share="off"))
    costs: tuple[Path, ...] = ()

    @property
    def lineups(self) -> tuple[Lineup, ...]:
        """What is loaded beside each target: every draft model that a list of types needs. Lists without it run beside the first one."""
        models = (self.drafts if any(MODEL_TYPE in types for types in self.spec_types) else ()) or (None,)
        return tuple(Lineup(model, tuple(self._compared(model, i == 0))) for i, model in enumerate(models))

    def _compared(self, model: Path | None, is_first: bool) -> Iterator[Drafters]:
        for types in self.spec_types:
            if MODEL_TYPE not in types:
                if is_first:
                    yield Drafters(types, None)
            elif model is not None:
                yield Drafters(types, model)

    def has_oracle(self, drafters: Drafters) -> bool:
        """True if automatic lengths are to be compared with the best possible ones: the draft model's alone are known beforehand."""
        return self.oracle and drafters.types == (MODEL_TYPE,) and any(policy.is_auto for policy in self.policies)

    @property
    def n_ctx(self) -> int:
        """Tokens of context per sequence: what the user says, else what the prompts need."""
        return self.n_ctx_given or context_for((prompt for workload in self.workloads for prompt in workload.prompts), self.max_tokens)

    def config(self, target: Path, lineup: Lineup) -> Config:
        """The runtime's configuration for one engine: a slot for each sequence."""
        draft = lineup.model
        n_slots = max(self.sequences)
        n_ctx = self.n_ctx * n_slots
        return Config(
            target=replace(self.target, path=target, n_ctx=n_ctx),
            draft=None if draft is None else replace(self.draft, path=draft, n_ctx=n_ctx),
            n_parallel=n_slots,
            drafting=DraftingConfig(exact=self.exact, types=lineup.types, lookup=self.lookup),
            templates=TemplateConfig(replace=self.replace),
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `uad bench`."""
    add = parser.add_argument
    add("-m", "--target", "--model", action="append", metavar="GGUF", help="target model; repeat for several")
    add(
        "-md",
        "--draft",
        "--model-draft",
        action="append",
        metavar="GGUF",
        help="draft model; repeat for several, each is paired with each target",
    )
    add(
        "--workload",
        action="append",
        metavar="NAMES",
        help=f"comma list of {', '.join(bundled())}, all (these), {', '.join(category_names())}, categories (these), or a .toml file "
        "(default: chat)",
    )
    add(
        "--policy",
        action="append",
        metavar="NAMES",
        help=f"comma list of auto, auto:N_MAX, fixed, fixed:N_MAX, fixed:N_MAX:P_MIN, plain, matrix ({', '.join(_MATRIX)}) (default: auto)",
    )
    add("--prompts", default="7", metavar="N", help="prompts of each workload, the first ones (default: %(default)s)")
    add("--prompt", action="append", metavar="NAMES", help="comma list of prompts by name, instead of the first ones")
    add("-n", "--max-tokens", default="160", metavar="N", help="tokens per answer at most (default: %(default)s)")
    add("--temperature", "--temp", default="0", metavar="LIST", help="comma list of temperatures (default: %(default)s, greedy)")
    add("--sequences", default="1", metavar="LIST", help="comma list: prompts running at once (default: %(default)s)")
    add("-s", "--seed", default="1", metavar="N", help="seed of the sampled answers (default: %(default)s)")
    add(
        "--repeats",
        default="3",
        metavar="N",
        help="counted runs of each prompt under each policy; the median counts (default: %(default)s)",
    )
    add(
        "--no-oracle",
        action="store_true",
        help="leave out the run that the oracle is told by; with a bad draft it takes longer than all others",
    )
    add("--exact", action="store_true", help="bitwise the plain text, whatever the target's weights, as on `uad serve`")
    add(
        "--spec-replace",
        action="append",
        nargs=2,
        metavar=("TARGET", "DRAFT"),
        help="replace this target text by that draft text; repeatable",
    )
    add("--vs", "--peer", dest="peer", metavar="URL", help="send the same prompts to this OpenAI-compatible server too")
    add("--peer-key", metavar="KEY", help="API key for --vs")
    add("--peer-model", metavar="NAME", help="model name for --vs (default: the first that it lists)")
    add("--overhead", action="store_true", help="compare plain decoding over HTTP with a bare decode loop instead")
    add("--verbose", "-v", action="store_true", help="show every prompt")
    add("--json-only", action="store_true", help="print the JSON line only")
    add("--report", metavar="DIR", help="write report.md with plots into this folder")
    add(
        "--spec-type",
        action="append",
        metavar="TYPES",
        help="drafters as on `uad serve`, a comma list; repeat to compare several lists (default: draft-simple, the draft model)",
    )
    add(
        "--spec-share",
        default="off",
        metavar="|".join(SHARES),
        help="memory of drafters without a model: the request alone (off), or earlier runs, which hold the answer (default: %(default)s)",
    )
    add(
        "--costs",
        metavar="FILE[,FILE]",
        help="count time instead of measuring it: decodes take what the target's cost curve (and the draft model's) says, files that "
        "`uad profile` wrote, of this machine or another; a small target then stands for a large one",
    )
    add("-c", "--ctx-size", default="0", metavar="N", help="context per sequence in tokens (default: what the prompts need)")
    for group in (MODEL, CONTEXT, DRAFT, LOOKUP):
        add_group(parser, group, without=_OWN)


def parse(args: argparse.Namespace) -> Options:
    """Check a parsed command line. Raises ConfigError that names the flag."""
    target, draft = models_from(args, os.environ, without=_OWN)
    options = Options(
        targets=_files(args.target, "--target"),
        drafts=_files(args.draft, "--draft"),
        workloads=_workloads(args),
        policies=tuple(parse_policy(name) for name in _names(args.policy, "auto", "--policy", {"matrix": _MATRIX})),
        temperatures=tuple(number(part, "--temperature", 0.0, 100.0) for part in _names([args.temperature], "0", "--temperature")),
        sequences=tuple(whole_number(part, "--sequences", 1, 256) for part in _names([args.sequences], "1", "--sequences")),
        max_tokens=whole_number(args.max_tokens, "--max-tokens", 2),
        repeats=whole_number(args.repeats, "--repeats", 1),
        seed=whole_number(args.seed, "--seed", 0, 2**32 - 1),
        target=target,
        draft=draft,
        n_ctx_given=whole_number(args.ctx_size, "--ctx-size", 0),
        replace=tuple((a, b) for a, b in args.spec_replace or ()),
        exact=args.exact,
        oracle=not args.no_oracle,
        peer=_peer(args),
        overhead=args.overhead,
        verbose=args.verbose,
        json_only=args.json_only,
        report=_report_folder(args.report),
        spec_types=_lists_of_types(args.spec_type or (MODEL_TYPE,)),
        lookup=lookup_from(args, _share(args.spec_share)),
        costs=_costs(args.costs),
    )
    _check_together(options)
    return options


def workloads(given: list[str] | None) -> list[Workload]:
    """Those that --workload names. Raises ConfigError."""
    return [load(name) for name in _names(given, "chat", "--workload", {"all": bundled(), "categories": category_names()})]


def _workloads(args: argparse.Namespace) -> tuple[Workload, ...]:
    n_prompts = whole_number(args.prompts, "--prompts", 1)
    found = workloads(args.workload)
    if not args.prompt:
        return tuple(one.head(n_prompts) for one in found)
    names = _names(args.prompt, "", "--prompt")
    known = [prompt.name for one in found for prompt in one.prompts]
    for name in names:
        if name not in known:
            raise ConfigError(f"--prompt: no workload that is measured has a prompt {name!r}; there are {', '.join(known)}")
    return tuple(part for one in found if (part := one.named(names)).prompts)


def _report_folder(text: str | None) -> Path | None:
    """The folder, made if it is missing; found out before anything is measured, as is matplotlib."""
    if text is None:
        return None
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--report needs matplotlib: pip install 'uad[bench]'")
    folder = path_of(text)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--report {text}: cannot make this folder: {error.strerror or error}") from None
    return folder


def _peer(args: argparse.Namespace) -> Peer | None:
    if args.peer is None:
        if args.peer_key is not None or args.peer_model is not None:
            raise ConfigError("--peer-key and --peer-model need --vs URL")
        return None
    return Peer(server_url(args.peer, "--vs"), args.peer_key, args.peer_model)


def server_url(given: str, what: str) -> str:
    """The URL of a server, without /v1. Raises ConfigError."""
    url = given.rstrip("/").removesuffix("/v1")
    if not url.startswith(("http://", "https://")) or not _has_host(url):
        raise ConfigError(f"{what} must be an http:// or https:// URL, not {given!r}")
    return url


def _has_host(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _costs(text: str | None) -> tuple[Path, ...]:
    files = _files(text.split(","), "--costs") if text is not None else ()
    if len(files) > 2:
        raise ConfigError(f"--costs {text}: give the target's file, and behind a comma the draft model's")
    return files


def _lists_of_types(texts: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Each list once, in the one order that an engine has its drafters in: the model last, the others as they are first named."""
    lists = [_spec_types(text) for text in texts]
    order = [name for name in dict.fromkeys(name for types in lists for name in types) if name != MODEL_TYPE] + [MODEL_TYPE]
    return tuple(dict.fromkeys(tuple(sorted(types, key=order.index)) for types in lists))


def _spec_types(text: str) -> tuple[str, ...]:
    try:
        types = SPEC_TYPE.parse(text)
    except ValueError:
        raise ConfigError(f"--spec-type must be {SPEC_TYPE.expects}, not {text!r}") from None
    if not isinstance(types, tuple) or not types:
        raise ConfigError("--spec-type none drafts nothing: plain decoding is measured in any case")
    return types


def _share(text: str) -> str:
    if text not in SHARES:
        raise ConfigError(f"--spec-share must be one of {', '.join(SHARES)}, not {text!r}")
    return text


def _check_together(options: Options) -> None:
    if not options.targets:
        raise ConfigError("--target is missing: give the GGUF file of the model to be measured")
    if options.costs and (options.peer is not None or options.overhead):
        raise ConfigError("--costs counts the time of our own decodes: it cannot be combined with --vs or --overhead")
    needs_model = any(MODEL_TYPE in types for types in options.spec_types)
    if not options.overhead and not options.drafts and options.peer is None and needs_model:
        raise ConfigError(
            "--draft is missing: give the GGUF file of a draft model, or --vs URL to compare plain decoding with another server"
        )
    for workload in options.workloads:
        if len(workload.prompts) < max(options.sequences):
            n_prompts, n_sequences = len(workload.prompts), max(options.sequences)
            raise ConfigError(
                f"--sequences {n_sequences} needs as many prompts, workload {workload.name!r} gives {n_prompts}; raise --prompts"
            )


def _files(values: list[str] | None, flag: str) -> tuple[Path, ...]:
    paths = tuple(path_of(value) for value in values or ())
    for path in paths:
        if not path.is_file():
            raise ConfigError(f"{flag}: no such file: {path}")
    return paths


def _names(values: list[str] | None, default: str, flag: str, groups: Mapping[str, Sequence[str]] | None = None) -> list[str]:
    """The entries of comma lists; the name of a group stands for its members."""
    words = [part.strip() for value in values or [default] for part in value.split(",")]
    names = [name for word in words for name in (groups or {}).get(word, (word,))]
    if not all(names) or len(set(names)) != len(names):
        raise ConfigError(f"{flag}: every entry of {','.join(names)!r} must be there once and not empty")
    return names


def whole_number(text: str, what: str, low: int, high: int = 2**31 - 1) -> int:
    """Raises ConfigError."""
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(f"{what} must be a whole number, not {text!r}") from None
    if not low <= value <= high:
        raise ConfigError(f"{what} must be between {low} and {high}, not {value}")
    return value


def number(text: str, what: str, low: float, high: float) -> float:
    """Raises ConfigError."""
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(f"{what} must be a number, not {text!r}") from None
    if not (math.isfinite(value) and low <= value <= high):
        raise ConfigError(f"{what} must be between {low:g} and {high:g}, not {text}")
    return value
