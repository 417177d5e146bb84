"""Frozen configuration in slices, validated once, here, at the edge: flags, environment and YAML become one
`Config`.
"""

from uad.base.config.drafter_types import HEAD_TYPE, HEAD_TYPES, MODEL_TYPE, SHARES, SPEC_TYPE, LookupConfig
from uad.base.config.load import load_config
from uad.base.config.model_config import ModelConfig
from uad.base.config.slices import Config, DraftingConfig, EmbeddingConfig, ServerConfig, TemplateConfig, VisionConfig
from uad.base.config.sources import HubConfig, HubModel, KvOverride, LoraConfig, Place

__all__ = [
    "HEAD_TYPE",
    "HEAD_TYPES",
    "MODEL_TYPE",
    "SHARES",
    "SPEC_TYPE",
    "Config",
    "DraftingConfig",
    "EmbeddingConfig",
    "HubConfig",
    "HubModel",
    "KvOverride",
    "LookupConfig",
    "LoraConfig",
    "ModelConfig",
    "Place",
    "ServerConfig",
    "TemplateConfig",
    "VisionConfig",
    "load_config",
]
