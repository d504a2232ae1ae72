"""qwen3_omni_moe_talker_text: the talker's experts, with a shared expert and its gate."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.markers import key, when
from assay.spec.moe import MoESpec, SparseLayers
from assay.spec.moe_patterns import (
    GATE_UP,
    ITERABLE_THEN_FUSED,
    LLAMA_NAMES,
    experts,
    fused_files,
    gated_shared,
    per_expert_files,
    softmax_router,
)

register(
    ModelSpec(
        model_type="qwen3_omni_moe_talker_text",
        architectures=("Qwen3OmniMoeTalkerForConditionalGeneration",),
        config_spec=ConfigSpec(
            defaults={
                "decoder_sparse_step": 1,
                "hidden_act": "silu",
                "mlp_only_layers": [],
                "moe_intermediate_size": 384,
                "norm_topk_prob": False,
                "num_experts_per_tok": 8,
                "num_local_experts": 128,
            },
            aliases={"num_experts": "num_local_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("Qwen3OmniMoeTalkerTextSparseMoeBlock",),
            expert_linear_names=LLAMA_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ITERABLE_THEN_FUSED,
            router=softmax_router(normalize=when(key("norm_topk_prob"), "sum", "none")),
            experts=experts("num_local_experts"),
            files=(per_expert_files(), fused_files()),
            shared=gated_shared(),
            sparse_layers=SparseLayers(dense_key="mlp_only_layers", step_key="decoder_sparse_step"),
        ),
    )
)
