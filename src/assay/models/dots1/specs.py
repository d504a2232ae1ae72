"""dots1: DeepSeek-V3's experts."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    GATE_UP,
    ITERABLE_THEN_FUSED,
    LLAMA_NAMES,
    experts,
    per_expert_or_fused,
    shared,
    sigmoid_router,
    times,
)

register(
    ModelSpec(
        model_type="dots1",
        architectures=("Dots1ForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "first_k_dense_replace": 0,
                "hidden_act": "silu",
                "moe_intermediate_size": 1408,
                "n_group": 1,
                "n_routed_experts": None,
                "n_shared_experts": None,
                "norm_topk_prob": False,
                "num_experts_per_tok": None,
                "routed_scaling_factor": 1.0,
                "topk_group": 1,
            },
            aliases={"num_local_experts": "n_routed_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("Dots1MoE",),
            expert_linear_names=LLAMA_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ITERABLE_THEN_FUSED,
            router=sigmoid_router(),
            experts=experts("n_routed_experts"),
            files=per_expert_or_fused(),
            shared=shared("shared_experts", times("moe_intermediate_size", "n_shared_experts")),
            sparse_layers=SparseLayers(first_dense_key="first_k_dense_replace"),
        ),
    )
)
