"""muse_spark_text: sigmoids of scaled logits; experts on a projection, each normed."""

from __future__ import annotations

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, register
from assay.spec.families.muse_spark import MUSE_SPARK_MOE

register(
    ModelSpec(
        model_type="muse_spark_text",
        architectures=("MuseSparkTextModel",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_hidden_size": 4096,
                "moe_intermediate_size": 4096,
                "num_experts_per_tok": 8,
                "num_local_experts": 256,
                "output_multiplier": 0.1767766952966369,
                "post_norm_eps": 1e-08,
                "rms_norm_eps": 1e-05,
                "routed_scaling_factor": 1.0,
            }
        ),
        moe_spec=MUSE_SPARK_MOE,
        export_spec=ExportSpec(
            weight_plus_one_norm_names=(
                "MuseSparkTextCenteredRMSNorm",
                "MuseSparkTextInputScaledRMSNorm",
            )
        ),
    )
)
