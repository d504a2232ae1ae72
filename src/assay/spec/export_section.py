"""ExportSpec: what the export of quantized checkpoints needs to know about a model type."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ExportSpec", "PqsFuseRule"]


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
