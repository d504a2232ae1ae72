"""What a config says of each stack of layers with experts. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.errors import ConfigError
from assay.spec.config import ModelConfig
from assay.spec.matching import find_model_type
from assay.spec.model_spec import ConfigSpec, ModelSpec
from assay.spec.moe import MoESpec
from assay.spec.registry import get_spec

__all__ = ["StackFacts", "read_stack"]


@dataclass(frozen=True)
class StackFacts:
    """What the config says of a stack: its own part, its layers with experts and how many in all.

    text: the same part, read through its spec.
    """

    values: Mapping[str, Any]
    text: ModelConfig
    layers: tuple[int, ...]
    num_layers: int


def read_stack(
    spec: ModelSpec, moe: MoESpec, config: Mapping[str, Any], stack: str, where: str
) -> StackFacts:
    """stack: what stands before a layer's number. ConfigError where the layers can't be counted."""
    values = _find_text(config, stack)
    text = ModelConfig(values, _find_config_spec(values, spec), where=where)
    num_layers = _count_layers(text, moe)
    try:
        layers = moe.sparse_layers.find(text.fill_in(), num_layers)
    except IndexError as exc:
        raise ConfigError(
            where,
            f"{moe.sparse_layers.types_key} has fewer entries than there are layers",
            expected=f"{num_layers} of them",
        ) from exc
    return StackFacts(values, text, layers, num_layers)


def _find_text(config: Mapping[str, Any], stack: str) -> Mapping[str, Any]:
    """The part of a config that describes a stack's decoder: `talker.` has `talker_config`."""
    for part in stack.split("."):
        inner = config.get(f"{part}_config")
        if part and isinstance(inner, Mapping):
            return _find_text(inner, "")
    for name in ("text_config", "llm_config", "language_config", "thinker_config"):
        if isinstance(config.get(name), Mapping):
            return _find_text(config[name], "")
    return config


def _find_config_spec(values: Mapping[str, Any], spec: ModelSpec) -> ConfigSpec:
    """The defaults of the text decoder's own type where it is registered, else of the model's."""
    name = find_model_type(values)
    own = get_spec(name).config_spec if name is not None else None
    return own or spec.config_spec or ConfigSpec(defaults={})


def _count_layers(config: ModelConfig, moe: MoESpec) -> int:
    for name in ("num_layers", "num_hidden_layers", "n_layer", "n_layers"):
        if config.get(name, None) is not None:
            return config.get_size(name)
    types = config.get(moe.sparse_layers.types_key, None) if moe.sparse_layers.types_key else None
    if isinstance(types, (list, tuple, str)) and types:
        return len(types)
    raise ConfigError(
        config.where, "num_hidden_layers isn't there", expected="the number of layers"
    )
