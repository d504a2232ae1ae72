"""glm4_moe: DeepSeek-V3's experts."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.families.glm4_moe import GLM4_MOE_MOE

register(
    ModelSpec(
        model_type="glm4_moe",
        architectures=("Glm4MoeForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "first_k_dense_replace": 1,
                "hidden_act": "silu",
                "moe_intermediate_size": 1408,
                "n_group": 1,
                "n_routed_experts": 128,
                "n_shared_experts": 1,
                "norm_topk_prob": True,
                "num_experts_per_tok": 8,
                "routed_scaling_factor": 1.0,
                "topk_group": 1,
            },
            aliases={"num_local_experts": "n_routed_experts"},
        ),
        moe_spec=GLM4_MOE_MOE,
    )
)
