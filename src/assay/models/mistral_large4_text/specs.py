"""mistral_large4_text: float32 softmax, groups, always normalized."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.families.mistral_large4 import MISTRAL_LARGE4_MOE

register(
    ModelSpec(
        model_type="mistral_large4_text",
        architectures=("MistralLarge4TextModel",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "first_k_dense_replace": 1,
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 6144,
                "n_group": 1,
                "n_routed_experts": 128,
                "n_shared_experts": 1,
                "num_experts_per_tok": 4,
                "routed_scaling_factor": 1.0,
                "topk_group": 1,
            },
            aliases={"num_local_experts": "n_routed_experts"},
        ),
        moe_spec=MISTRAL_LARGE4_MOE,
    )
)
