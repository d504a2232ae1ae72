"""ModelSpec: everything that assay knows about one Hugging Face model_type, as frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from assay.spec.export_section import ExportSpec
from assay.spec.moe import MoESpec
from assay.spec.vocabulary import Decoder

__all__ = [
    "ConfigSpec",
    "ExportSpec",
    "MoESpec",
    "ModelSpec",
    "RuntimeSpec",
    "TextPart",
    "WeightsSpec",
]

_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class ConfigSpec:
    """How to read the model's config.json.

    defaults: the config class's own defaults, for keys that a file leaves out.
    aliases: accepted spelling -> the spelling used here (transformers' attribute_map, inverted
    where needed).
    neutral: keys that don't change what the decoder computes, with the reason.
    only: keys that we support with these values alone; any other value is refused.
    """

    defaults: Mapping[str, Any]
    aliases: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    neutral: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: _EMPTY)


@dataclass(frozen=True, kw_only=True)
class WeightsSpec:
    """Where the tensors of a checkpoint file stand.

    renames: (prefix in the file, prefix of the module path), tried in order.
    ignored: (pattern over module paths, reason) for tensors that the decoder doesn't need.
    """

    renames: tuple[tuple[str, str], ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class RuntimeSpec:
    """What a runtime calls this model: `model.type` of genai_config.json."""

    genai_model_type: str


@dataclass(frozen=True, kw_only=True)
class TextPart:
    """A model whose text decoder is another registered type inside a nested config."""

    model_type: str
    config_key: str = "text_config"


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """All facts about one `model_type`; a section that is None has nothing to say.

    model_type: config.model_type, the key of the registry.
    becomes: (config key, model type): a file of this type that has the key is of the other type.
    architectures: class names in config.architectures.
    modeling_source: where the reference implementation lives.
    min_transformers_version: the first release known to have it ("" for remote code).
    moe_spec: None for a dense model. export_spec: None where there is nothing to say.
    """

    model_type: str
    architectures: tuple[str, ...]
    becomes: tuple[tuple[str, str], ...] = ()
    modeling_source: Literal["transformers", "remote_code"] = "transformers"
    min_transformers_version: str = "4.57.0"
    config_spec: ConfigSpec | None = None
    weights_spec: WeightsSpec = WeightsSpec()
    decoder_spec: Decoder | None = None
    moe_spec: MoESpec | None = None
    export_spec: ExportSpec | None = None
    runtime_spec: RuntimeSpec | None = None
    text_part: TextPart | None = None
