"""minimax_m3_vl: the experts of minimax_m3_vl_text (spec/families)."""

from __future__ import annotations

from assay.spec import ExportSpec, ModelSpec, register
from assay.spec.families.minimax_m3_vl import MINIMAX_M3_VL_MOE

register(
    ModelSpec(
        model_type="minimax_m3_vl",
        architectures=("MiniMaxM3SparseForConditionalGeneration",),
        min_transformers_version="5.24.0",
        moe_spec=MINIMAX_M3_VL_MOE,
        export_spec=ExportSpec(weight_plus_one_norm_names=("MiniMaxM3VLRMSNorm",)),
    )
)
