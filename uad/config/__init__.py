"""Frozen configuration in slices, validated once, here, at the edge: flags, environment and YAML become one `Config`."""

from uad.config.load import load_config
from uad.config.slices import FLASH_ATTN, KV_TYPES, Config, DraftingConfig, LookupConfig, ModelConfig, ServerConfig, TemplateConfig

__all__ = [
    "FLASH_ATTN",
    "KV_TYPES",
    "Config",
    "DraftingConfig",
    "LookupConfig",
    "ModelConfig",
    "ServerConfig",
    "TemplateConfig",
    "load_config",
]
