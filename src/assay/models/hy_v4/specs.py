"""hy_v4: DeepSeek-V3's router, clamped experts, a plain shared expert."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.experts import Glu
from assay.spec.markers import key
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    fused_files,
    shared,
    sigmoid_router,
    times,
)

CLAMPED = Glu(activation="silu", gate_limit=key("swiglu_limit"), up_limit=key("swiglu_limit"))


register(
    ModelSpec(
        model_type="hy_v4",
        architectures=("HYV4ForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 768,
                "n_group": 1,
                "n_routed_experts": 256,
                "n_shared_experts": 1,
                "norm_topk_prob": True,
                "num_experts_per_tok": 8,
                "routed_scaling_factor": 2.827,
                "swiglu_limit": 10.0,
                "topk_group": 1,
            },
            aliases={"num_local_experts": "n_routed_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("HYV4MoE",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=sigmoid_router(),
            experts=experts("n_routed_experts", activation=CLAMPED),
            files=(
                fused_files(
                    renames=(("mlp.shared_experts.gate_proj", "mlp.shared_experts.linear_gate"),)
                ),
            ),
            shared=shared(
                "shared_experts",
                times("moe_intermediate_size", "n_shared_experts"),
                activation=key("hidden_act"),
            ),
            sparse_layers=SparseLayers(types_key="mlp_layer_types", first_dense=1),
        ),
    )
)
