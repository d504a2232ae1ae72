"""hy_v3: float32 sigmoids, a bias on the block, always normalized."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.markers import key
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    fused_files,
    per_expert_files,
    shared,
    sigmoid_router,
    times,
)

register(
    ModelSpec(
        model_type="hy_v3",
        architectures=("HYV3ForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 1536,
                "num_experts": 192,
                "num_experts_per_tok": 8,
                "num_shared_experts": 1,
                "router_scaling_factor": 2.826,
            },
            aliases={"num_local_experts": "num_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("HYV3MoE",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=sigmoid_router(
                choice_bias="e_score_correction_bias",
                groups=None,
                normalize="sum",
                scale=key("router_scaling_factor"),
            ),
            experts=experts("num_experts"),
            files=(
                per_expert_files(
                    renames=(
                        ("mlp.gate", "mlp.router.gate"),
                        ("mlp.e_score_correction_bias", "mlp.expert_bias"),
                        ("mlp.shared_experts", "mlp.shared_mlp"),
                    )
                ),
                fused_files(),
            ),
            shared=shared("shared_experts", times("moe_intermediate_size", "num_shared_experts")),
            sparse_layers=SparseLayers(types_key="mlp_layer_types", first_dense=1),
        ),
    )
)
