"""laguna: soft-capped logits, sigmoids, a bias for the choice, always normalized."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.markers import key, rule
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    fused_files,
    per_expert_files,
    shared,
    sigmoid_router,
)
from assay.spec.resolve import Context


def _softcap(context: Context) -> float | None:
    return context.config.get("moe_router_logit_softcapping") or None


register(
    ModelSpec(
        model_type="laguna",
        architectures=("LagunaForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 512,
                "moe_routed_scaling_factor": 1.0,
                "moe_router_logit_softcapping": 0.0,
                "num_experts": 256,
                "num_experts_per_tok": 8,
                "shared_expert_intermediate_size": 512,
            }
        ),
        moe_spec=MoESpec(
            block_names=("LagunaSparseMoeBlock",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=sigmoid_router(
                softcap=rule(_softcap),
                groups=None,
                normalize="sum",
                normalize_eps=0.0,
                scale=key("moe_routed_scaling_factor"),
                scale_on="sum",
                math="scores",
            ),
            experts=experts("num_experts"),
            files=(
                per_expert_files(
                    renames=(
                        ("mlp.gate.e_score_correction_bias", "mlp.experts.e_score_correction_bias"),
                        ("mlp.shared_experts", "mlp.shared_expert"),
                    )
                ),
                fused_files(),
            ),
            shared=shared("shared_experts", "shared_expert_intermediate_size"),
            sparse_layers=SparseLayers(types_key="mlp_layer_types", first_dense=1),
        ),
    )
)
