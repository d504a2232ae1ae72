"""hy_v4_vl: the experts of hy_v4_vl_text (spec/families)."""

from __future__ import annotations

from assay.spec import ModelSpec, register
from assay.spec.families.hy_v4_vl import HY_V4_VL_MOE

register(
    ModelSpec(
        model_type="hy_v4_vl",
        architectures=("HYV4VLForConditionalGeneration",),
        min_transformers_version="5.24.0",
        moe_spec=HY_V4_VL_MOE,
    )
)
