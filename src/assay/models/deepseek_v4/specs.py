"""deepseek_v4: experts by token id in the first layers, by sqrt(softplus) scores after; clamped."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.experts import Glu, HashRouter
from assay.spec.markers import key, rule
from assay.spec.moe import MoESpec
from assay.spec.moe_patterns import (
    FUSED_NAMES,
    GATE_UP,
    MIXTRAL_NAMES,
    ONLY_FUSED,
    W_SHARED,
    experts,
    fused_files,
    per_expert_files,
    shared,
    sigmoid_router,
)
from assay.spec.resolve import Context

CLAMPED = Glu(
    activation=key("hidden_act"), gate_limit=key("swiglu_limit"), up_limit=key("swiglu_limit")
)


def _score(context: Context) -> str:
    name = context.config.get("scoring_func")
    return "sqrt_softplus" if name == "sqrtsoftplus" else str(name)


register(
    ModelSpec(
        model_type="deepseek_v4",
        architectures=("DeepseekV4ForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 2048,
                "n_routed_experts": 256,
                "num_experts_per_tok": 6,
                "routed_scaling_factor": 1.5,
                "scoring_func": "sqrtsoftplus",
                "swiglu_limit": 10.0,
            },
            aliases={
                "num_local_experts": "n_routed_experts",
                "intermediate_size": "moe_intermediate_size",
            },
        ),
        moe_spec=MoESpec(
            block_names=("DeepseekV4SparseMoeBlock",),
            expert_linear_names=FUSED_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ONLY_FUSED,
            router=HashRouter(
                table="gate.tid2eid",
                layer_types_key="mlp_layer_types",
                hashed="hash_moe",
                by_score=sigmoid_router(
                    score=rule(_score), groups=None, normalize="sum", math="model"
                ),
            ),
            experts=experts("n_routed_experts", activation=CLAMPED),
            files=(
                per_expert_files(
                    "ffn",
                    MIXTRAL_NAMES,
                    module="mlp",
                    renames=(*W_SHARED, ("mlp.gate.e_score_correction_bias", "ffn.gate.bias")),
                ),
                fused_files(),
            ),
            shared=shared("shared_experts", "moe_intermediate_size"),
        ),
    )
)
