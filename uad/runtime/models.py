"""Opens models with their tokenizers, and says what rules between chat formats need of them. Knows no roles beyond
error texts, and no drafting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from uad.base.config import Config, ModelConfig
from uad.llama.model import Model
from uad.text.mapping.plan import Options
from uad.text.mapping.recognise import Side
from uad.text.vocab.hf import hf_tokenize


def open_model(
    config: ModelConfig, role: str, progress: Callable[[float], None] | None = None, has_weights: bool = True
) -> Model:
    """The model, with text to ids by `config.tokenizer` where one is named; has_weights: False reads its header alone.
    Raises ModelLoadError, or ConfigError if the two disagree.
    """
    model = Model(config, role, progress, has_weights)
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
    """The parts of a model that recognition and rules need; `template` replaces the chat template of its file."""
    return Side(model.vocab, template or model.info.chat_template, model.info.desc)
