"""Flags of `bench_servers.py` and `bench.py`, checked once and frozen. Measures nothing."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from uad.base.common.files import is_file, no_such_file
from uad.base.config import MODEL_TYPE, SHARES, SPEC_TYPE, Config, HubConfig, HubModel, load_config
from uad.base.config.argv import Parser, add_group, typed
from uad.base.config.flags import CONTEXT, DRAFT, FLAGS, GROUPS, LOOKUP, MODEL, VARIABLE
from uad.base.config.kinds import FILE, RANDOM_SEED, choice, integer, number, several
from uad.base.config.sources import HUB_MODEL
from uad.base.console import progress
from uad.base.errors import ConfigError
from uad.base.types import Origin, SpecPolicy, SpeculativeParams
from uad.tools.bench.client import PLAIN_FIELDS, server_url
from uad.tools.bench.workloads import Workload, WorkloadPrompt, bundled, category_names, load_all
from uad.tools.hub import path_on

_DESCRIPTION = """Measure plain against drafted decoding on servers that it starts. The last line of output is JSON."""
_EPILOG = """example: python lab/bench_servers.py --target TARGET.gguf --draft DRAFT.gguf --workload chat,code"""
_TEMPLATE_ROOM = 256
_ROOM_PER_TOKEN = 4
OWN = (
    *("--model", "--model-draft", "--ctx-size", "--predict", "--batch-size", "--ubatch-size", "--parallel"),
    *(
        "--ctx-size-draft",
        "--spec-share",
        "--cache-ram",
        "--cache-disk",
        "--cache-disk-size",
        "--hf-repo",
        "--hf-file",
        "--hf-repo-draft",
    ),
)
"""Flags of `uad serve` that have another meaning here, or none."""
_SERVED = (MODEL, CONTEXT, DRAFT, LOOKUP)
"""Groups of flags that say how a server loads and runs models. They are handed on to it as they were written."""
_MATRIX = ("fixed:2", "fixed:4", "fixed:8", "fixed:16", "auto")


@dataclass(frozen=True, slots=True)
class PolicyOption:
    """A named way to choose draft lengths. `plain` does not draft at all: as a column it measures the bench's own
    noise.
    """

    name: str
    speculative: SpeculativeParams

    @property
    def fields(self) -> Mapping[str, object]:
        """What a request says to be answered so."""
        params = self.speculative
        if not params.enabled:
            return PLAIN_FIELDS
        values = {"policy": params.policy, "n_max": params.n_max, "p_min": params.p_min, "types": list(params.types)}
        return {"speculative": {name: value for name, value in values.items() if value is not None}}


PLAIN = PolicyOption("plain", SpeculativeParams(enabled=False))


def parse_policy(text: str) -> PolicyOption:
    """`plain`, `auto`, `auto:N_MAX`, `fixed`, `fixed:N_MAX` or `fixed:N_MAX:P_MIN`. Raises ConfigError."""
    kind, *parts = text.split(":")
    if len(parts) > {"plain": 0, "auto": 1, "fixed": 2}.get(kind, -1):
        raise ConfigError(
            f"unknown policy {text!r}; write matrix, plain, auto, auto:N_MAX, fixed, fixed:N_MAX or fixed:N_MAX:P_MIN, "
            "for example fixed:16:0.5"
        )
    if kind == "plain":
        return PLAIN
    values: dict[str, Any] = {}
    for name, of, part in zip(("n_max", "p_min"), (integer(1), number(0.0, 1.0)), parts, strict=False):
        try:
            values[name] = of.parse(part)
        except ValueError:
            raise ConfigError(f"policy {text!r}: {name} must be {of.expects}, not {part!r}") from None
    return PolicyOption(text, SpeculativeParams(policy=SpecPolicy(kind), **values))


def context_for(prompts: Iterable[WorkloadPrompt], max_tokens: int) -> int:
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
        """The drafters as the table names them: the model's name where only it drafts, else the types, with the model
        in the place of its own.
        """
        return "+".join(self.model.stem if name == MODEL_TYPE and self.model else name for name in self.types)

    def policy(self, policy: PolicyOption) -> PolicyOption:
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
        return tuple(dict.fromkeys(name for drafters in self.compared for name in drafters.types))


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """A checked command line. `repeats` is the number of counted runs of each prompt under each policy; `serve` are the
    words of the command line that are meant for `uad serve`, and `environ` its environment.
    """

    targets: tuple[Path, ...]
    drafts: tuple[Path, ...]
    workloads: tuple[Workload, ...]
    policies: tuple[PolicyOption, ...]
    temperatures: tuple[float, ...]
    sequences: tuple[int, ...]
    max_tokens: int
    repeats: int
    seed: int
    serve: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    n_ctx_given: int = 0
    peer: Peer | None = None
    verbose: bool = False
    json_only: bool = False
    spec_types: tuple[tuple[str, ...], ...] = ((MODEL_TYPE,),)
    share: str = "off"

    @property
    def lineups(self) -> tuple[Lineup, ...]:
        """What is loaded beside each target: every draft model that a list of types needs. Lists without it run beside
        the first one.
        """
        models = (self.drafts if any(MODEL_TYPE in types for types in self.spec_types) else ()) or (None,)
        return tuple(Lineup(model, tuple(self._compared(model, i == 0))) for i, model in enumerate(models))

    def _compared(self, model: Path | None, is_first: bool) -> Iterator[Drafters]:
        for types in self.spec_types:
            if MODEL_TYPE not in types:
                if is_first:
                    yield Drafters(types, None)
            elif model is not None:
                yield Drafters(types, model)

    @property
    def n_groups(self) -> list[int]:
        """Groups of prompts, for each temperature, workload and number of sequences."""
        of_workloads = [
            -(-len(workload.prompts) // sequences) for workload in self.workloads for sequences in self.sequences
        ]
        return of_workloads * len(self.temperatures)

    @property
    def n_ctx(self) -> int:
        """Tokens of context per sequence: what the user says, else what the prompts need."""
        return self.n_ctx_given or context_for(
            (prompt for workload in self.workloads for prompt in workload.prompts), self.max_tokens
        )

    def words(self, target: Path, lineup: Lineup) -> list[str]:
        """The flags of `uad serve` for one server: a slot for each sequence."""
        n_slots = max(self.sequences)
        n_ctx = str(self.n_ctx * n_slots)
        words = ["--model", str(target), "--ctx-size", n_ctx, "--parallel", str(n_slots)]
        words += ["--spec-type", ",".join(lineup.types) or "none", "--spec-share", self.share]
        if lineup.model is not None:
            words += ["--model-draft", str(lineup.model), "--ctx-size-draft", n_ctx]
        return [*words, *self.serve]

    def config(self, target: Path, lineup: Lineup) -> Config:
        """What that server makes of them. Raises ConfigError."""
        return load_config(self.words(target, lineup), self.environ)


def _add_own(parser: argparse.ArgumentParser) -> None:
    """The flags of the bench itself."""
    _add_models(parser)
    _add_answers(parser)
    _add_conditions(parser)


def _add_served(parser: argparse.ArgumentParser) -> None:
    """The flags that are handed on."""
    parser.add_argument(
        "--exact", action="store_true", help="bitwise the plain text, whatever the target's weights, as on `uad serve`"
    )
    replaced = "replace this target text by that draft text; repeatable"
    parser.add_argument("--spec-replace", action="append", nargs=2, metavar=("TARGET", "DRAFT"), help=replaced)
    for group in _SERVED:
        add_group(parser, group, without=OWN)


def _add_models(parser: argparse.ArgumentParser) -> None:
    """Which models are measured."""
    add, file = parser.add_argument, typed(FILE)
    add(
        "-m", "--target", "--model", action="append", type=file, metavar="GGUF", help="target model; repeat for several"
    )
    draft = "draft model; repeat for several, each is paired with each target"
    add("-md", "--draft", "--model-draft", action="append", type=file, metavar="GGUF", help=draft)
    repo, form = typed(HUB_MODEL), "USER/REPO[:QUANT]"
    target = "target model from a Hugging Face repository; repeat for several"
    add("-hf", "-hfr", "--hf-repo", action="append", type=repo, metavar=form, help=target)
    add("-hfd", "-hfrd", "--hf-repo-draft", action="append", type=repo, metavar=form, help="the same for drafts")


def _add_answers(parser: argparse.ArgumentParser) -> None:
    """What they are asked for, under which policies, and how often."""
    add, whole = parser.add_argument, typed(integer(1))
    names = f"{', '.join(bundled())}, all (these), {', '.join(category_names())}, categories (these)"
    add("--workload", action="append", metavar="NAMES", help=f"comma list of {names}, or a .toml file (default: chat)")
    policies = f"auto, auto:N_MAX, fixed, fixed:N_MAX, fixed:N_MAX:P_MIN, plain, matrix ({', '.join(_MATRIX)})"
    add("--policy", action="append", type=_policies, metavar="NAMES", help=f"comma list of {policies} (default: auto)")
    add(
        "--prompts",
        type=whole,
        default=7,
        metavar="N",
        help="prompts of each workload, the first ones (default: %(default)s)",
    )
    add("--prompt", action="append", metavar="NAMES", help="comma list of prompts by name, instead of the first ones")
    add(
        "-n",
        "--max-tokens",
        type=typed(integer(2)),
        default=160,
        metavar="N",
        help="tokens per answer at most (default: %(default)s)",
    )
    temperatures, at_once = typed(several(number(0.0, 100.0))), typed(several(integer(1, 256)))
    add(
        "--temperature",
        "--temp",
        type=temperatures,
        default="0",
        metavar="LIST",
        help="comma list of temperatures (default: 0, greedy)",
    )
    add(
        "--sequences",
        type=at_once,
        default="1",
        metavar="LIST",
        help="comma list: prompts running at once (default: %(default)s)",
    )
    seed = typed(integer(0, RANDOM_SEED))
    add("-s", "--seed", type=seed, default=1, metavar="N", help="seed of the sampled answers (default: %(default)s)")
    repeats = "counted runs of each prompt under each policy; the median counts (default: %(default)s)"
    add("--repeats", type=whole, default=3, metavar="N", help=repeats)


def _add_conditions(parser: argparse.ArgumentParser) -> None:
    """What drafts and how, what else is asked, and what is printed."""
    add = parser.add_argument
    add("--vs", "--peer", dest="peer", metavar="URL", help="send the same prompts to this OpenAI-compatible server too")
    add("--peer-key", metavar="KEY", help="API key for --vs")
    add("--peer-model", metavar="NAME", help="model name for --vs (default: the first that it lists)")
    add("--verbose", "-v", action="store_true", help="show every prompt")
    add("--json-only", action="store_true", help="print the JSON line only")
    types = (
        "drafters as on `uad serve`, a comma list; repeat to compare several lists (default: draft-simple, the "
        "draft model)"
    )
    add("--spec-type", action="append", type=typed(SPEC_TYPE), metavar="TYPES", help=types)
    share = (
        "memory of drafters without a model: the request alone (off), or earlier runs, which hold the answer "
        "(default: %(default)s)"
    )
    add("--spec-share", type=typed(choice(*SHARES)), default="off", metavar="|".join(SHARES), help=share)
    context = "context per sequence in tokens (default: what the prompts need)"
    add("-c", "--ctx-size", type=typed(integer(0)), default=0, metavar="N", help=context)


def parse(argv: Sequence[str]) -> BenchOptions:
    """Check the command line of `bench_servers.py`. Raises ConfigError that names the flag."""
    return parse_with(argv, Parser("lab/bench_servers.py", _DESCRIPTION, _EPILOG), lambda parser: None)[0]


def parse_with(
    argv: Sequence[str], parser: Parser, add_more: Callable[[Parser], None]
) -> tuple[BenchOptions, argparse.Namespace]:
    """The same for a command with further flags, which add_more declares, and what was given for those. Raises
    ConfigError.
    """
    _add_own(parser)
    add_more(parser)
    # what the parser does not know yet is meant for the server, if it knows it with the server's flags
    served = parser.split(argv)[1] if not {"-h", "--help"} & set(argv) else []
    _add_served(parser)
    args = parser.parse(argv)
    environ = served_environ(os.environ)
    hub = load_config(["--model", "any.gguf", *served], environ).hub
    options = BenchOptions(
        targets=(*_files(args.target, "--target"), *_fetched(args.hf_repo, hub)),
        drafts=(*_files(args.draft, "--draft"), *_fetched(args.hf_repo_draft, hub)),
        workloads=_workloads(args),
        policies=_distinct_policies(args.policy or [_policies("auto")]),
        temperatures=args.temperature,
        sequences=args.sequences,
        max_tokens=args.max_tokens,
        repeats=args.repeats,
        seed=args.seed,
        serve=tuple(served),
        environ=environ,
        n_ctx_given=args.ctx_size,
        peer=_peer(args),
        verbose=args.verbose,
        json_only=args.json_only,
        spec_types=_lists_of_types(args.spec_type or ((MODEL_TYPE,),)),
        share=args.spec_share,
    )
    _check_together(options)
    for target in options.targets:
        for lineup in options.lineups:
            options.config(target, lineup)  # what a server would refuse is said before any is started
    return options, args


def served_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server: variables count for the flags that the bench has too."""
    ours = [flag for group in _SERVED for flag in GROUPS[group] if flag.name not in OWN]
    others = {name for flag in FLAGS if flag not in ours for name in flag.variables}
    others |= {name.replace(VARIABLE, f"{VARIABLE}NO_") for name in others}
    return {name: value for name, value in environ.items() if name not in others}


