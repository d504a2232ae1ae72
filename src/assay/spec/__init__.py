"""What is known about a model: frozen data, one registry, and its resolution against a config."""

from assay.spec.config import NEUTRAL_KEYS, ModelConfig
from assay.spec.model_spec import ConfigSpec, ModelSpec, RuntimeSpec, TextPart, WeightsSpec
from assay.spec.registry import find_nearest_types, get_spec, get_specs, register
from assay.spec.resolve import resolve_decoder
from assay.spec.resolved_model import ResolvedModel, resolve_model
from assay.spec.vocabulary import DecoderPlan

__all__ = [
    "NEUTRAL_KEYS",
    "ConfigSpec",
    "DecoderPlan",
    "ModelConfig",
    "ModelSpec",
    "ResolvedModel",
    "RuntimeSpec",
    "TextPart",
    "WeightsSpec",
    "find_nearest_types",
    "get_spec",
    "get_specs",
    "register",
    "resolve_decoder",
    "resolve_model",
]
