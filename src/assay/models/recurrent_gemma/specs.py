"""recurrent_gemma: norms that store w - 1; recurrent layers, no decoder section yet."""

from assay.spec import ExportSpec, ModelSpec, register

register(
    ModelSpec(
        model_type="recurrent_gemma",
        architectures=("RecurrentGemmaForCausalLM",),
        export_spec=ExportSpec(weight_plus_one_norm_names=("RecurrentGemmaRMSNorm",)),
    )
)
