"""phimoe: SparseMixer, twice the best expert among those within a threshold."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.experts import SparseMixer
from assay.spec.markers import key
from assay.spec.moe import MoESpec
from assay.spec.moe_patterns import (
    ITERABLE_THEN_FUSED,
    MIXTRAL_NAMES,
    W1_W3,
    experts,
    fused_files,
    per_expert_files,
)
from assay.spec.vocabulary import Linear

register(
    ModelSpec(
        model_type="phimoe",
        architectures=("PhimoeForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "intermediate_size": 6400,
                "num_local_experts": 16,
                "router_jitter_noise": 0.01,
            },
            neutral={"num_experts_per_tok": "two in any case: SparseMixer has no third"},
        ),
        moe_spec=MoESpec(
            block_names=("PhimoeSparseMoeBlock",),
            expert_linear_names=MIXTRAL_NAMES,
            gate_up_pair=W1_W3,
            layouts=ITERABLE_THEN_FUSED,
            router=SparseMixer(
                linear=Linear(name="router"),
                jitter=key("router_jitter_noise"),
                top_k=2,
            ),
            experts=experts("num_local_experts", "intermediate_size"),
            files=(
                per_expert_files(
                    "block_sparse_moe",
                    MIXTRAL_NAMES,
                    renames=(("mlp.router", "block_sparse_moe.gate"),),
                ),
                fused_files(),
            ),
        ),
    )
)
