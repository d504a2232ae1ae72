"""mellum: softmax over all experts, normalized where the config says so."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.markers import key, when
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    per_expert_or_fused,
    softmax_router,
)

register(
    ModelSpec(
        model_type="mellum",
        architectures=("MellumForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 896,
                "norm_topk_prob": True,
                "num_experts_per_tok": 8,
                "num_local_experts": 64,
            },
            aliases={"num_experts": "num_local_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("MellumSparseMoeBlock",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=softmax_router(normalize=when(key("norm_topk_prob"), "sum", "none")),
            experts=experts("num_local_experts"),
            files=per_expert_or_fused(),
            sparse_layers=SparseLayers(types_key="mlp_layer_types"),
        ),
    )
)
