"""step3p7: the experts of step3p5 (spec/families)."""

from __future__ import annotations

from assay.spec import ExportSpec, ModelSpec, register
from assay.spec.families.step3p7 import STEP3P7_MOE

register(
    ModelSpec(
        model_type="step3p7",
        architectures=("Step3p7ForConditionalGeneration",),
        min_transformers_version="5.24.0",
        moe_spec=STEP3P7_MOE,
        export_spec=ExportSpec(weight_plus_one_norm_names=("Step3p7RMSNorm",)),
    )
)
