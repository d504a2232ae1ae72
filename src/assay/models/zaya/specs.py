"""zaya: a small MLP routes, fed by the layer before; one expert gives nothing."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.experts import MlpRouter
from assay.spec.markers import key
from assay.spec.moe import MoESpec
from assay.spec.moe_patterns import FUSED_NAMES, GATE_UP, ONLY_FUSED, experts, fused_files
from assay.spec.patterns import rms_norm
from assay.spec.vocabulary import Linear

register(
    ModelSpec(
        model_type="zaya",
        architectures=("ZayaForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "moe_intermediate_size": 2048,
                "num_experts": 16,
                "num_experts_per_tok": 1,
                "rms_norm_eps": 1e-05,
            }
        ),
        moe_spec=MoESpec(
            block_names=("ZayaSparseMoeBlock",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=MlpRouter(
                down=Linear(name="gate.down_proj", bias=True),
                state_scale="gate.router_states_scale",
                norm=rms_norm("gate.router_mlp.norm"),
                layers=(
                    Linear(name="gate.router_mlp.fc1", bias=True),
                    Linear(name="gate.router_mlp.fc2", bias=True),
                ),
                out=Linear(name="gate.router_mlp.out_proj"),
                activation="gelu",
                choice_bias="gate.balancing_biases",
                top_k=key("num_experts_per_tok"),
            ),
            experts=experts("num_experts", null="zero", null_count=1),
            files=(fused_files(),),
        ),
    )
)
