"""llama4: the experts of llama4_text (spec/families)."""

from __future__ import annotations

from assay.spec import ModelSpec, register
from assay.spec.families.llama4 import LLAMA4_MOE

register(
    ModelSpec(
        model_type="llama4",
        architectures=("Llama4ForCausalLM", "Llama4ForConditionalGeneration"),
        moe_spec=LLAMA4_MOE,
    )
)
