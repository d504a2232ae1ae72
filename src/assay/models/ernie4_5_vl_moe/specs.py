"""ernie4_5_vl_moe: the experts of ernie4_5_vl_moe_text (spec/families)."""

from __future__ import annotations

from assay.spec import ModelSpec, register
from assay.spec.families.ernie4_5_vl_moe import ERNIE4_5_VL_MOE_MOE

register(
    ModelSpec(
        model_type="ernie4_5_vl_moe",
        architectures=("Ernie4_5_VLMoeForConditionalGeneration",),
        min_transformers_version="5.24.0",
        moe_spec=ERNIE4_5_VL_MOE_MOE,
    )
)
