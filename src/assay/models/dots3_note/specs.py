"""dots3_note: the experts of dots3_note_text (spec/families)."""

from __future__ import annotations

from assay.spec import ModelSpec, register
from assay.spec.families.dots3_note import DOTS3_NOTE_MOE

register(
    ModelSpec(
        model_type="dots3_note",
        architectures=("Dots3NoteForCausalLM", "Dots3NoteForConditionalGeneration"),
        min_transformers_version="5.24.0",
        moe_spec=DOTS3_NOTE_MOE,
    )
)
