"""What is known about a model: frozen data, one registry, its resolution and its look-ups."""

from assay.spec.config import NEUTRAL_KEYS, ModelConfig
from assay.spec.expert_files import ExpertFilesFound, ExpertGroup, group_expert_tensors
from assay.spec.expert_names import (
    UnsupportedExpertsError,
    get_expert_linear_names,
    get_experts_list,
)
from assay.spec.export_section import ExportSpec, PqsFuseRule
from assay.spec.gate_up import sync_moe_gate_up_amax
from assay.spec.matching import (
    find_model_type,
    is_moe,
    list_all_possible,
    match_moe_block,
)
from assay.spec.model_spec import ConfigSpec, ModelSpec, RuntimeSpec, TextPart, WeightsSpec
from assay.spec.moe import ExpertFiles, ExpertLayout, MoESpec
from assay.spec.observed import ObservedLayout, observed_expert_layout
from assay.spec.registry import (
    BrokenSpecError,
    find_nearest_types,
    get_broken_types,
    get_spec,
    get_specs,
    register,
)
from assay.spec.resolve import resolve_decoder
from assay.spec.resolved_model import ResolvedModel, resolve_model
from assay.spec.vocabulary import DecoderPlan

__all__ = [
    "NEUTRAL_KEYS",
    "BrokenSpecError",
    "ConfigSpec",
    "DecoderPlan",
    "ExpertFiles",
    "ExpertFilesFound",
    "ExpertGroup",
    "ExpertLayout",
    "ExportSpec",
    "MoESpec",
    "ModelConfig",
    "ModelSpec",
    "ObservedLayout",
    "PqsFuseRule",
    "ResolvedModel",
    "RuntimeSpec",
    "TextPart",
    "UnsupportedExpertsError",
    "WeightsSpec",
    "find_model_type",
    "find_nearest_types",
    "get_broken_types",
    "get_expert_linear_names",
    "get_experts_list",
    "get_spec",
    "get_specs",
    "group_expert_tensors",
    "is_moe",
    "list_all_possible",
    "match_moe_block",
    "observed_expert_layout",
    "register",
    "resolve_decoder",
    "resolve_model",
    "sync_moe_gate_up_amax",
]