def _policies(text: str) -> tuple[PolicyOption, ...]:
    """The policies of a comma list; `matrix` stands for its members."""
    names = [name for word in text.split(",") for name in (_MATRIX if word.strip() == "matrix" else (word.strip(),))]
    return tuple(map(parse_policy, names))


def _distinct_policies(lists: Sequence[tuple[PolicyOption, ...]]) -> tuple[PolicyOption, ...]:
    policies = tuple(policy for policies in lists for policy in policies)
    if len({policy.name for policy in policies}) < len(policies):
        raise ConfigError(f"--policy: name each of {', '.join(policy.name for policy in policies)} once")
    return policies


def _workloads(args: argparse.Namespace) -> tuple[Workload, ...]:
    workloads = load_all(args.workload or ["chat"])
    if not args.prompt:
        return tuple(workload.head(args.prompts) for workload in workloads)
    names = [name.strip() for given in args.prompt for name in given.split(",")]
    known = [prompt.name for workload in workloads for prompt in workload.prompts]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--prompt: no workload that is measured has a prompt {name!r}; there are {', '.join(known)}"
            )
    return tuple(part for workload in workloads if (part := workload.named(names)).prompts)


def _peer(args: argparse.Namespace) -> Peer | None:
    if args.peer is None:
        if args.peer_key is not None or args.peer_model is not None:
            raise ConfigError("--peer-key and --peer-model need --vs URL")
        return None
    return Peer(server_url(args.peer, "--vs"), args.peer_key, args.peer_model)


