"""qwen3_omni_moe: the experts of qwen3_omni_moe_text (spec/families), and the talker's blocks."""

from __future__ import annotations

import dataclasses

from assay.spec import ModelSpec, register
from assay.spec.families.qwen3_omni_moe import QWEN3_OMNI_MOE_MOE

register(
    ModelSpec(
        model_type="qwen3_omni_moe",
        architectures=("Qwen3OmniMoeForConditionalGeneration",),
        moe_spec=dataclasses.replace(
            QWEN3_OMNI_MOE_MOE,
            block_names=(
                "Qwen3OmniMoeThinkerTextSparseMoeBlock",
                "Qwen3OmniMoeTalkerTextSparseMoeBlock",
            ),
        ),
    )
)
