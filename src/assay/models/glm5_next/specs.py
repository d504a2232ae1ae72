"""glm5_next: the experts of glm5_next_text (spec/families)."""

from __future__ import annotations

from assay.spec import ModelSpec, register
from assay.spec.families.glm5_next import GLM5_NEXT_MOE

register(
    ModelSpec(
        model_type="glm5_next",
        architectures=("Glm5NextForConditionalGeneration",),
        min_transformers_version="5.24.0",
        moe_spec=GLM5_NEXT_MOE,
    )
)
