"""arctic: its code comes with the checkpoint; a dense MLP stands beside the experts."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.moe import ITERABLE, MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    MIXTRAL_NAMES,
    W1_W3,
    experts,
    per_expert_or_fused,
    softmax_router,
)

register(
    ModelSpec(
        model_type="arctic",
        architectures=("ArcticForCausalLM",),
        modeling_source="remote_code",
        min_transformers_version="",
        config_spec=ConfigSpec(
            defaults={
                "num_local_experts": 8,
                "num_experts_per_tok": 1,
                "intermediate_size": 14336,
                "hidden_act": "silu",
                "moe_layer_frequency": 2,
            }
        ),
        moe_spec=MoESpec(
            block_names=("ArcticMoE",),
            expert_linear_names=MIXTRAL_NAMES,
            gate_up_pair=W1_W3,
            layouts=(("remote_code", ITERABLE),),
            router=softmax_router(normalize="sum"),
            experts=experts("num_local_experts", "intermediate_size"),
            files=per_expert_or_fused("block_sparse_moe", MIXTRAL_NAMES),
            sparse_layers=SparseLayers(step_key="moe_layer_frequency"),
        ),
    )
)
