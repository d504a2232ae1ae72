"""qwen3_omni_moe_text: the thinker's experts, softmax over all."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.families.qwen3_omni_moe import QWEN3_OMNI_MOE_MOE

register(
    ModelSpec(
        model_type="qwen3_omni_moe_text",
        architectures=("Qwen3OmniMoeThinkerForConditionalGeneration",),
        config_spec=ConfigSpec(
            defaults={
                "decoder_sparse_step": 1,
                "hidden_act": "silu",
                "mlp_only_layers": [],
                "moe_intermediate_size": 768,
                "norm_topk_prob": True,
                "num_experts": 128,
                "num_experts_per_tok": 8,
            }
        ),
        moe_spec=QWEN3_OMNI_MOE_MOE,
    )
)
