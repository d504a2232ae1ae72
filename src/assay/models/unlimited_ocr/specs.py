"""unlimited_ocr: the experts of unlimited_ocr_text (spec/families)."""

from __future__ import annotations

from assay.spec import ModelSpec, register
from assay.spec.families.unlimited_ocr import UNLIMITED_OCR_MOE

register(
    ModelSpec(
        model_type="unlimited_ocr",
        architectures=("UnlimitedOcrForConditionalGeneration",),
        min_transformers_version="5.24.0",
        moe_spec=UNLIMITED_OCR_MOE,
    )
)
