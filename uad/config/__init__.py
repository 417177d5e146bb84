"""Frozen configuration in slices, validated once, here, at the edge: flags, environment and YAML become one
`Config`.
"""

from uad.config.drafter_types import HEAD_TYPE, MODEL_TYPE, SHARES, SPEC_TYPE, LookupConfig
from uad.config.load import load_config
from uad.config.model_config import ModelConfig
from uad.config.slices import Config, DraftingConfig, ServerConfig, TemplateConfig
from uad.config.sources import HubConfig, HubModel, KvOverride, LoraConfig, Place

__all__ = [
    "HEAD_TYPE",
    "MODEL_TYPE",
    "SHARES",
    "SPEC_TYPE",
    "Config",
    "DraftingConfig",
    "HubConfig",
    "HubModel",
    "KvOverride",
    "LookupConfig",
    "LoraConfig",
    "ModelConfig",
    "Place",
    "ServerConfig",
    "TemplateConfig",
    "load_config",
]
