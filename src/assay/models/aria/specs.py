"""aria: the experts of aria_text (spec/families)."""

from __future__ import annotations

from assay.spec import ModelSpec, register
from assay.spec.families.aria import ARIA_MOE

register(
    ModelSpec(
        model_type="aria",
        architectures=("AriaForConditionalGeneration",),
        moe_spec=ARIA_MOE,
    )
)
