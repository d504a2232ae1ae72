"""sarvam_moe: the experts of glm4_moe (spec/families)."""

from __future__ import annotations

import dataclasses

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.families.glm4_moe import GLM4_MOE_MOE
from assay.spec.moe_patterns import fused_files, per_expert_files

register(
    ModelSpec(
        model_type="sarvam_moe",
        architectures=("Glm4MoeForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "first_k_dense_replace": 1,
                "hidden_act": "silu",
                "moe_intermediate_size": 1024,
                "n_group": 1,
                "n_routed_experts": 128,
                "n_shared_experts": 1,
                "norm_topk_prob": True,
                "num_experts_per_tok": 6,
                "routed_scaling_factor": 2.5,
                "topk_group": 1,
            },
            aliases={
                "num_local_experts": "n_routed_experts",
                "num_experts": "n_routed_experts",
                "num_shared_experts": "n_shared_experts",
            },
        ),
        moe_spec=dataclasses.replace(
            GLM4_MOE_MOE,
            files=(
                per_expert_files(
                    renames=(("mlp.gate.e_score_correction_bias", "mlp.gate.expert_bias"),)
                ),
                fused_files(),
            ),
        ),
    )
)
