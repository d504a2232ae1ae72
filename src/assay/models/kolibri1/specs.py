"""kolibri1: the bias is added to logits; the chosen logits' sigmoids are the weights."""

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
    per_expert_files,
    shared,
    sigmoid_router,
)

register(
    ModelSpec(
        model_type="kolibri1",
        architectures=("Kolibri1ForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "moe_intermediate_size": 512,
                "norm_topk_prob": False,
                "num_experts_per_tok": 6,
                "num_local_experts": 384,
                "shared_expert_intermediate_size": 512,
            },
            aliases={"num_experts": "num_local_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("Kolibri1SparseMoeBlock",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=sigmoid_router(
                bias_on="logit",
                groups=None,
                normalize=when(key("norm_topk_prob"), "sum", "none"),
                normalize_eps=0.0,
                scale=1.0,
            ),
            experts=experts("num_local_experts"),
            files=(
                per_expert_files(
                    renames=(("mlp.gate.e_score_correction_bias", "moe.router.expert_bias"),)
                ),
                fused_files(),
            ),
            shared=shared("shared_experts", "shared_expert_intermediate_size"),
        ),
    )
)
