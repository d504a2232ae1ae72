"""deepseek: the first DeepSeek-MoE, whose code comes with the checkpoint."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.markers import key, when
from assay.spec.moe import ITERABLE, MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    GATE_UP,
    LLAMA_NAMES,
    experts,
    per_expert_or_fused,
    shared,
    softmax_router,
    times,
)

register(
    ModelSpec(
        model_type="deepseek",
        architectures=("DeepseekForCausalLM",),
        modeling_source="remote_code",
        min_transformers_version="",
        config_spec=ConfigSpec(
            defaults={
                "num_experts_per_tok": None,
                "n_routed_experts": None,
                "n_shared_experts": None,
                "moe_intermediate_size": 1407,
                "norm_topk_prob": False,
                "routed_scaling_factor": 1.0,
                "hidden_act": "silu",
                "first_k_dense_replace": 0,
            }
        ),
        moe_spec=MoESpec(
            block_names=("DeepseekMoE",),
            expert_linear_names=LLAMA_NAMES,
            gate_up_pair=GATE_UP,
            layouts=(("remote_code", ITERABLE),),
            router=softmax_router(
                normalize=when(key("norm_topk_prob"), "sum", "none"),
                normalize_eps=1e-20,
                scale=key("routed_scaling_factor"),
            ),
            experts=experts("n_routed_experts"),
            files=per_expert_or_fused(),
            shared=shared("shared_experts", times("moe_intermediate_size", "n_shared_experts")),
            sparse_layers=SparseLayers(first_dense_key="first_k_dense_replace"),
        ),
    )
)
