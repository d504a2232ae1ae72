"""glm4v_moe: the experts of glm4v_moe_text (spec/families)."""

from __future__ import annotations

from assay.spec import ModelSpec, register
from assay.spec.families.glm4v_moe import GLM4V_MOE_MOE

register(
    ModelSpec(
        model_type="glm4v_moe",
        architectures=("Glm4vMoeForConditionalGeneration",),
        moe_spec=GLM4V_MOE_MOE,
    )
)
