"""minimax_m3_vl_text: sigmoids, a bias for the choice; clamped experts with up + 1."""

from __future__ import annotations

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, register
from assay.spec.families.minimax_m3_vl import MINIMAX_M3_VL_MOE

register(
    ModelSpec(
        model_type="minimax_m3_vl_text",
        architectures=("MiniMaxM3VLForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "intermediate_size": 3072,
                "mlp_layer_types": None,
                "num_experts_per_tok": 4,
                "num_local_experts": 128,
                "routed_scaling_factor": 2.0,
                "shared_intermediate_size": 3072,
                "swiglu_alpha": 1.702,
                "swiglu_limit": 7.0,
            },
            aliases={"num_experts": "num_local_experts"},
        ),
        moe_spec=MINIMAX_M3_VL_MOE,
        export_spec=ExportSpec(weight_plus_one_norm_names=("MiniMaxM3VLRMSNorm",)),
    )
)
