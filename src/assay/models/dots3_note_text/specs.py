"""dots3_note_text: DeepSeek-V3's experts; the shared ones have a width of their own."""

from __future__ import annotations

from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.families.dots3_note import DOTS3_NOTE_MOE

register(
    ModelSpec(
        model_type="dots3_note_text",
        architectures=("Dots3NoteForCausalLM",),
        min_transformers_version="5.24.0",
        config_spec=ConfigSpec(
            defaults={
                "hidden_act": "silu",
                "mlp_layer_types": None,
                "moe_intermediate_size": 1536,
                "n_group": 1,
                "n_routed_experts": 256,
                "n_shared_experts": 1,
                "norm_topk_prob": True,
                "num_experts_per_tok": 8,
                "routed_scaling_factor": 1.0,
                "shared_experts_intermediate_size": 1536,
                "topk_group": 1,
            },
            aliases={"num_local_experts": "n_routed_experts"},
        ),
        moe_spec=DOTS3_NOTE_MOE,
    )
)
