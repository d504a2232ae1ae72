"""gpt_oss: the best logits, then their softmax; gate and up rows alternate; biases; clamped."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.experts import Glu
from assay.spec.markers import key
from assay.spec.moe import ExpertLayout, MoESpec
from assay.spec.moe_patterns import FUSED_NAMES, GATE_UP, experts, fused_files, softmax_router
from assay.spec.vocabulary import Linear

INTERLEAVED = ExpertLayout(kind="fused", is_transposed=True, is_concatenated=False, has_bias=True)
CLAMPED = Glu(
    activation="silu",
    alpha=key("swiglu_alpha"),
    gate_limit=key("swiglu_limit"),
    up_limit=key("swiglu_limit"),
    up_shift=1.0,
)


register(
    ModelSpec(
        model_type="gpt_oss",
        architectures=("GptOssForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "intermediate_size": 2880,
                "num_experts_per_tok": 4,
                "num_local_experts": 128,
                "swiglu_alpha": 1.702,
                "swiglu_limit": 7.0,
            },
            aliases={"num_experts": "num_local_experts"},
        ),
        moe_spec=MoESpec(
            block_names=("GptOssMLP",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=(("4.57.0", INTERLEAVED),),
            router=softmax_router(
                linear=Linear(name="router", bias=True), order="choose_first", math="model"
            ),
            experts=experts(
                "num_local_experts", "intermediate_size", activation=CLAMPED, bias=True
            ),
            files=(fused_files(layout=INTERLEAVED),),
        ),
    )
)
