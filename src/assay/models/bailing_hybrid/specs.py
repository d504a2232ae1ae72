"""bailing_hybrid: DeepSeek-V3's experts under other config names."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.experts import RouterGroups
from assay.spec.markers import key, when
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
        model_type="bailing_hybrid",
        architectures=("BailingHybridForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "first_k_dense_replace": 2,
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 768,
                "moe_renormalize": True,
                "num_expert_group": 8,
                "num_experts": 512,
                "num_experts_per_token": 8,
                "num_shared_experts": 1,
                "routed_scaling_factor": 2.5,
                "topk_group": 4,
            },
            aliases={
                "norm_topk_prob": "moe_renormalize",
                "n_group": "num_expert_group",
                "num_local_experts": "num_experts",
                "num_experts_per_tok": "num_experts_per_token",
                "n_shared_experts": "num_shared_experts",
            },
        ),
        moe_spec=MoESpec(
            block_names=("BailingHybridMoE",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=sigmoid_router(
                top_k=key("num_experts_per_token"),
                groups=RouterGroups(count=key("num_expert_group"), keep=key("topk_group")),
                normalize=when(key("moe_renormalize"), "sum", "none"),
            ),
            experts=experts("num_experts"),
            files=(
                per_expert_files(
                    renames=(("mlp.gate.e_score_correction_bias", "mlp.gate.expert_bias"),)
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