def _lists_of_types(lists: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Each list once, in the one order that an engine has its drafters in: the model last, the others as they are first
    named.
    """
    if () in lists:
        raise ConfigError("--spec-type none drafts nothing: plain decoding is measured in any case")
    order = [name for name in dict.fromkeys(name for types in lists for name in types) if name != MODEL_TYPE] + [
        MODEL_TYPE
    ]
    return tuple(dict.fromkeys(tuple(sorted(types, key=order.index)) for types in lists))


def _check_together(options: BenchOptions) -> None:
    if not options.targets:
        raise ConfigError("--target is missing: give the GGUF file of the model to be measured")
    needs_model = any(MODEL_TYPE in types for types in options.spec_types)
    if not options.drafts and options.peer is None and needs_model:
        raise ConfigError(
            "--draft is missing: give the GGUF file of a draft model, or --vs URL to compare plain decoding with "
            "another server"
        )
    for workload in options.workloads:
        if len(workload.prompts) < max(options.sequences):
            n_prompts, n_sequences = len(workload.prompts), max(options.sequences)
            raise ConfigError(
                f"--sequences {n_sequences} needs as many prompts, workload {workload.name!r} gives {n_prompts}; "
                "raise --prompts"
            )


def _fetched(models: Sequence[HubModel] | None, hub: HubConfig) -> list[Path]:
    with progress(sys.stderr, quiet=not models) as report:
        return [path_on(model, hub, report) for model in models or ()]


def _files(paths: Sequence[Path] | None, flag: str) -> tuple[Path, ...]:
    for path in paths or ():
        if not is_file(path):
            raise ConfigError(f"{flag}: {path}: {no_such_file(path)}")
    return tuple(paths or ())
