"""glm5_next_text: DeepSeek-V3's router, clamped experts."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.families.glm5_next import GLM5_NEXT_MOE

register(
    ModelSpec(
        model_type="glm5_next_text",
        architectures=("Glm5NextTextModel",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 2048,
                "n_group": 1,
                "n_routed_experts": 288,
                "n_shared_experts": 1,
                "norm_topk_prob": True,
                "num_experts_per_tok": 8,
                "routed_scaling_factor": 2.5,
                "swiglu_limit": 10.0,
                "topk_group": 1,
            },
            aliases={"num_local_experts": "n_routed_experts"},
        ),
        moe_spec=GLM5_NEXT_MOE,
    )
)
