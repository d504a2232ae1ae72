"""t5gemma: an encoder and decoder whose norms store w - 1."""

from assay.spec import ExportSpec, ModelSpec, register

register(
    ModelSpec(
        model_type="t5gemma",
        architectures=("T5GemmaForConditionalGeneration",),
        export_spec=ExportSpec(weight_plus_one_norm_names=("T5GemmaRMSNorm",)),
    )
)
