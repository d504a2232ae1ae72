"""ExportSpec: what the export of quantized checkpoints needs to know about a model type."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ExportSpec", "PqsFuseRule", "attention_fuse_rule", "mlp_fuse_rule"]


@dataclass(frozen=True, kw_only=True)
class PqsFuseRule:
    """Where an AWQ pre_quant_scale of one linear can be folded into another.

    module_names: classes that hold both. fold_into: the linear whose output rows take the scale;
    fold_from: the linear whose input channels it belongs to. Between the two, every channel must
    pass linearly (an activation of something else may multiply it).
    """

    module_names: tuple[str, ...]
    fold_into: str
    fold_from: str


@dataclass(frozen=True, kw_only=True)
class ExportSpec:
    """Facts and policy of the export.

    grouped_expert_export: experts may be exported as one list for each linear.
    weight_plus_one_norm_names: classes of norms that store w - 1.
    """

    grouped_expert_export: bool = False
    pqs_fuse_rules: tuple[PqsFuseRule, ...] = ()
    weight_plus_one_norm_names: tuple[str, ...] = ()


def attention_fuse_rule(*module_names: str, output: str = "o_proj") -> PqsFuseRule:
    """The output projection's scale goes into v: attention is linear in the values."""
    return PqsFuseRule(module_names=module_names, fold_into="v_proj", fold_from=output)


def mlp_fuse_rule(
    *module_names: str, into: str = "up_proj", source: str = "down_proj"
) -> PqsFuseRule:
    """The down projection's scale goes into up: a gated unit is linear in it."""
    return PqsFuseRule(module_names=module_names, fold_into=into, fold_from=source)
