"""cohere2_moe: the best logits, then softmax or sigmoid; shared experts added or averaged."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.experts import SharedExpert
from assay.spec.markers import key, rule, when
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    per_expert_or_fused,
    shared,
    softmax_router,
    times,
)
from assay.spec.resolve import Context


def _shared(context: Context) -> SharedExpert | None:
    """None where the config counts no shared experts."""
    if not context.config.get("num_shared_experts"):
        return None
    means = context.config.get("shared_expert_combination_strategy") == "average"
    width = times("intermediate_size", "num_shared_experts")
    return shared("shared_experts", width, combine="mean" if means else "add")


register(
    ModelSpec(
        model_type="cohere2_moe",
        architectures=("Cohere2MoeForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "expert_selection_fn": "softmax",
                "hidden_act": "silu",
                "intermediate_size": 22528,
                "mlp_layer_types": None,
                "norm_topk_prob": True,
                "num_experts": 8,
                "num_experts_per_tok": 2,
                "num_shared_experts": 0,
                "shared_expert_combination_strategy": "average",
            }
        ),
        moe_spec=MoESpec(
            block_names=("Cohere2MoeSparseMoeBlock",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=softmax_router(
                score=key("expert_selection_fn"),
                order="choose_first",
                normalize=when(key("norm_topk_prob"), "sum", "none"),
                math="model",
            ),
            experts=experts("num_experts", "intermediate_size"),
            files=per_expert_or_fused(),
            shared=rule(_shared),
            sparse_layers=SparseLayers(
                types_key="mlp_layer_types", first_dense_key="first_k_dense_replace"
            ),
        ),
    )
)
