"""dbrx: flat experts; gate = x w1^T, up = x v1^T, down = h w2, the weights' p-norm made 1."""

from __future__ import annotations

from typing import Any

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.experts import Experts
from assay.spec.markers import or_else, rule
from assay.spec.moe import ExpertFiles, ExpertLayout, MoESpec
from assay.spec.moe_patterns import softmax_router
from assay.spec.resolve import Context
from assay.spec.vocabulary import Linear

FLAT = ExpertLayout(kind="flat")
BY_PROJECTION = ExpertLayout(kind="by_projection")


def _ffn(name: str) -> Any:
    """A value of the nested ffn_config."""

    def read(context: Context) -> Any:
        return context.config.get("ffn_config").get(name, _DEFAULTS[name])

    read.__name__ = f"ffn_config.{name}"
    return rule(read)


def _activation(context: Context) -> str:
    chosen = context.config.get("ffn_config").get("ffn_act_fn") or {}
    return str(chosen.get("name", "silu"))


def _normalize(context: Context) -> str:
    return "none" if context.resolve(_ffn("moe_normalize_expert_weights")) is None else "sum"


_DEFAULTS = {
    "moe_num_experts": 4,
    "moe_top_k": 1,
    "ffn_hidden_size": 3584,
    "moe_normalize_expert_weights": 1.0,
}


register(
    ModelSpec(
        model_type="dbrx",
        architectures=("DbrxForCausalLM",),
        config_spec=ConfigSpec(defaults={"ffn_config": {}}),
        moe_spec=MoESpec(
            block_names=("DbrxFFN",),
            expert_linear_names=("w1_linear", "w2_linear", "v1_linear"),
            gate_up_pair=("w1_linear", "v1_linear"),
            layouts=(("split", BY_PROJECTION), ("4.57.0", FLAT)),
            router=softmax_router(
                linear=Linear(name="router.layer"),
                top_k=_ffn("moe_top_k"),
                normalize=rule(_normalize),
                normalize_power=or_else(_ffn("moe_normalize_expert_weights"), 1.0),
                math="model",
            ),
            experts=Experts(
                count=_ffn("moe_num_experts"),
                width=_ffn("ffn_hidden_size"),
                activation=rule(_activation),
            ),
            files=(
                ExpertFiles(
                    gate_up=("ffn.experts.mlp.w1", "ffn.experts.mlp.v1"),
                    down="ffn.experts.mlp.w2",
                    layout=FLAT,
                ),
            ),
            unsupported="its flat parameters hold all experts, so none has a module of its own",
        ),
    )
)
