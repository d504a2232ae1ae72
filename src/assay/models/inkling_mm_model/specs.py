"""inkling_mm_model: the experts of inkling_text (spec/families)."""

from __future__ import annotations

from assay.spec import ModelSpec, register
from assay.spec.families.inkling import INKLING_MOE

register(
    ModelSpec(
        model_type="inkling_mm_model",
        architectures=("InklingForConditionalGeneration",),
        min_transformers_version="5.24.0",
        moe_spec=INKLING_MOE,
    )
)
