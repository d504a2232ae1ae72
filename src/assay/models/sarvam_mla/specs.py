"""sarvam_mla: the experts of deepseek_v3 (spec/families)."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.families.deepseek_v3 import DEEPSEEK_V3_MOE

register(
    ModelSpec(
        model_type="sarvam_mla",
        architectures=("DeepseekV3ForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "first_k_dense_replace": 1,
                "hidden_act": "silu",
                "moe_intermediate_size": 2048,
                "n_group": 1,
                "n_routed_experts": 128,
                "n_shared_experts": 1,
                "norm_topk_prob": True,
                "num_experts_per_tok": 8,
                "routed_scaling_factor": 2.5,
                "topk_group": 1,
            },
            aliases={
                "num_local_experts": "n_routed_experts",
                "num_experts": "n_routed_experts",
                "num_shared_experts": "n_shared_experts",
            },
        ),
        moe_spec=DEEPSEEK_V3_MOE,
    )
)
