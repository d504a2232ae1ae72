"""llama4_text: the best logits' sigmoids multiply the experts' inputs; stored [in, out]."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.families.llama4 import LLAMA4_MOE

register(
    ModelSpec(
        model_type="llama4_text",
        architectures=("Llama4ForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "interleave_moe_layer_step": 1,
                "intermediate_size": 8192,
                "moe_layers": None,
                "num_experts_per_tok": 1,
                "num_local_experts": 16,
            }
        ),
        moe_spec=LLAMA4_MOE,
    )
)
