"""The frozen slices of configuration, with all that users may set: each room gets only its own. Nothing here reads
flags, files or the environment.

A setting is declared once: `setting(default, help, names, …)` makes its flag, its variable, its key in YAML, their
checks and the help (`common/settings.py` lists what one can declare). Other fields are not set by the user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from uad.base.common.samplers import ORDER
from uad.base.common.settings import flag, setting
from uad.base.config import kinds
from uad.base.config.drafter_types import BESIDE_A_MODEL, MODEL_TYPE, SPEC_TYPE, SPEC_TYPES, LookupConfig
from uad.base.config.kinds import choice
from uad.base.config.model_config import ModelConfig
from uad.base.config.router_config import RouterConfig
from uad.base.config.sources import HubConfig
from uad.base.types import N_MAX_AUTO, N_MAX_FIXED, Constraint, SamplingParams, SpeculativeParams


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """The target's projector, which lets it see images."""

    path: Path | None = setting(
        None,
        "projector of the target (mmproj, GGUF): requests may have images; auto: one in the target's folder, if "
        "there is one for it",
        "-mm --mmproj LLAMA_ARG_MMPROJ",
        default_text="with --hf-repo the repository's, if it has one",
    )
    is_found: bool = False
    """Whether nobody named the projector: without it texts are answered all the same."""
    auto: bool = setting(
        True,
        "look for a projector in the repository of --hf-repo",
        "--mmproj-auto LLAMA_ARG_MMPROJ_AUTO",
        no="--no-mmproj --no-mmproj-auto",
    )
    offload: bool = setting(
        True,
        "the projector on the GPU, where the target has one",
        "--mmproj-offload LLAMA_ARG_MMPROJ_OFFLOAD",
        no="--no-mmproj-offload",
    )
    min_tokens: int = setting(
        0,
        "fewest tokens of an image, where the projector knows several sizes",
        "--image-min-tokens LLAMA_ARG_IMAGE_MIN_TOKENS",
        default_text="the projector's",
    )
    max_tokens: int = setting(
        0,
        "most tokens of an image, where the projector knows several sizes",
        "--image-max-tokens LLAMA_ARG_IMAGE_MAX_TOKENS",
        default_text="the projector's",
    )


SPECULATIVE_FLAGS = {
    "policy": flag(
        "how draft lengths are chosen: auto (what pays on this machine, at most --spec-draft-n-max) or fixed (n-max, "
        "n-min, p-min)",
        "--spec-policy LLAMA_ARG_SPEC_POLICY",
        kind=kinds.SPEC_POLICY,
    ),
    "n_max": flag(
        "most tokens per draft of the draft model; 0: nothing drafts",
        "--spec-draft-n-max --draft-max --draft-n LLAMA_ARG_SPEC_DRAFT_N_MAX LLAMA_ARG_DRAFT_MAX",
        kind=kinds.integer(0),
        default_text=f"{N_MAX_FIXED} where they are fixed, {N_MAX_AUTO} where the policy chooses",
    ),
    "n_min": flag(
        "shorter drafts are not tried",
        "--spec-draft-n-min --draft-min --draft-n-min LLAMA_ARG_SPEC_DRAFT_N_MIN LLAMA_ARG_DRAFT_MIN",
    ),
    "p_min": flag(
        "a draft ends before a token less likely than this",
        "--spec-draft-p-min --draft-p-min LLAMA_ARG_SPEC_DRAFT_P_MIN LLAMA_ARG_DRAFT_P_MIN",
        low=0,
        high=1,
        metavar="P",
    ),
    "enabled": flag(
        "do not load the draft model; plain decoding", no="--no-draft", default_text="", after="--spec-default"
    ),
}
"""Flags of `SpeculativeParams`, by field: a request may set the same, these are for requests that do not."""


@dataclass(frozen=True, slots=True)
class DraftingConfig:
    """Defaults of draft control, and the switches that hold for the whole server."""

    defaults: SpeculativeParams = field(default_factory=SpeculativeParams)
    types: tuple[str, ...] = setting(
        (MODEL_TYPE,),
        f"drafters, separated by commas: {', '.join(SPEC_TYPES)}; or none",
        "--spec-type LLAMA_ARG_SPEC_TYPE",
        kind=SPEC_TYPE,
        default_text=f"{MODEL_TYPE}, with {BESIDE_A_MODEL} beside it where the policy is automatic",
    )
    weighed: tuple[str, ...] = ()
    """The `types` that only the automatic policy asks, since a fixed one takes guesses as they come."""
    spec_default: bool = setting(False, "ngram-mod as well, as in llama-server", "--spec-default")
    exact: bool = setting(
        False,
        "measure at start which batch sizes give the same bits, and pad smaller ones (for BF16, F16 and K-quants, "
        "and with -fa off)",
        "--exact",
    )
    window: int = setting(
        256,
        "most tokens that the draft model reads to catch up with a text; of more it reads the last ones (0: all)",
        "--spec-draft-window",
    )
    grammar: bool = setting(
        True,
        "draft what a request's grammar or schema forces; needs no draft model and no --spec-type",
        "--spec-grammar",
        kind=kinds.ON_OFF,
        bare="on",
    )
    lookup: LookupConfig = field(default_factory=LookupConfig)


