"""qwen3_5_text: norms that store w - 1; no decoder section yet."""

from assay.spec import ExportSpec, ModelSpec, register

register(
    ModelSpec(
        model_type="qwen3_5_text",
        architectures=("Qwen3_5ForCausalLM",),
        min_transformers_version="5.24.0",
        export_spec=ExportSpec(weight_plus_one_norm_names=("Qwen3_5RMSNorm",)),
    )
)
