"""muse_spark: the experts of muse_spark_text (spec/families)."""

from __future__ import annotations

from assay.spec import ExportSpec, ModelSpec, register
from assay.spec.families.muse_spark import MUSE_SPARK_MOE

register(
    ModelSpec(
        model_type="muse_spark",
        architectures=("MuseSparkForConditionalGeneration",),
        min_transformers_version="5.24.0",
        moe_spec=MUSE_SPARK_MOE,
        export_spec=ExportSpec(
            weight_plus_one_norm_names=(
                "MuseSparkTextCenteredRMSNorm",
                "MuseSparkTextInputScaledRMSNorm",
            )
        ),
    )
)