@dataclass(frozen=True, slots=True)
class TemplateConfig:
    """Chat templates, and where mapping rules come from."""

    chat_template: str | None = setting(
        None,
        "use this template",
        "--chat-template LLAMA_ARG_CHAT_TEMPLATE",
        kind=kinds.TEMPLATE,
        also=(
            flag(
                "use the template in this file",
                "--chat-template-file LLAMA_ARG_CHAT_TEMPLATE_FILE",
                kind=kinds.TEMPLATE_FILE,
            ),
        ),
    )
    """Jinja source that stands in for the target's own."""
    kwargs: Mapping[str, object] = setting(
        dict,
        "variables of the chat template",
        "--chat-template-kwargs LLAMA_ARG_CHAT_TEMPLATE_KWARGS LLAMA_CHAT_TEMPLATE_KWARGS",
        kind=kinds.OBJECT,
        default_text="",
    )
    """Variables of the target's template or of the one that stands in; requests add to them."""
    reasoning: str = setting(
        "auto",
        "whether models think before they answer, where the template or the prompt's end can say so; auto is on",
        "-rea --reasoning LLAMA_ARG_REASONING",
        kind=kinds.ON_OFF_AUTO,
        metavar="on|off|auto",
    )
    reasoning_effort: str = setting(
        "default",
        "how much models think, for templates that know levels such as low, medium, high",
        "--reasoning-effort LLAMA_ARG_REASONING_EFFORT",
        kind=kinds.TEXT,
        metavar="LEVEL",
        default_text="as the template has it",
    )
    mappings: tuple[Path, ...] = setting(
        (), "folder of your mapping files; repeatable", "--mappings", kind=kinds.DIRECTORY
    )
    replace: tuple[tuple[str, str], ...] = setting(
        (),
        "replace TARGET in the target's prompt by DRAFT for the draft; repeatable, overrides mapping files",
        "--spec-replace",
        kind=kinds.PAIR,
        metavar="TARGET DRAFT",
    )
    target_family: str | None = setting(
        None, "chat format of the target", "--target-family", kind=kinds.ONE_NAME, default_text="recognised"
    )
    draft_family: str | None = setting(
        None, "chat format of the draft", "--draft-family", kind=kinds.ONE_NAME, default_text="recognised"
    )

    @property
    def variables(self) -> dict[str, object]:
        """Variables of templates in every request; `kwargs` win."""
        effort = {} if self.reasoning_effort == "default" else {"reasoning_effort": self.reasoning_effort}
        return {"enable_thinking": self.reasoning != "off", **effort, **self.kwargs}

    def template(self, own: str | None) -> str:
        """The template in use, given the one in the target's file; empty if there is no template."""
        return self.chat_template or own or ""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The HTTP side. Times are in seconds."""

    host: str = setting(
        "127.0.0.1", "addresses to listen on, with commas between them", "--host LLAMA_ARG_HOST", kind=kinds.HOSTS
    )
    port: int = setting(
        8080, "port; 0 takes a free one and prints it", "--port LLAMA_ARG_PORT", low=0, high=65535, metavar="PORT"
    )
    alias: str | None = setting(
        None,
        "names of the model in the API, with commas between them",
        "-a --alias LLAMA_ARG_ALIAS",
        kind=kinds.NAMES,
        default_text="the file's name",
    )
    tags: str = setting(
        "", "words about the model for /v1/models, with commas between them", "--tags", kind=kinds.NAMES
    )
    cors_origins: str = setting(
        "",
        "web pages that may use the server beside those of this machine, with commas; localhost: none, *: all",
        "--cors-origins",
        kind=kinds.NAMES,
        metavar="ORIGINS",
        default_text="* with --api-key, else localhost",
    )
    api_prefix: str = setting(
        "", "path in front of every route", "--api-prefix LLAMA_ARG_API_PREFIX", kind=kinds.PREFIX
    )
    api_keys: tuple[str, ...] = setting(
        (),
        "accepted keys, separated by commas",
        "--api-key LLAMA_API_KEY",
        kind=kinds.KEYS,
        also=(
            flag(
                "file with one key per line; lines that begin with # are comments",
                "--api-key-file LLAMA_ARG_API_KEY_FILE",
                kind=kinds.KEY_FILE,
            ),
        ),
    )
    """None: there is no authentication."""
    ssl_key: Path | None = setting(
        None, "private key (PEM): the server speaks HTTPS", "--ssl-key-file LLAMA_ARG_SSL_KEY_FILE"
    )
    ssl_cert: Path | None = setting(
        None, "its certificate (PEM), with the intermediate ones", "--ssl-cert-file LLAMA_ARG_SSL_CERT_FILE"
    )
    reuse_port: bool = setting(
        False, "other processes may listen on the same port", "--reuse-port LLAMA_ARG_REUSE_PORT"
    )
    timeout: float = setting(
        3600.0,
        "seconds until a silent connection is closed",
        "-to --timeout LLAMA_ARG_TIMEOUT",
        low=0.001,
        metavar="SECONDS",
    )
    shutdown_timeout: float = setting(
        30.0,
        "seconds that running answers may go on when the server is told to stop",
        "--shutdown-timeout LLAMA_ARG_SHUTDOWN_TIMEOUT",
        low=0.0,
        metavar="SECONDS",
    )
    sse_ping_interval: float = setting(
        30.0,
        "seconds between pings in silent streams, 1 or more; 0 or -1 for no pings",
        "--sse-ping-interval LLAMA_ARG_SSE_PING_INTERVAL",
        kind=kinds.PING,
    )
    cache_prompt: bool = setting(
        True,
        "a prompt goes on after what its slot holds of it, for requests that do not say",
        "--cache-prompt LLAMA_ARG_CACHE_PROMPT",
        no="--no-cache-prompt",
    )
    slots: bool = setting(True, "GET /slots", "--slots LLAMA_ARG_ENDPOINT_SLOTS", no="--no-slots")
    slot_save_path: Path | None = setting(
        None,
        "directory for files of slots: POST /slots/{id}?action=save, restore or erase",
        "--slot-save-path",
        kind=kinds.FOLDER,
        default_text="slots are not saved",
    )
    sleep_idle_seconds: float = setting(
        -1.0,
        "seconds without a request after which the models are unloaded, until the next one; -1 is never",
        "--sleep-idle-seconds LLAMA_ARG_SLEEP_IDLE_SECONDS",
        kind=kinds.SLEEP,
    )
    media_url: bool = setting(
        False,
        "images in requests may be at http and https addresses of the public internet, from where the server fetches "
        "them",
        "--media-url",
    )
    media_path: Path | None = setting(
        None,
        "directory of images that requests may name as file:// URLs, by their path in it",
        "--media-path",
        kind=kinds.FOLDER,
        default_text="no files are read",
    )
    ui: bool = setting(
        True,
        "the page at /: chat, race and live view, which show who wrote each token",
        "--ui --webui LLAMA_ARG_UI",
        no="--no-ui --no-webui",
    )
    metrics: bool = setting(False, "GET /metrics for Prometheus", "--metrics LLAMA_ARG_ENDPOINT_METRICS")
    spm_infill: bool = setting(
        False, "put the suffix first in prompts of /infill, as some models prefer", "--spm-infill"
    )
    max_queue: int = setting(
        256,
        "answers that may wait, one for each choice and prompt; more are refused with 503",
        "--max-queue",
        low=0,
        high=1 << 20,
    )
    reasoning_format: str = setting(
        "auto",
        "where thoughts go in chats: none leaves them in the text, the others put them into reasoning_content, "
        "deepseek-legacy in whole answers only",
        "--reasoning-format LLAMA_ARG_THINK",
        kind=choice("none", "auto", "deepseek", "deepseek-legacy"),
        metavar="FORMAT",
    )
    json_calls: str = setting(
        "auto",
        "whether an answer that is only a JSON object with a tool's name and arguments, bare or in a fence, is a call: "
        "auto: of models that write calls in JSON",
        "--json-calls",
        kind=choice("auto", "on", "off"),
        metavar="WHEN",
    )
    reasoning_budget: int = setting(
        -1,
        "most tokens of a thought in chats; -1: no bound, 0: it is closed at once",
        "--reasoning-budget LLAMA_ARG_THINK_BUDGET",
        low=-1,
    )
    reasoning_budget_message: str = setting(
        "",
        "text written before a thought is cut at its budget",
        "--reasoning-budget-message LLAMA_ARG_THINK_BUDGET_MESSAGE",
        kind=kinds.TEXT,
        metavar="MESSAGE",
    )

    @property
    def hosts(self) -> tuple[str, ...]:
        """The addresses to listen on."""
        return tuple(self.host.split(","))

    @property
    def names(self) -> tuple[str, ...]:
        """The model's names in the order of letters, the first of which answers have, as in llama-server; none where
        it is called after its file.
        """
        return tuple(sorted(self.alias.split(","))) if self.alias else ()


POOLINGS = ("none", "mean", "cls", "last", "rank")
"""How a text's rows become one, in the order of llama.cpp's numbers."""


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """How a model embeds or ranks texts, in place of writing them."""

    is_on: bool = setting(
        False,
        "serve embeddings of a model whose file does not say that it embeds; such a server writes no text",
        "--embedding --embeddings LLAMA_ARG_EMBEDDINGS",
    )
    ranks: bool = setting(
        False,
        "serve reranking of a model whose file does not say that it ranks: --pooling rank",
        "--rerank --reranking LLAMA_ARG_RERANKING",
    )
    pooling: str = setting(
        "",
        f"how the rows of a text become one vector: {', '.join(POOLINGS)}",
        "--pooling LLAMA_ARG_POOLING",
        kind=choice(*POOLINGS),
        metavar="TYPE",
        default_text="the model file's",
    )
    """Empty: as the file says."""
    normalize: int = setting(
        2,
        "how vectors are scaled: -1 not at all, 0 to the range of 16 bits, 1 by the sum of sizes, 2 to length 1, N by "
        "their p-norm",
        "--embd-normalize",
        low=-1,
    )
    prefixes: tuple[tuple[str, str], ...] = setting(
        (),
        "text put before texts to embed; query=TEXT, document=TEXT and others: before those whose request says that "
        "they are such; repeatable",
        "--embd-prefix",
        kind=kinds.PREFIXES,
    )
    """Each with the kind of text that it is for, which is empty for all others."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How the log is written, as llama-server has it."""

    file: Path | None = setting(None, "write the log into this file too", "--log-file LLAMA_ARG_LOG_FILE")
    verbosity: int = setting(
        3,
        "what is logged: 1 errors, 2 warnings too, 3 what happens too, 4 or 5 everything",
        "-lv --verbosity --log-verbosity LLAMA_ARG_LOG_VERBOSITY",
        low=0,
        high=5,
    )
    timestamps: bool = setting(
        True,
        "lines of the log begin with date and time",
        "--log-timestamps LLAMA_ARG_LOG_TIMESTAMPS",
        no="--no-log-timestamps",
    )
    prefix: bool = setting(
        True, "lines of the log have their level", "--log-prefix LLAMA_ARG_LOG_PREFIX", no="--no-log-prefix"
    )
    colors: str = setting(
        "auto",
        "colours in the log; auto: on a terminal, unless NO_COLOR is set",
        "--log-colors LLAMA_ARG_LOG_COLORS",
        kind=kinds.ON_OFF_AUTO,
        bare="on",
    )
    is_off: bool = setting(False, "no log on stderr", "--log-disable")


