"""A config.json turned into a model: its spec, its text part, its decoder's plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from assay.errors import ConfigError, UnknownArchitectureError
from assay.spec.config import ModelConfig
from assay.spec.model_spec import ConfigSpec, ModelSpec, WeightsSpec
from assay.spec.registry import get_spec
from assay.spec.resolve import resolve_decoder
from assay.spec.vocabulary import DecoderPlan

__all__ = ["ResolvedModel", "resolve_model"]


@dataclass(frozen=True)
class ResolvedModel:
    """What a config says through its spec.

    spec: of the root model_type. text_config: the config of the text decoder (the root's own
    where there is no nesting). weights_specs: from the root to the text part.
    """

    spec: ModelSpec
    plan: DecoderPlan
    text_config: Mapping[str, Any]
    weights_specs: tuple[WeightsSpec, ...]
    genai_model_type: str


def resolve_model(
    config: Mapping[str, Any], *, where: str, ignored_config_keys: Collection[str] = ()
) -> ResolvedModel:
    """Resolve a parsed config.json.

    where: names the file in errors. ignored_config_keys: unknown keys that the user vouches for.
    Raises UnknownArchitectureError, or ConfigError for a key or value that we can't honour.
    """
    spec = _find_spec(config)
    if spec.text_part is not None:
        return _resolve_text_part(spec, config, where, ignored_config_keys)
    if spec.decoder_spec is None or spec.runtime_spec is None:
        raise UnknownArchitectureError(
            f"model_type {spec.model_type!r}",
            "it can't be exported yet: its spec holds facts, and no decoder section",
            next_step="`assay models list` shows which types can be exported.",
        )
    assert spec.config_spec is not None
    model_config = ModelConfig(config, spec.config_spec, where=where)
    plan = resolve_decoder(spec.decoder_spec, model_config)
    model_config.check_all_read(ignored=ignored_config_keys)
    return ResolvedModel(
        spec, plan, config, (spec.weights_spec,), spec.runtime_spec.genai_model_type
    )


def _find_spec(config: Mapping[str, Any]) -> ModelSpec:
    spec = get_spec(str(config.get("model_type")))
    for key, other in spec.becomes:
        if key in config:
            return get_spec(other)
    return spec


def _resolve_text_part(
    spec: ModelSpec, config: Mapping[str, Any], where: str, ignored: Collection[str]
) -> ResolvedModel:
    """Resolve the text decoder inside a larger model's config."""
    assert spec.text_part is not None
    part = spec.text_part
    outer = ModelConfig(config, spec.config_spec or ConfigSpec(defaults={}), where=where)
    nested = outer.get(part.config_key, None)
    if not isinstance(nested, Mapping):
        raise ConfigError(
            where, f"{part.config_key} is {nested!r}", expected="the text decoder's config"
        )
    # Whether the head is tied is the outer model's say where the inner config leaves it out.
    text_config = {"tie_word_embeddings": outer.get("tie_word_embeddings", True), **nested}
    text_config["model_type"] = part.model_type
    outer.check_all_read(ignored=ignored)
    inner = resolve_model(
        text_config, where=f"{where}, {part.config_key}", ignored_config_keys=ignored
    )
    tokens = {
        key: config[key]
        for key in ("bos_token_id", "eos_token_id", "pad_token_id")
        if config.get(key) is not None
    }
    return ResolvedModel(
        spec,
        inner.plan,
        {**inner.text_config, **tokens},
        (spec.weights_spec, *inner.weights_specs),
        inner.genai_model_type,
    )
