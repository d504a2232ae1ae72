"""t5gemma2: an encoder and decoder whose norms store w - 1."""

from assay.spec import ExportSpec, ModelSpec, register

register(
    ModelSpec(
        model_type="t5gemma2",
        architectures=("T5Gemma2ForConditionalGeneration",),
        min_transformers_version="5.24.0",
        export_spec=ExportSpec(weight_plus_one_norm_names=("T5Gemma2RMSNorm",)),
    )
)
