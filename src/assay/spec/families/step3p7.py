"""step3p5: sigmoids, a bias for the choice; the activated gate is clamped.

Shared by the model types step3p5, step3p7.
"""

from __future__ import annotations

from typing import Any

from assay.spec.experts import Glu
from assay.spec.markers import key, rule
from assay.spec.moe import ExpertFiles, ExpertLayout, MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    fused_files,
    shared,
    sigmoid_router,
)
from assay.spec.resolve import Context

__all__ = ["STEP3P7_MOE"]


def _limits(key_name: str) -> Any:
    """The layer's clamp, or None: 0 and a missing list mean that nothing is clamped."""

    def limit(context: Context) -> float | None:
        limits = context.config.get(key_name)
        assert context.layer_index is not None
        return limits[context.layer_index] or None if limits else None

    limit.__name__ = f"the layer's entry in {key_name}"
    return rule(limit)


def _clamped(key_name: str) -> Glu:
    return Glu(
        activation=key("hidden_act"),
        gate_limit=_limits(key_name),
        up_limit=_limits(key_name),
        limit_as="after",
    )


STACKED_FILES = ExpertFiles(
    gate_up=("moe.gate_proj.weight", "moe.up_proj.weight"),
    down="moe.down_proj.weight",
    layout=ExpertLayout(kind="fused"),
    renames=(
        ("mlp.gate.e_score_correction_bias", "moe.router_bias"),
        ("mlp.gate", "moe.gate"),
        ("mlp.shared_experts", "share_expert"),
    ),
)


STEP3P7_MOE = MoESpec(
    block_names=("Step3p7SparseMoeBlock",),
    expert_linear_names=FUSED_NAMES,
    gate_up_pair=GATE_UP,
    layouts=ONLY_FUSED,
    router=sigmoid_router(
        groups=None,
        normalize="sum",
        normalize_eps=0.0,
        scale=key("moe_router_scaling_factor"),
        scale_on="sum",
        math="scores",
    ),
    experts=experts("n_routed_experts", activation=_clamped("swiglu_limits")),
    files=(
        STACKED_FILES,
        fused_files(),
    ),
    shared=shared(
        "shared_experts", "share_expert_dim", activation=_clamped("swiglu_limits_shared")
    ),
    sparse_layers=SparseLayers(types_key="mlp_layer_types", first_dense=3),
)
