"""mistral4: softmax in the model's dtype, groups, normalized where the config says so."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.experts import RouterGroups
from assay.spec.markers import key, when
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    fused_files,
    per_expert_files,
    shared,
    softmax_router,
    times,
)

register(
    ModelSpec(
        model_type="mistral4",
        architectures=("Mistral4ForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "first_k_dense_replace": 0,
                "hidden_act": "silu",
                "moe_intermediate_size": 2048,
                "n_group": 1,
                "n_routed_experts": 128,
                "n_shared_experts": 1,
                "norm_topk_prob": True,
                "num_experts_per_tok": 4,
                "routed_scaling_factor": 1.0,
                "topk_group": 1,
            },
            aliases={"num_local_experts": "n_routed_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("Mistral4MoE",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=softmax_router(
                groups=RouterGroups(count=key("n_group"), keep=key("topk_group")),
                normalize=when(key("norm_topk_prob"), "sum", "none"),
                normalize_eps=1e-20,
                scale=key("routed_scaling_factor"),
                math="model",
            ),
            experts=experts("n_routed_experts"),
            files=(
                fused_files(),
                per_expert_files(),
            ),
            shared=shared("shared_experts", times("moe_intermediate_size", "n_shared_experts")),
            sparse_layers=SparseLayers(first_dense_key="first_k_dense_replace"),
        ),
    )
)
