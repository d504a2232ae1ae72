"""lara_mini: float32 softmax, normalized where the config says so, a plain shared expert."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.markers import key, when
from assay.spec.moe import MoESpec
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    fused_files,
    shared,
    softmax_router,
)

register(
    ModelSpec(
        model_type="lara_mini",
        architectures=("LaraMiniForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "moe_intermediate_size": 512,
                "norm_topk_prob": True,
                "num_experts": 128,
                "num_experts_per_tok": 4,
                "shared_expert_intermediate_size": 512,
            }
        ),
        moe_spec=MoESpec(
            block_names=("LaraMiniSparseMoeBlock",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=softmax_router(
                normalize=when(key("norm_topk_prob"), "sum", "none"), math="float32"
            ),
            experts=experts("num_experts"),
            files=(fused_files(),),
            shared=shared("shared_expert", "shared_expert_intermediate_size"),
        ),
    )
)
