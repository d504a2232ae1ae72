"""deepseek_v3: float32 sigmoids, a bias for the choice, groups by their two best experts."""

from __future__ import annotations

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, register
from assay.spec.families.deepseek_v3 import DEEPSEEK_V3_MOE

register(
    ModelSpec(
        model_type="deepseek_v3",
        architectures=("DeepseekV3ForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "first_k_dense_replace": 3,
                "hidden_act": "silu",
                "moe_intermediate_size": 2048,
                "n_group": 8,
                "n_routed_experts": 256,
                "n_shared_experts": 1,
                "norm_topk_prob": True,
                "num_experts_per_tok": 8,
                "routed_scaling_factor": 2.5,
                "topk_group": 4,
            },
            aliases={"num_local_experts": "n_routed_experts"},
        ),
        moe_spec=DEEPSEEK_V3_MOE,
        export_spec=ExportSpec(grouped_expert_export=True),
    )
)
