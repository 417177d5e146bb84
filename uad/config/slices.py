"""The frozen slices of configuration: each room gets only its own. Nothing here reads flags, files or the
environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from uad.config.drafter_types import MODEL_TYPE, LookupConfig
from uad.config.sources import HubConfig, HubModel, KvOverride, LoraConfig, Place
from uad.types import Constraint, SamplingParams, SpeculativeParams


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """How one model is loaded and its context made.

    n_ctx is the total of all slots, 0 means the model's own; n_threads 0 means the physical cores, n_threads_batch 0
    the same as n_threads; negative n_gpu_layers means all. `tokenizer` is a Hugging Face tokenizer.json that turns text
    into ids instead of llama.cpp. rope_* and yarn_* stretch positions beyond the trained context; empty, 0 and negative
    values mean what the model file says. swa_full: the cache of a sliding window holds all positions. n_snapshots:
    earlier values of a recurrent state that are kept, where the model has one. n_seq: sequences that its contexts have
    at most, 0 where that is not known. with_head: its head is loaded too.
    n_checkpoints: copies of states that are kept of each slot for later prompts, checkpoint_step ids apart at least.
    hub: where `path` has to be fetched from first, None once it is a file; `path` names it in messages until then.
    loras: adapters, loaded with the model; with apply_loras off none is added until a client asks for it. devices:
    names of those that layers are put on; None means all (a draft's: all of this machine, where there are workers), ()
    the CPU. tensor_split: their shares; () means by free memory. overrides: metadata of the file that is replaced.
    places: tensors that are kept in buffers of their own. kv_offload: the KV cache lies beside the layers on the GPU;
    op_offload: large operations on other tensors are done there; no_host: no buffer of the host stands between.
    """

    path: Path
    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    n_threads: int = 0
    n_threads_batch: int = 0
    n_gpu_layers: int = -1
    flash_attn: str = "auto"
    type_k: str = "f16"
    type_v: str = "f16"
    mmap: bool = True
    mlock: bool = False
    repack: bool = True
    tokenizer: Path | None = None
    rope_scaling: str = ""
    rope_freq_base: float = 0.0
    rope_freq_scale: float = 0.0
    yarn_orig_ctx: int = 0
    yarn_ext_factor: float = -1.0
    yarn_attn_factor: float = -1.0
    yarn_beta_slow: float = -1.0
    yarn_beta_fast: float = -1.0
    swa_full: bool = False
    n_snapshots: int = 0
    n_seq: int = 0
    with_head: bool = False
    n_checkpoints: int = 32
    checkpoint_step: int = 8192
    hub: HubModel | None = None
    loras: tuple[LoraConfig, ...] = ()
    apply_loras: bool = True
    devices: tuple[str, ...] | None = None
    tensor_split: tuple[float, ...] = ()
    overrides: tuple[KvOverride, ...] = ()
    places: tuple[Place, ...] = ()
    kv_offload: bool = True
    op_offload: bool = True
    no_host: bool = False
    backend_sampling: bool = False
    """Likeliest ids are found where the logits are computed, so that whole rows need not be copied."""
    check_tensors: bool = False


@dataclass(frozen=True, slots=True)
class DraftingConfig:
    """Defaults of draft control, and the switches that hold for the whole server.

    `types` are the drafters, by --spec-type's names; `weighed` are those of them that only the automatic policy asks,
    since a fixed one takes guesses as they come. `spec_default` says that --spec-default put ngram-mod among them.
    `window`: most tokens that the draft model reads to catch up with a text; of more it reads the last ones (0: all).
    `grammar`: what a request's constraint forces is drafted.
    """

    defaults: SpeculativeParams = field(default_factory=SpeculativeParams)
    types: tuple[str, ...] = (MODEL_TYPE,)
    weighed: tuple[str, ...] = ()
    spec_default: bool = False
    lookup: LookupConfig = field(default_factory=LookupConfig)
    exact: bool = False
    heal: bool = True
    salvage: bool = True
    window: int = 256
    grammar: bool = True


@dataclass(frozen=True, slots=True)
class TemplateConfig:
    """Where mapping rules come from. `replace` are (TARGET, DRAFT) pairs of --spec-replace, which win over files.

    `chat_template` is Jinja source that stands in for the target's own; `kwargs` are variables for either, which
    requests add to. reasoning: on, off, or auto, which is on where the template has a switch for it. reasoning_effort:
    a level that the template knows, or default.
    """

    mappings: tuple[Path, ...] = ()
    replace: tuple[tuple[str, str], ...] = ()
    target_family: str | None = None
    draft_family: str | None = None
    chat_template: str | None = None
    kwargs: Mapping[str, object] = field(default_factory=dict)
    reasoning: str = "auto"
    reasoning_effort: str = "default"

    @property
    def variables(self) -> dict[str, object]:
        """What templates get in every request; `kwargs` win."""
        effort = {} if self.reasoning_effort == "default" else {"reasoning_effort": self.reasoning_effort}
        return {"enable_thinking": self.reasoning != "off", **effort, **self.kwargs}

    def template(self, own: str | None) -> str:
        """The template in use, by that of the target's file; empty where there is none."""
        return self.chat_template or own or ""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The HTTP side. Times are in seconds; sse_ping_interval 0 or less sends no pings; an empty `api_keys` means no
    authentication.

    host, alias, tags, cors_origins: one, or several with commas between them. cache_prompt: whether prompts go on after
    what their slots hold, where a request does not say.
    reasoning_format: none leaves thoughts in the text of chat answers; auto and deepseek put them into
    `reasoning_content`. reasoning_budget: most ids of a thought (-1: no bound), at which reasoning_budget_message and
    the template's own marker end it. spm_infill: prompts that fill in the middle have the suffix first.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    alias: str | None = None
    tags: str = ""
    cors_origins: str = ""
    api_keys: tuple[str, ...] = ()
    api_prefix: str = ""
    timeout: float = 3600.0
    shutdown_timeout: float = 30.0
    sse_ping_interval: float = 30.0
    slots: bool = True
    metrics: bool = False
    ui: bool = True
    max_queue: int = 256
    ssl_key: Path | None = None
    ssl_cert: Path | None = None
    reuse_port: bool = False
    reasoning_format: str = "auto"
    spm_infill: bool = False
    reasoning_budget: int = -1
    reasoning_budget_message: str = ""
    cache_prompt: bool = True

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


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How the log is written, as llama-server has it. file: one that gets all lines, too. verbosity: 1 errors, 2
    warnings, 3 what happens, more for all; timestamps, prefix: whether lines have their date, their level. colors: on,
    off or auto, which is on terminals. is_off: there is none on stderr.
    """

    file: Path | None = None
    verbosity: int = 3
    timestamps: bool = True
    prefix: bool = True
    colors: str = "auto"
    is_off: bool = False


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that `uad serve` needs to know.

    `constraint` is that of requests without one. `fit`: contexts are compared with the memory that there is. `notes`
    are lines about what was accepted without effect, for printing at start. `rpc`: addresses of workers on other
    machines. `cache_ram`: MiB of the prompt cache; 0 is none, -1 no limit.
    """

    target: ModelConfig
    draft: ModelConfig | None = None
    n_parallel: int = 1
    n_predict: int = -1
    sampling: SamplingParams = field(default_factory=SamplingParams)
    constraint: Constraint | None = None
    drafting: DraftingConfig = field(default_factory=DraftingConfig)
    templates: TemplateConfig = field(default_factory=TemplateConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    hub: HubConfig = field(default_factory=HubConfig)
    fit: bool = True
    rpc: tuple[str, ...] = ()
    cache_ram: int = 8192
    numa: str = ""
    log: LogConfig = field(default_factory=LogConfig)
    verbose: bool = False
    notes: tuple[str, ...] = ()
