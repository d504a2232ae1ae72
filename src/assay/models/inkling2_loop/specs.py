"""inkling2_loop: the experts of inkling2_loop_text (spec/families)."""

from __future__ import annotations

from assay.spec import ModelSpec, register
from assay.spec.families.inkling2_loop import INKLING2_LOOP_MOE

register(
    ModelSpec(
        model_type="inkling2_loop",
        architectures=("Inkling2LoopForConditionalGeneration",),
        min_transformers_version="5.24.0",
        moe_spec=INKLING2_LOOP_MOE,
    )
)
