"""hunyuan_v1_moe: float32 softmax, normalized; a shared MLP as wide as an expert."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.experts import Experts
from assay.spec.markers import key
from assay.spec.moe import MoESpec
from assay.spec.moe_patterns import (
    GATE_UP,
    ITERABLE_THEN_FUSED,
    LLAMA_NAMES,
    by_layer_or_same,
    per_expert_or_fused,
    shared,
    softmax_router,
)
from assay.spec.vocabulary import Linear

register(
    ModelSpec(
        model_type="hunyuan_v1_moe",
        architectures=("HunYuanMoEV1ForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "intermediate_size": 11008,
                "moe_topk": 1,
                "num_experts": 1,
            },
            aliases={"num_experts_per_tok": "moe_topk", "num_local_experts": "num_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("HunYuanMoEV1Moe",),
            expert_linear_names=LLAMA_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ITERABLE_THEN_FUSED,
            router=softmax_router(
                linear=Linear(name="gate.wg"), top_k=by_layer_or_same("moe_topk"), normalize="sum"
            ),
            experts=Experts(
                count=by_layer_or_same("num_experts"),
                width=key("intermediate_size"),
                activation=key("hidden_act"),
            ),
            files=per_expert_or_fused(),
            shared=shared("shared_mlp", "intermediate_size"),
        ),
    )
)
