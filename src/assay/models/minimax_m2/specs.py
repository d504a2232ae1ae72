"""minimax_m2: sigmoids, a bias on the block for the choice, always normalized."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.moe import MoESpec
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    MIXTRAL_NAMES,
    ONLY_FUSED,
    experts,
    fused_files,
    per_expert_files,
    sigmoid_router,
)

register(
    ModelSpec(
        model_type="minimax_m2",
        architectures=("MiniMaxM2ForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "intermediate_size": 1536,
                "num_experts_per_tok": 8,
                "num_local_experts": 256,
            },
            aliases={"num_experts": "num_local_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("MiniMaxM2SparseMoeBlock",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=sigmoid_router(
                choice_bias="e_score_correction_bias",
                groups=None,
                normalize="sum",
                normalize_eps=0.0,
                scale=1.0,
                math="scores",
            ),
            experts=experts("num_local_experts", "intermediate_size"),
            files=(
                per_expert_files("block_sparse_moe", MIXTRAL_NAMES, module="mlp"),
                fused_files(),
            ),
        ),
    )
)
