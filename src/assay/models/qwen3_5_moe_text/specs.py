"""qwen3_5_moe_text: softmax over all experts, always normalized; a shared expert with a gate."""

from __future__ import annotations

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, register
from assay.spec.families.qwen3_5_moe import QWEN3_5_MOE_MOE

register(
    ModelSpec(
        model_type="qwen3_5_moe_text",
        architectures=("Qwen3_5MoeForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "moe_intermediate_size": 512,
                "num_experts": 256,
                "num_experts_per_tok": 8,
                "shared_expert_intermediate_size": 512,
            }
        ),
        moe_spec=QWEN3_5_MOE_MOE,
        export_spec=ExportSpec(weight_plus_one_norm_names=("Qwen3_5MoeRMSNorm",)),
    )
)
