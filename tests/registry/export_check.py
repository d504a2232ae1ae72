"""The export section of a spec, on the tiny instance of its type."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from assay.spec import ModelSpec
from assay.spec.export_section import PqsFuseRule
from tests.registry.norms import find_weight_plus_one_norms
from tests.registry.tiny import OLD, UNBUILT, build, has_type

__all__ = ["CLASSES_OF_4", "check_export"]

# Classes of transformers 4 alone: 5 has no module for an expert.
CLASSES_OF_4 = ("MixtralBlockSparseTop2MLP",)


def check_export(spec: ModelSpec) -> list[str]:
    """Norms that store w - 1 are those named; folding a scale changes nothing."""
    name = spec.model_type
    if not has_type(name) or name in UNBUILT:
        return []
    section = spec.export_spec
    model = build(name)
    named = set(section.weight_plus_one_norm_names) if section is not None else set()
    wrong = []
    if not next(model.parameters()).is_meta:
        found = find_weight_plus_one_norms(model)
        if found != named:
            wrong.append(f"norms that store w - 1 are {sorted(found)}, not {sorted(named)}")
    for rule in section.pqs_fuse_rules if section is not None else ():
        wrong += check_fuse_rule(model, rule)
    return wrong


def check_fuse_rule(model: Any, rule: PqsFuseRule) -> list[str]:
    """Scale fold_into's rows and fold_from's columns by one vector: the logits stay."""
    names = [name for name in rule.module_names if OLD or name not in CLASSES_OF_4]
    found = [module for module in model.modules() if type(module).__name__ in names]
    missing = set(names) - {type(module).__name__ for module in found}
    if missing:
        return [f"no module of the class {name}" for name in missing]
    ids = torch.arange(3, 23)[None]
    changed = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for module in changed.modules():
            if type(module).__name__ not in names:
                continue
            for name in (rule.fold_into, rule.fold_from):
                if not hasattr(module, name):
                    return [f"{type(module).__name__} has no {name}"]
            into, source = getattr(module, rule.fold_into), getattr(module, rule.fold_from)
            rows, columns = into.weight.shape[0], source.weight.shape[1]
            scale = 0.5 + torch.rand(rows, generator=generator)
            into.weight.mul_(scale[:, None])
            if into.bias is not None:
                into.bias.mul_(scale)
            source.weight.div_(_spread(scale, columns, module))
        before, after = model(input_ids=ids).logits, changed(input_ids=ids).logits
    error = float((before - after).norm() / before.norm())
    return [] if error < 1e-4 else [f"folding into {rule.fold_into} changes logits by {error:.2g}"]


def _spread(scale: Tensor, columns: int, module: Any) -> Tensor:
    """A kv head's scale for every query head that reads it; a MLP's as it is."""
    if len(scale) == columns:
        return scale
    head_dim = module.head_dim
    heads = scale.view(-1, head_dim)
    return heads.repeat_interleave(columns // len(scale), 0).reshape(-1)
