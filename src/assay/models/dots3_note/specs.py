"""dots3_note: the experts of dots3_note_text (spec/families), and the vision tower's blocks."""

from __future__ import annotations

import dataclasses

from assay.spec import ModelSpec, register
from assay.spec.families.dots3_note import DOTS3_NOTE_MOE

register(
    ModelSpec(
        model_type="dots3_note",
        architectures=("Dots3NoteForCausalLM", "Dots3NoteForConditionalGeneration"),
        min_transformers_version="5.24.0",
        moe_spec=dataclasses.replace(
            DOTS3_NOTE_MOE, block_names=("Dots3NoteTextMoE", "Dots3NoteVisionMoE")
        ),
    )
)
