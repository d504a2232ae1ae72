"""deepseek_ocr2: the experts of deepseek_ocr2_text (spec/families)."""

from __future__ import annotations

from assay.spec import ModelSpec, register
from assay.spec.families.deepseek_ocr2 import DEEPSEEK_OCR2_MOE

register(
    ModelSpec(
        model_type="deepseek_ocr2",
        architectures=("DeepseekOcr2ForConditionalGeneration",),
        min_transformers_version="5.24.0",
        moe_spec=DEEPSEEK_OCR2_MOE,
    )
)
