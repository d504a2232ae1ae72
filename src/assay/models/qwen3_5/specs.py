"""qwen3_5: norms that store w - 1; no decoder section yet."""

from assay.spec import ExportSpec, ModelSpec, register

register(
    ModelSpec(
        model_type="qwen3_5",
        architectures=("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"),
        min_transformers_version="5.24.0",
        export_spec=ExportSpec(weight_plus_one_norm_names=("Qwen3_5RMSNorm",)),
    )
)
