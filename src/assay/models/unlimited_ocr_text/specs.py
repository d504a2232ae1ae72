"""unlimited_ocr_text: DeepSeek-V2's experts behind a vision encoder."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.families.unlimited_ocr import UNLIMITED_OCR_MOE

register(
    ModelSpec(
        model_type="unlimited_ocr_text",
        architectures=("UnlimitedOcrTextModel",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 896,
                "n_group": 1,
                "n_routed_experts": 64,
                "n_shared_experts": 2,
                "num_experts_per_tok": 6,
                "routed_scaling_factor": 1.0,
                "topk_group": 1,
                "topk_method": "greedy",
            },
            aliases={"num_experts": "n_routed_experts"},
        ),
        moe_spec=UNLIMITED_OCR_MOE,
    )
)