SAMPLING_FLAGS = {
    "samplers": flag(
        "the samplers that run, in this order, separated by ; and any of them several times",
        "--samplers",
        kind=kinds.SAMPLERS,
        default_text=";".join(ORDER),
        also=(
            flag(
                "the same as letters, such as edskypmxt",
                "--sampler-seq --sampling-seq",
                kind=kinds.SAMPLER_LETTERS,
                default_text="",
            ),
        ),
    ),
    "dry_sequence_breakers": flag(
        "text after which DRY lets a repetition begin again, or none; repeatable",
        "--dry-sequence-breaker",
        kind=kinds.BREAKER,
        default_text="line end, colon, double quote, asterisk",
    ),
    "seed": flag("seed; one seed gives one text", "-s --seed", kind=kinds.SEED, default_text="-1, random"),
    "logit_bias": flag("add BIAS to a token's logit; repeatable", "-l --logit-bias", kind=kinds.LOGIT_BIAS),
    "ignore_eos": flag("go on past the end of the answer", "--ignore-eos"),
}
"""Flags of `SamplingParams`, by field, beside those of the samplers, which the fields themselves declare."""


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that `uad serve` needs to know."""

    target: ModelConfig
    draft: ModelConfig | None = None
    more_drafts: tuple[ModelConfig, ...] = ()
    """Drafts beside the first one."""
    draft_from: tuple[Path, ...] = setting(
        (),
        "with --draft auto: drafts to load in place of a choice, the first that can be loaded; repeatable",
        "--draft-from",
        kind=kinds.FILES,
        group="models",
        default_text="what is chosen among the smaller models beside the target",
        after="--model-draft",
    )
    """Not empty: the draft was chosen. Where it fails the next one is tried, and then the target writes alone."""
    n_predict: int = setting(
        -1,
        "most tokens per answer; -1 is no limit",
        "-n --predict --n-predict LLAMA_ARG_N_PREDICT",
        low=-1,
        after="--ctx-size",
    )
    n_parallel: int = setting(
        1,
        "slots: answers that run side by side; -1 is one",
        "-np --parallel LLAMA_ARG_N_PARALLEL",
        kind=kinds.PARALLEL,
        after="--ubatch-size",
    )
    cache_ram: int = setting(
        8192,
        "memory in MiB for conversations that left their slot, until they come back; 0 for none, -1 without a limit",
        "-cram --cache-ram LLAMA_ARG_CACHE_RAM",
        low=-1,
        metavar="MIB",
        after="--swa-full",
    )
    cache_idle_slots: bool = setting(
        True,
        "where conversations take turns, what idle slots hold is copied there while nothing runs",
        "--cache-idle-slots LLAMA_ARG_CACHE_IDLE_SLOTS",
        no="--no-cache-idle-slots",
        after="--cache-ram",
    )
    cache_disk: Path | None = setting(
        None,
        "directory of files for conversations that left their slot, which outlast a restart; it is made if it is not "
        "there, and servers may share it",
        "--cache-disk LLAMA_ARG_CACHE_DISK",
        metavar="DIR",
        default_text="none",
        after="--cache-ram",
    )
    cache_disk_size: int = setting(
        16384,
        "most MiB of the files in --cache-disk together; -1 is no limit",
        "--cache-disk-size LLAMA_ARG_CACHE_DISK_SIZE",
        low=-1,
        metavar="MIB",
        after="--cache-disk",
    )
    fit: bool = setting(
        True,
        "check that contexts fit into memory: without -c the largest that fits is chosen, one that does "
        "not fit is refused",
        "-fit --fit LLAMA_ARG_FIT",
        kind=kinds.ON_OFF,
        bare="on",
        after="--cache-type-v",
    )
    rpc: tuple[str, ...] = setting(
        (),
        "use the devices of workers on other machines (uad rpc-worker), by addresses with commas between them; "
        "unencrypted",
        "--rpc LLAMA_ARG_RPC",
        kind=kinds.ENDPOINTS,
        after="--yarn-beta-fast",
    )
    numa: str = setting(
        "",
        "on machines with several memory nodes: distribute, isolate or numactl",
        "--numa LLAMA_ARG_NUMA",
        kind=choice("distribute", "isolate", "numactl"),
        metavar="TYPE",
        group="models",
        after="--check-tensors",
    )
    sampling: SamplingParams = field(default_factory=SamplingParams)
    constraint: Constraint | None = setting(
        None,
        "answers are texts of this grammar (GBNF) if a request names none",
        "--grammar",
        kind=kinds.GRAMMAR,
        group="sampling defaults",
        after="--logit-bias",
        also=(
            flag("the same from a file", "--grammar-file", kind=kinds.GRAMMAR_FILE),
            flag("answers are JSON of this schema if a request names none", "-j --json-schema", kind=kinds.JSON_SCHEMA),
            flag("the same from a file", "-jf --json-schema-file", kind=kinds.JSON_SCHEMA_FILE),
        ),
    )
    drafting: DraftingConfig = field(default_factory=DraftingConfig)
    templates: TemplateConfig = field(default_factory=TemplateConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    vision: VisionConfig = field(default_factory=VisionConfig)
    hub: HubConfig = field(default_factory=HubConfig)
    router: RouterConfig = field(default_factory=RouterConfig)
    """Only `uad serve` without a target has one."""
    verbose: bool = setting(False, "show llama.cpp's log too", "-v --verbose --log-verbose", group="general")
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    log: LogConfig = field(default_factory=LogConfig)
    notes: tuple[str, ...] = ()
    """Lines about what was accepted without effect, for printing at start."""

    @property
    def drafts(self) -> tuple[ModelConfig, ...]:
        """All draft models, in the order in which they were named."""
        return () if self.draft is None else (self.draft, *self.more_drafts)

    def with_drafts(self, drafts: Sequence[ModelConfig]) -> Config:
        """The same with these draft models."""
        return replace(self, draft=next(iter(drafts), None), more_drafts=tuple(drafts[1:]))
