"""axk2: DeepSeek-V3's experts, in groups only where the config has them."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.experts import RouterGroups
from assay.spec.markers import key, rule
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
from assay.spec.resolve import Context


def _groups(context: Context) -> RouterGroups | None:
    """Groups only where the config names them; the scores of the others become 0."""
    if context.config.get("n_group") is None:
        return None
    return RouterGroups(count=key("n_group"), keep=key("topk_group"), masked="zero")


register(
    ModelSpec(
        model_type="axk2",
        architectures=("AXK2ForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 512,
                "n_group": None,
                "n_routed_experts": 128,
                "n_shared_experts": 1,
                "norm_topk_prob": True,
                "num_experts_per_tok": 8,
                "routed_scaling_factor": 2.5,
                "topk_group": None,
            },
            aliases={"num_local_experts": "n_routed_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("AXK2MoE",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=sigmoid_router(groups=rule(_groups)),
            experts=experts("n_routed_experts"),
            files=per_expert_or_fused(),
            shared=shared("shared_experts", times("moe_intermediate_size", "n_shared_experts")),
            sparse_layers=SparseLayers(
                types_key="mlp_layer_types", first_dense_key="first_k_dense_replace", first_dense=1
            ),
        ),
    )
)
