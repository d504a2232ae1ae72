"""gemma4: the experts of gemma4_text (spec/families)."""

from __future__ import annotations

from assay.spec import ExportSpec, ModelSpec, register
from assay.spec.families.gemma4 import GEMMA4_MOE

register(
    ModelSpec(
        model_type="gemma4",
        architectures=("Gemma4ForConditionalGeneration",),
        min_transformers_version="5.24.0",
        moe_spec=GEMMA4_MOE,
        export_spec=ExportSpec(grouped_expert_export=True),
    )
)
