"""ernie4_5_vl_moe_text: one block for text tokens, one for vision tokens, ernie4_5_moe's router."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.families.ernie4_5_vl_moe import ERNIE4_5_VL_MOE_MOE

register(
    ModelSpec(
        model_type="ernie4_5_vl_moe_text",
        architectures=("Ernie4_5_VLMoeForConditionalGeneration",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": [1536, 512],
                "moe_k": 6,
                "moe_norm_min": 1e-12,
                "moe_num_experts": 64,
            },
            aliases={"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"},
        ),
        moe_spec=ERNIE4_5_VL_MOE_MOE,
    )
)
