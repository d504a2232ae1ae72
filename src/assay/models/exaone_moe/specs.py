"""exaone_moe: DeepSeek-V3's experts."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
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
    times,
)

register(
    ModelSpec(
        model_type="exaone_moe",
        architectures=("ExaoneMoeForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "first_k_dense_replace": 1,
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 1024,
                "n_group": 1,
                "norm_topk_prob": True,
                "num_experts": 64,
                "num_experts_per_tok": 8,
                "num_shared_experts": 1,
                "routed_scaling_factor": 2.5,
                "topk_group": 1,
            }
        ),
        moe_spec=MoESpec(
            block_names=("ExaoneMoeSparseMoEBlock",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=sigmoid_router(),
            experts=experts("num_experts"),
            files=(
                per_expert_files(
                    renames=(("mlp.gate.e_score_correction_bias", "mlp.e_score_correction_bias"),)
                ),
                fused_files(),
            ),
            shared=shared("shared_experts", times("moe_intermediate_size", "num_shared_experts")),
            sparse_layers=SparseLayers(
                types_key="mlp_layer_types", first_dense_key="first_k_dense_replace"
            ),
        ),
    )
)
