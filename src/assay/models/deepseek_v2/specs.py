"""deepseek_v2: float32 softmax, groups by their best expert, never normalized."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.experts import RouterGroups
from assay.spec.markers import key, rule
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    GATE_UP,
    ITERABLE_THEN_FUSED,
    LLAMA_NAMES,
    experts,
    per_expert_or_fused,
    shared,
    softmax_router,
    times,
)
from assay.spec.resolve import Context


def _groups(context: Context) -> RouterGroups | None:
    """Only group_limited_greedy looks at groups."""
    if context.config.get("topk_method") != "group_limited_greedy":
        return None
    return RouterGroups(count=key("n_group"), keep=key("topk_group"), score="max", masked="zero")


register(
    ModelSpec(
        model_type="deepseek_v2",
        architectures=("DeepseekV2ForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "first_k_dense_replace": 0,
                "hidden_act": "silu",
                "moe_intermediate_size": 1407,
                "n_group": None,
                "n_routed_experts": 64,
                "n_shared_experts": 2,
                "num_experts_per_tok": None,
                "routed_scaling_factor": 1.0,
                "topk_group": None,
                "topk_method": "greedy",
            },
            aliases={"num_experts": "n_routed_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("DeepseekV2Moe",),
            expert_linear_names=LLAMA_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ITERABLE_THEN_FUSED,
            router=softmax_router(
                groups=rule(_groups), scale=key("routed_scaling_factor"), math="float32"
            ),
            experts=experts("n_routed_experts"),
            files=per_expert_or_fused(),
            shared=shared("shared_experts", times("moe_intermediate_size", "n_shared_experts")),
            sparse_layers=SparseLayers(first_dense_key="first_k_dense_replace"),
        ),
    )
)
