"""inkling_text: chosen and shared experts share one normalization and a learned scale."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.families.inkling import INKLING_MOE

register(
    ModelSpec(
        model_type="inkling_text",
        architectures=("InklingForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 3072,
                "n_routed_experts": 256,
                "n_shared_experts": 2,
                "num_experts_per_tok": 6,
                "route_scale": 8.0,
            },
            aliases={"num_local_experts": "n_routed_experts"},
        ),
        moe_spec=INKLING_MOE,
    )
)
