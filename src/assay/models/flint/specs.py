"""flint: float32 sigmoids without a bias, a plain shared expert."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.markers import key, when
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    per_expert_or_fused,
    shared,
    softmax_router,
)

register(
    ModelSpec(
        model_type="flint",
        architectures=("FlintForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "decoder_sparse_step": 1,
                "hidden_act": "silu",
                "mlp_only_layers": [0, 1],
                "moe_intermediate_size": 512,
                "norm_topk_prob": True,
                "num_experts": 256,
                "num_experts_per_tok": 6,
                "shared_expert_intermediate_size": 1024,
            }
        ),
        moe_spec=MoESpec(
            block_names=("FlintSparseMoeBlock",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=softmax_router(
                score="sigmoid",
                normalize=when(key("norm_topk_prob"), "sum", "none"),
                math="float32",
            ),
            experts=experts("num_experts"),
            files=per_expert_or_fused(),
            shared=shared("shared_expert", "shared_expert_intermediate_size"),
            sparse_layers=SparseLayers(dense_key="mlp_only_layers", step_key="decoder_sparse_step"),
        ),
    )
)
