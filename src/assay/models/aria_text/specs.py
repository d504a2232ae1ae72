"""aria_text: the best logits, then their softmax; experts stored [in, out]."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.families.aria import ARIA_MOE

register(
    ModelSpec(
        model_type="aria_text",
        architectures=("AriaTextForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "intermediate_size": 4096,
                "moe_num_experts": 8,
                "moe_num_shared_experts": 2,
                "moe_topk": 2,
            }
        ),
        moe_spec=ARIA_MOE,
    )
)
