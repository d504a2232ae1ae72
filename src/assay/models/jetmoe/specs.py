"""jetmoe: the best logits, then their softmax; attention has experts too."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.markers import key
from assay.spec.moe import FUSED, ExpertFiles, MoESpec
from assay.spec.moe_patterns import GATE_UP, experts, softmax_router
from assay.spec.vocabulary import Linear

register(
    ModelSpec(
        model_type="jetmoe",
        architectures=("JetMoeForCausalLM",),
        config_spec=ConfigSpec(
            defaults={
                "activation_function": "silu",
                "intermediate_size": 5632,
                "num_experts_per_tok": 2,
                "num_local_experts": 8,
            }
        ),
        moe_spec=MoESpec(
            block_names=("JetMoeMoE",),
            expert_linear_names=("input_linear", "output_linear"),
            gate_up_pair=GATE_UP,
            layouts=(("4.57.0", FUSED),),
            router=softmax_router(linear=Linear(name="router.layer"), order="choose_first"),
            experts=experts(
                "num_local_experts",
                "intermediate_size",
                activation=key("activation_function"),
                output_bias="bias",
            ),
            files=(
                ExpertFiles(
                    gate_up=("mlp.input_linear.weight",),
                    down="mlp.output_linear.weight",
                    layout=FUSED,
                ),
            ),
        ),
    )
)
