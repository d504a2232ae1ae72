"""inkling2_loop_text: inkling2_text's experts."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.families.inkling2_loop import INKLING2_LOOP_MOE

register(
    ModelSpec(
        model_type="inkling2_loop_text",
        architectures=("Inkling2LoopForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "mlp_gate_softcap": 4.0,
                "mlp_up_softcap": 25.0,
                "moe_intermediate_size": 1152,
                "n_routed_experts": 128,
                "num_experts_per_tok": 8,
                "route_scale": 8.0,
                "scoring_func": "sigmoid",
            },
            aliases={
                "num_local_experts": "n_routed_experts",
                "intermediate_size": "moe_intermediate_size",
                "routed_scaling_factor": "route_scale",
            },
        ),
        moe_spec=INKLING2_LOOP_MOE,
    )
)
