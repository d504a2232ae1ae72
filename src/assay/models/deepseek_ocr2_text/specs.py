"""deepseek_ocr2_text: DeepSeek-V2's experts behind a vision encoder."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.families.deepseek_ocr2 import DEEPSEEK_OCR2_MOE

register(
    ModelSpec(
        model_type="deepseek_ocr2_text",
        architectures=("DeepseekOcr2TextModel",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 1407,
                "n_group": None,
                "n_routed_experts": 64,
                "n_shared_experts": 2,
                "num_experts_per_tok": None,
                "routed_scaling_factor": 1.0,
                "topk_group": None,
                "topk_method": "greedy",
            },
            aliases={"num_experts": "n_routed_experts"},
        ),
        moe_spec=DEEPSEEK_OCR2_MOE,
    )
)
