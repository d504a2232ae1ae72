"""mistral_large4: the experts of mistral_large4_text (spec/families)."""

from __future__ import annotations

from assay.spec import ModelSpec, register
from assay.spec.families.mistral_large4 import MISTRAL_LARGE4_MOE

register(
    ModelSpec(
        model_type="mistral_large4",
        architectures=("MistralLarge4ForConditionalGeneration",),
        min_transformers_version="5.24.0",
        moe_spec=MISTRAL_LARGE4_MOE,
    )
)
