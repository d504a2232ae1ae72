"""qwen4_exp: the experts of qwen4_exp_text (spec/families)."""

from __future__ import annotations

from assay.spec import ExportSpec, ModelSpec, register
from assay.spec.families.qwen4_exp import QWEN4_EXP_MOE

register(
    ModelSpec(
        model_type="qwen4_exp",
        architectures=("Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration"),
        min_transformers_version="5.24.0",
        moe_spec=QWEN4_EXP_MOE,
        export_spec=ExportSpec(weight_plus_one_norm_names=("Qwen4ExpTextRMSNorm",)),
    )
)
