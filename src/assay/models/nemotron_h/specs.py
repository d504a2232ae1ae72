"""nemotron_h: DeepSeek-V3's router; experts without a gate, squared ReLU."""

from __future__ import annotations

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, register
from assay.spec.experts import LowRank
from assay.spec.markers import key, rule
from assay.spec.moe import ExpertFiles, ExpertLayout, MoESpec, SparseLayers
from assay.spec.moe_patterns import UNGATED, experts, shared, sigmoid_router
from assay.spec.resolve import Context
from assay.spec.vocabulary import Linear


def _latent(context: Context) -> LowRank | None:
    """Experts work on a projection where the config gives it a width."""
    if context.config.get("moe_latent_size") is None:
        return None
    return LowRank(
        down=Linear(name="fc1_latent_proj"),
        up=Linear(name="fc2_latent_proj"),
        width=key("moe_latent_size"),
    )


UNGATED_ITERABLE = ExpertLayout(kind="iterable", has_gate=False)


register(
    ModelSpec(
        model_type="nemotron_h",
        architectures=("NemotronHForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "layers_block_type": None,
                "mlp_hidden_act": "relu2",
                "moe_intermediate_size": 7688,
                "moe_latent_size": None,
                "moe_shared_expert_intermediate_size": 7688,
                "n_group": 1,
                "n_routed_experts": 8,
                "norm_topk_prob": True,
                "num_experts_per_tok": 2,
                "routed_scaling_factor": 1.0,
                "topk_group": 1,
            },
            aliases={
                "layer_types": "layers_block_type",
                "num_local_experts": "n_routed_experts",
            },
        ),
        moe_spec=MoESpec(
            block_names=("NemotronHMoE",),
            expert_linear_names=("up_proj", "down_proj"),
            gate_up_pair=None,
            layouts=(("remote_code", UNGATED_ITERABLE), ("5.24.0", UNGATED)),
            router=sigmoid_router(),
            experts=experts(
                "n_routed_experts",
                activation=key("mlp_hidden_act"),
                gated=False,
                latent=rule(_latent),
            ),
            files=(
                ExpertFiles(
                    gate_up=("mixer.experts.{expert}.up_proj.weight",),
                    down="mixer.experts.{expert}.down_proj.weight",
                    layout=UNGATED_ITERABLE,
                ),
                ExpertFiles(
                    gate_up=("mixer.experts.up_proj",),
                    down="mixer.experts.down_proj",
                    layout=UNGATED,
                ),
            ),
            shared=shared("shared_experts", "moe_shared_expert_intermediate_size", gated=False),
            sparse_layers=SparseLayers(types_key="layers_block_type", types=("moe",)),
        ),
        export_spec=ExportSpec(grouped_expert_export=True),
    )
)
