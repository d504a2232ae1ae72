"""qwen4_exp_text: softmax over all experts; a shared expert with a gate of its own."""

from __future__ import annotations

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, register
from assay.spec.families.qwen4_exp import QWEN4_EXP_MOE

register(
    ModelSpec(
        model_type="qwen4_exp_text",
        architectures=("Qwen4ExpForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "moe_intermediate_size": 512,
                "norm_topk_prob": True,
                "num_experts": 512,
                "num_experts_per_tok": 10,
                "shared_expert_intermediate_size": 512,
            }
        ),
        moe_spec=QWEN4_EXP_MOE,
        export_spec=ExportSpec(weight_plus_one_norm_names=("Qwen4ExpTextRMSNorm",)),
    )
)
