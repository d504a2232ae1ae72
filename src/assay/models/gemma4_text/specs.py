"""gemma4_text: router and experts in the layer, beside a dense MLP."""

from __future__ import annotations

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, register
from assay.spec.families.gemma4 import GEMMA4_MOE

register(
    ModelSpec(
        model_type="gemma4_text",
        architectures=("Gemma4ForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "enable_moe_block": False,
                "hidden_activation": "gelu_pytorch_tanh",
                "intermediate_size": 9216,
                "moe_intermediate_size": None,
                "num_experts": None,
                "rms_norm_eps": 1e-06,
                "top_k_experts": None,
            }
        ),
        moe_spec=GEMMA4_MOE,
        export_spec=ExportSpec(grouped_expert_export=True),
    )
)
