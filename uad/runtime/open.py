"""What the parts of a runtime are opened with: devices, models with their tokenizers, what rules between chat formats
need of them, and what joins the parts. Knows no roles beyond error texts, and no drafting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter

from uad.base.common.files import size_text
from uad.base.config import Config, ModelConfig
from uad.drafts.model.head import Head
from uad.engine.decode.drafting import NO_MATCHERS, Drafting
from uad.engine.decode.scheduler import SamplerFactory
from uad.engine.decode.target import Target
from uad.engine.drafter import Drafter
from uad.engine.policy.cost import CostSample
from uad.engine.policy.protocol import Policy
from uad.llama.backend import rpc
from uad.llama.backend.devices import every, named, used
from uad.llama.context import Context
from uad.llama.head import HeadContext
from uad.llama.model import Model
from uad.runtime.costs.profile_store import curve
from uad.text.grammar.protocol import Matcher
from uad.text.mapping.plan import Options
from uad.text.mapping.recognise import Side
from uad.text.vocab.hf import hf_tokenize


def open_model(config: ModelConfig, role: str, progress: Callable[[float], None] | None = None) -> Model:
    """The model, with text to ids by `config.tokenizer` where one is named. Raises ModelLoadError, or ConfigError if
    the two disagree.
    """
    model = Model(config, role, progress)
    if config.tokenizer is None:
        return model
    try:
        model.vocab = replace(model.vocab, tokenize=hf_tokenize(config.tokenizer, model.vocab))
    except BaseException:
        model.close()
        raise
    return model


def tokenizer_notes(config: ModelConfig, role: str) -> tuple[str, ...]:
    """The line at start that says which tokenizer cuts this model's text; none for llama.cpp's own."""
    return (
        ()
        if config.tokenizer is None
        else (f"{role} tokenizer: {config.tokenizer}; its tokens agree with the model's",)
    )


def end_note(model: Model) -> tuple[str, ...]:
    """The line at start where nothing that the target writes ends an answer."""
    key = "tokenizer.ggml.eos_token_id"
    if model.vocab.eog:
        return ()
    return (
        f"no token ends an answer of {model.path}: {key} is {model.meta(key) or 'missing'}, which is no special token. "
        f"Answers go on up to max_tokens or a stop text (--override-kv {key}=int:ID names the token)",
    )


def template_options(config: Config) -> Options:
    """The slice of the configuration that rules are made of."""
    t = config.templates
    return Options(mappings=t.mappings, replace=t.replace, target_family=t.target_family, draft_family=t.draft_family)


def side(model: Model, template: str | None = None) -> Side:
    """What recognition and rules need of a model; `template` replaces the chat template of its file."""
    return Side(model.vocab, template or model.info.chat_template, model.info.desc)


# --- devices


def connected(config: Config) -> Config:
    """The configuration with its workers added.

    A draft without devices of its own stays on this machine's devices: each of its ids would wait for the network.
    Raises ConfigError for workers that cannot be used and for names that no device has.
    """
    if config.rpc:
        rpc.connect(config.rpc)
    draft = config.draft
    if config.rpc and draft is not None and draft.devices is None:
        draft = replace(
            draft, devices=tuple(device.name for device in every() if device.takes_layers and not device.is_remote)
        )
    for model, flag in ((config.target, "--device"), (draft, "--device-draft")):
        if model is not None and model.devices:
            named(model.devices, [device for device in every() if device.takes_layers], flag)
    return replace(config, draft=draft)


def device_notes(config: Config) -> tuple[str, ...]:
    """The lines at start that name the devices of each model, where they were chosen or there are workers; the one
    that says that there is no GPU, where the flags count on one; and when to move to vLLM.
    """
    lines = []
    asked = [model.n_gpu_layers for model in (config.target, config.draft) if model is not None]
    if max(asked) > 0 and not any(device.takes_layers for device in every()):
        lines.append(
            f"--gpu-layers {max(asked)} has no effect: this llama.cpp finds no GPU, or was built without support for "
            "one (make clean; make serve CMAKE_ARGS=-DGGML_CUDA=on)"
        )
    for role, model in (("target", config.target), ("draft", config.draft)):
        if model is not None and (config.rpc or model.devices is not None):
            shown = [f"{device.name} ({device.description}, {size_text(device.free)} free)" for device in used(model)]
            names = ", ".join(shown) or "this machine's CPU"
            lines.append(f"devices of the {role}: {names}")
    if config.target.n_gpu_layers and (n := len(used(config.target))) > 1:
        lines.append(
            f"the target's layers are on {n} devices, which compute one after the other; vLLM computes on all at once, "
            "and uad drafts there, too (docs/vllm.md)"
        )
    return tuple(lines)


# --- the place of experiments


class Wiring:
    """How parts are joined in a server: with nothing between them. A subclass may change any of it; this is the one
    place where experiments may put something of their own.
    """

    clock: Callable[[], float] = staticmethod(perf_counter)

    def target(self, context: Context) -> Target:
        """What the loop decodes on."""
        return context

    def draft(self, context: Context) -> Target:
        """What the draft model is run on."""
        return context

    def head(self, context: HeadContext) -> Head:
        """What a head is run on."""
        return context

    def curve(
        self, context: Context, config: ModelConfig, role: str, sizes: Sequence[int], seconds: float
    ) -> tuple[tuple[CostSample, ...], bool]:
        """What passes cost, for the policy, and whether that was stored. Raises what decoding does."""
        return curve(context, config, role, sizes, seconds)

    def drafting(
        self,
        drafters: Sequence[Drafter],
        policies: Callable[[], Policy],
        model: Model,
        matchers: Mapping[int, Matcher] = NO_MATCHERS,
    ) -> Drafting:
        """Drafters and policy as one. matchers: of the running sequences that are constrained."""
        return Drafting(drafters, policies, model.info.n_vocab, model.vocab.eog, self.clock, matchers)

    def samplers(self, usual: SamplerFactory, model: Model) -> SamplerFactory:
        """What makes a sampler for each request; usual: from its parameters."""
        return usual


WIRING = Wiring()
