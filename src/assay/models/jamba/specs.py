"""jamba: softmax over all experts, never normalized, in every other layer."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    GATE_UP,
    ITERABLE_THEN_FUSED,
    LLAMA_NAMES,
    experts,
    per_expert_or_fused,
    softmax_router,
)
from assay.spec.vocabulary import Linear

register(
    ModelSpec(
        model_type="jamba",
        architectures=("JambaForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "expert_layer_offset": 1,
                "expert_layer_period": 2,
                "hidden_act": "silu",
                "intermediate_size": 14336,
                "num_experts": 16,
                "num_experts_per_tok": 2,
            },
            aliases={"num_local_experts": "num_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("JambaSparseMoeBlock",),
            expert_linear_names=LLAMA_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ITERABLE_THEN_FUSED,
            router=softmax_router(linear=Linear(name="router")),
            experts=experts("num_experts", "intermediate_size"),
            files=per_expert_or_fused("feed_forward"),
            sparse_layers=SparseLayers(
                period_key="expert_layer_period", offset_key="expert_layer_offset"
            ),
        ),
    )
)
