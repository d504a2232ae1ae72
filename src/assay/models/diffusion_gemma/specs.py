"""diffusion_gemma: gemma4_text's experts, in the encoder's and the decoder's layers."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.markers import key
from assay.spec.moe import MoESpec
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    ONLY_FUSED,
    experts,
    fused_files,
    shared,
    softmax_router,
)
from assay.spec.vocabulary import Linear, Norm

register(
    ModelSpec(
        model_type="diffusion_gemma",
        architectures=("DiffusionGemmaForBlockDiffusion",),
        min_transformers_version="5.24.0",
        # Of its text decoder, whose type isn't registered.
        config_spec=ConfigSpec(
            defaults={
                "hidden_activation": "gelu_pytorch_tanh",
                "intermediate_size": 9216,
                "moe_intermediate_size": None,
                "num_experts": None,
                "rms_norm_eps": 1e-06,
                "top_k_experts": None,
            }
        ),
        moe_spec=MoESpec(
            block_names=("DiffusionGemmaEncoderTextLayer", "DiffusionGemmaDecoderTextLayer"),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=softmax_router(
                linear=Linear(name="router.proj"),
                top_k=key("top_k_experts"),
                reads="stream",
                norm=Norm(name=None, kind="rms", eps=key("rms_norm_eps"), weight=False),
                channel_scale="router.scale",
                normalize="sum",
                expert_scale="router.per_expert_scale",
            ),
            experts=experts("num_experts", activation=key("hidden_activation")),
            files=(fused_files(""),),
            shared=shared("mlp", "intermediate_size", outside=True),
        ),
    )
)
