"""axk1: DeepSeek-V3's experts with a norm over routed and shared together."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
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
from assay.spec.patterns import rms_norm

register(
    ModelSpec(
        model_type="axk1",
        architectures=("AXK1ForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 2048,
                "n_group": 8,
                "n_routed_experts": 192,
                "n_shared_experts": 1,
                "norm_topk_prob": True,
                "num_experts_per_tok": 8,
                "rms_norm_eps": 1e-06,
                "routed_scaling_factor": 2.5,
                "topk_group": 4,
            },
            aliases={"num_local_experts": "n_routed_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("AXK1MoE",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=sigmoid_router(),
            experts=experts("n_routed_experts"),
            files=(
                per_expert_files(renames=(("mlp.post_mlp_layernorm", "post_mlp_layernorm"),)),
                fused_files(),
            ),
            shared=shared("shared_experts", times("moe_intermediate_size", "n_shared_experts")),
            sparse_layers=SparseLayers(
                types_key="mlp_layer_types", first_dense_key="first_k_dense_replace", first_dense=1
            ),
            output_norm=rms_norm("post_mlp_layernorm"),
        ),
    )
)
