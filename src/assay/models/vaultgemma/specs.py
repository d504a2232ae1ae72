"""vaultgemma: norms that store w - 1; no decoder section yet."""

from assay.spec import ExportSpec, ModelSpec, register

register(
    ModelSpec(
        model_type="vaultgemma",
        architectures=("VaultGemmaForCausalLM",),
        export_spec=ExportSpec(weight_plus_one_norm_names=("VaultGemmaRMSNorm",)),
    )
)
