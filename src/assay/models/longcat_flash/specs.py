"""longcat_flash: float32 softmax over experts and identities, never normalized."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.markers import key
from assay.spec.moe import MoESpec
from assay.spec.moe_patterns import (
    GATE_UP,
    ITERABLE_THEN_FUSED,
    LLAMA_NAMES,
    experts,
    per_expert_or_fused,
    softmax_router,
)
from assay.spec.vocabulary import Linear

register(
    ModelSpec(
        model_type="longcat_flash",
        architectures=("LongcatFlashForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "expert_ffn_hidden_size": 2048,
                "hidden_act": "silu",
                "moe_topk": 12,
                "n_routed_experts": 512,
                "routed_scaling_factor": 6.0,
                "zero_expert_num": 256,
            },
            aliases={
                "num_local_experts": "n_routed_experts",
                "num_experts_per_tok": "moe_topk",
                "moe_intermediate_size": "expert_ffn_hidden_size",
            },
        ),
        moe_spec=MoESpec(
            block_names=("LongcatFlashMoE",),
            expert_linear_names=LLAMA_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ITERABLE_THEN_FUSED,
            router=softmax_router(
                linear=Linear(name="router.classifier"),
                top_k=key("moe_topk"),
                choice_bias="router.e_score_correction_bias",
                scale=key("routed_scaling_factor"),
                math="float32",
            ),
            experts=experts(
                "n_routed_experts",
                "expert_ffn_hidden_size",
                null="identity",
                null_count=key("zero_expert_num"),
            ),
            files=per_expert_or_fused(),
        ),
    )
)
