"""glm4_moe_lite: DeepSeek-V3's experts."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    per_expert_or_fused,
    shared,
    sigmoid_router,
    times,
)

register(
    ModelSpec(
        model_type="glm4_moe_lite",
        architectures=("Glm4MoeLiteForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 1536,
                "n_group": 1,
                "n_routed_experts": 64,
                "n_shared_experts": 1,
                "norm_topk_prob": True,
                "num_experts_per_tok": 4,
                "routed_scaling_factor": 1.8,
                "topk_group": 1,
            },
            aliases={"num_local_experts": "n_routed_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("Glm4MoeLiteMoE",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=sigmoid_router(),
            experts=experts("n_routed_experts"),
            files=per_expert_or_fused(),
            shared=shared("shared_experts", times("moe_intermediate_size", "n_shared_experts")),
            sparse_layers=SparseLayers(types_key="mlp_layer_types", first_dense=1),
        ),
    )
)
