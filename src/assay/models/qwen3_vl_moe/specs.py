"""qwen3_vl_moe: the experts of qwen3_vl_moe_text (spec/families)."""

from __future__ import annotations

from assay.spec import ModelSpec, register
from assay.spec.families.qwen3_vl_moe import QWEN3_VL_MOE_MOE

register(
    ModelSpec(
        model_type="qwen3_vl_moe",
        architectures=("Qwen3VLMoeForConditionalGeneration",),
        moe_spec=QWEN3_VL_MOE_MOE,
    )
)
