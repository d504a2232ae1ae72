"""gemma3: a vision tower and a projector around gemma3_text; the text part is exported."""

from assay.spec import ConfigSpec, ExportSpec, ModelSpec, TextPart, WeightsSpec, register
from assay.spec.export_section import attention_fuse_rule, mlp_fuse_rule

_VISION = "the vision part; only the text decoder is exported"

register(
    ModelSpec(
        model_type="gemma3",
        architectures=("Gemma3ForConditionalGeneration",),
        config_spec=ConfigSpec(
            # Files of the first release leave the head out and rely on the class: always tied.
            defaults={"tie_word_embeddings": True},
            neutral={
                "vision_config": _VISION,
                "mm_tokens_per_image": _VISION,
                "boi_token_index": _VISION,
                "eoi_token_index": _VISION,
                "image_token_index": _VISION,
                "image_token_id": _VISION,
                "boi_token_id": _VISION,
                "eoi_token_id": _VISION,
            },
        ),
        weights_spec=WeightsSpec(
            renames=(
                ("language_model.model.", "model."),
                ("model.language_model.", "model."),
                ("language_model.lm_head.", "lm_head."),
            ),
            ignored=(
                ("vision_tower.*", _VISION),
                ("model.vision_tower.*", _VISION),
                ("multi_modal_projector.*", _VISION),
                ("model.multi_modal_projector.*", _VISION),
            ),
        ),
        export_spec=ExportSpec(
            pqs_fuse_rules=(attention_fuse_rule("Gemma3Attention"), mlp_fuse_rule("Gemma3MLP")),
            weight_plus_one_norm_names=("Gemma3RMSNorm",),
        ),
        text_part=TextPart(model_type="gemma3_text"),
    )
)
