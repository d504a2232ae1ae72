"""qwen3_vl_moe_text: softmax over all experts, always normalized; files hold [in, out]."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.families.qwen3_vl_moe import QWEN3_VL_MOE_MOE

register(
    ModelSpec(
        model_type="qwen3_vl_moe_text",
        architectures=("Qwen3VLMoeTextModel",),
        config_spec=ConfigSpec(
            defaults={
                "decoder_sparse_step": 1,
                "hidden_act": "silu",
                "mlp_only_layers": [],
                "moe_intermediate_size": 1408,
                "num_experts_per_tok": 4,
                "num_local_experts": 60,
            },
            aliases={"num_experts": "num_local_experts"},
        ),
        moe_spec=QWEN3_VL_MOE_MOE,
    )
)
