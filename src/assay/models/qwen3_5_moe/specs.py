"""qwen3_5_moe: the experts of qwen3_5_moe_text (spec/families)."""

from __future__ import annotations

from assay.spec import ExportSpec, ModelSpec, register
from assay.spec.families.qwen3_5_moe import QWEN3_5_MOE_MOE

register(
    ModelSpec(
        model_type="qwen3_5_moe",
        architectures=("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"),
        min_transformers_version="5.24.0",
        moe_spec=QWEN3_5_MOE_MOE,
        export_spec=ExportSpec(weight_plus_one_norm_names=("Qwen3_5MoeRMSNorm",)),
    )
)
