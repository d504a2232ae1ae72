"""flex_olmo: softmax over all experts, normalized where the config says so."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.markers import key, when
from assay.spec.moe import MoESpec
from assay.spec.moe_patterns import (
    GATE_UP,
    ITERABLE_THEN_FUSED,
    LLAMA_NAMES,
    experts,
    per_expert_or_fused,
    softmax_router,
)

register(
    ModelSpec(
        model_type="flex_olmo",
        architectures=("FlexOlmoForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "intermediate_size": 11008,
                "norm_topk_prob": False,
                "num_experts": 7,
                "num_experts_per_tok": 5,
            },
            aliases={"num_local_experts": "num_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("FlexOlmoSparseMoeBlock",),
            expert_linear_names=LLAMA_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ITERABLE_THEN_FUSED,
            router=softmax_router(normalize=when(key("norm_topk_prob"), "sum", "none")),
            experts=experts("num_experts", "intermediate_size"),
            files=per_expert_or_fused(),
        ),
    )
)
