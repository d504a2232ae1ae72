"""qwen3_omni_moe: the experts of qwen3_omni_moe_text (spec/families)."""

from __future__ import annotations

from assay.spec import ModelSpec, register
from assay.spec.families.qwen3_omni_moe import QWEN3_OMNI_MOE_MOE

register(
    ModelSpec(
        model_type="qwen3_omni_moe",
        architectures=("Qwen3OmniMoeForConditionalGeneration",),
        moe_spec=QWEN3_OMNI_MOE_MOE,
    )
)
