"""step3p5: sigmoids, a bias for the choice; the activated gate is clamped."""

from __future__ import annotations

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, register
from assay.spec.families.step3p7 import STEP3P7_MOE

register(
    ModelSpec(
        model_type="step3p5",
        architectures=("Step3p7TextModel",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 1280,
                "moe_router_scaling_factor": 1.0,
                "n_routed_experts": 288,
                "num_experts_per_tok": 8,
                "share_expert_dim": 1280,
                "swiglu_limits": None,
                "swiglu_limits_shared": None,
            },
            aliases={
                "num_local_experts": "n_routed_experts",
                "moe_num_experts": "n_routed_experts",
                "moe_top_k": "num_experts_per_tok",
                "share_expert_dims": "share_expert_dim",
            },
        ),
        moe_spec=STEP3P7_MOE,
        export_spec=ExportSpec(weight_plus_one_norm_names=("Step3p7RMSNorm",)),
    )
)
