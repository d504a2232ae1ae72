"""qwen2_moe: softmax over all experts; a shared expert with a gate of its own."""

from __future__ import annotations

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, register
from assay.spec.export_section import attention_fuse_rule, mlp_fuse_rule
from assay.spec.markers import key, when
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    GATE_UP,
    ITERABLE_THEN_FUSED,
    LLAMA_NAMES,
    experts,
    gated_shared,
    per_expert_or_fused,
    softmax_router,
)

register(
    ModelSpec(
        model_type="qwen2_moe",
        architectures=("Qwen2MoeForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "decoder_sparse_step": 1,
                "hidden_act": "silu",
                "mlp_only_layers": [],
                "moe_intermediate_size": 1408,
                "norm_topk_prob": False,
                "num_experts": 60,
                "num_experts_per_tok": 4,
                "shared_expert_intermediate_size": 5632,
            }
        ),
        moe_spec=MoESpec(
            block_names=("Qwen2MoeSparseMoeBlock",),
            expert_linear_names=LLAMA_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ITERABLE_THEN_FUSED,
            router=softmax_router(normalize=when(key("norm_topk_prob"), "sum", "none")),
            experts=experts("num_experts"),
            files=per_expert_or_fused(),
            shared=gated_shared(),
            sparse_layers=SparseLayers(dense_key="mlp_only_layers", step_key="decoder_sparse_step"),
        ),
        export_spec=ExportSpec(
            grouped_expert_export=True,
            pqs_fuse_rules=(attention_fuse_rule("Qwen2MoeAttention"), mlp_fuse_rule("Qwen2MoeMLP")),
        ),
    )
)
