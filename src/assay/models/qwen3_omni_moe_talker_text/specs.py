"""qwen3_omni_moe_talker_text: the talker's experts, in every layer, and a gated shared one."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.markers import key, when
from assay.spec.moe import MoESpec
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
                "hidden_act": "silu",
                "moe_intermediate_size": 384,
                "norm_topk_prob": False,
                "num_experts_per_tok": 8,
                "num_local_experts": 128,
            },
            aliases={"num_experts": "num_local_experts"},
            neutral=dict.fromkeys(
                ("decoder_sparse_step", "mlp_only_layers"), "every layer of the talker has experts"
            ),
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
        ),
    )
)
