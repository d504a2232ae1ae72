"""afmoe: sigmoid scores with a bias on the block, always normalized, a plain shared expert."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.markers import key
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    per_expert_or_fused,
    shared,
    sigmoid_router,
    times,
)
from assay.spec.vocabulary import Linear

register(
    ModelSpec(
        model_type="afmoe",
        architectures=("AfmoeForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "moe_intermediate_size": 1408,
                "num_dense_layers": 1,
                "num_experts": 64,
                "num_experts_per_tok": 6,
                "num_shared_experts": 2,
                "route_scale": 1.0,
            }
        ),
        moe_spec=MoESpec(
            block_names=("AfmoeSparseMoeBlock",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=sigmoid_router(
                linear=Linear(name="router.gate"),
                choice_bias="expert_bias",
                groups=None,
                normalize="sum",
                scale=key("route_scale"),
                math="scores",
            ),
            experts=experts("num_experts"),
            files=per_expert_or_fused(),
            shared=shared("shared_experts", times("moe_intermediate_size", "num_shared_experts")),
            sparse_layers=SparseLayers(first_dense_key="num_dense_layers"),
        ),
    )
)
