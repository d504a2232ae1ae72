"""lfm2_moe: sigmoids in the model's dtype, a bias on the block for the choice."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.markers import key, when
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    MIXTRAL_NAMES,
    ONLY_FUSED,
    experts,
    per_expert_or_fused,
    sigmoid_router,
)

register(
    ModelSpec(
        model_type="lfm2_moe",
        architectures=("Lfm2MoeForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "moe_intermediate_size": 1792,
                "norm_topk_prob": True,
                "num_dense_layers": 2,
                "num_experts": 32,
                "num_experts_per_tok": 4,
                "routed_scaling_factor": 1.0,
                "use_expert_bias": True,
            }
        ),
        moe_spec=MoESpec(
            block_names=("Lfm2MoeSparseMoeBlock",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=sigmoid_router(
                choice_bias=when(key("use_expert_bias"), "expert_bias", None),
                groups=None,
                normalize=when(key("norm_topk_prob"), "sum", "none"),
                normalize_eps=1e-6,
                math="model",
            ),
            experts=experts("num_experts", activation="silu"),
            files=per_expert_or_fused("feed_forward", MIXTRAL_NAMES),
            sparse_layers=SparseLayers(first_dense_key="num_dense_layers"),
        ),
    )
)
