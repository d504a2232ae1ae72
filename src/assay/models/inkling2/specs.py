"""inkling2: the experts of inkling2_text (spec/families)."""

from __future__ import annotations

from assay.spec import ModelSpec, register
from assay.spec.families.inkling2 import INKLING2_MOE

register(
    ModelSpec(
        model_type="inkling2",
        architectures=("Inkling2ForConditionalGeneration",),
        min_transformers_version="5.24.0",
        moe_spec=INKLING2_MOE,
    )
)
