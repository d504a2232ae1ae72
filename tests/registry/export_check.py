"""The export section of a spec, on the tiny instance of its type."""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
from torch import Tensor

from assay.spec import ModelSpec
from assay.spec.export_section import ExportSpec, PqsFuseRule
from tests.registry.norms import find_weight_plus_one_norms
from tests.registry.tiny import OLD, UNBUILT, build, has_type

__all__ = ["CLASSES_OF_4", "check_export"]

# Classes of transformers 4 alone: 5 has no module for an expert.
CLASSES_OF_4 = ("MixtralBlockSparseTop2MLP",)


# Types whose scales are folded; whoever adds one says so here and in the table.
FOLDED = (
    "gemma", "gemma2", "gemma3", "gemma3_text", "granite", "llama", "ministral", "mistral",
    "mixtral", "nemotron", "olmo", "olmo2", "phi", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
    "smollm3", "stablelm", "starcoder2",
)  # fmt: skip
# Where another config than the tiny one's stands in the way.
NOT_ALWAYS = {
    ("OlmoAttention", "v_proj", "o_proj"): "clip_qkv cuts values, in the files that have it",
}
# Pairs of linears between which a channel may pass linearly: where it does, a rule must say so.
_PAIRS = (
    ("v_proj", "o_proj"), ("v_proj", "dense"), ("up_proj", "down_proj"), ("w3", "w2"),
)  # fmt: skip


def check_export(spec: ModelSpec) -> list[str]:
    """Norms that store w - 1 are those named; folding changes nothing, and no rule is missing."""
    name = spec.model_type
    if not has_type(name) or name in UNBUILT:
        return []
    section = spec.export_spec or ExportSpec()
    model = build(name)
    wrong = []
    named = set(section.weight_plus_one_norm_names)
    found = find_weight_plus_one_norms(model)
    if found != named:
        wrong.append(f"norms that store w - 1 are {sorted(found)}, not {sorted(named)}")
    if bool(section.pqs_fuse_rules) != (name in FOLDED):
        wrong.append(f"{len(section.pqs_fuse_rules)} fuse rules")
    if name not in FOLDED:
        return wrong
    for rule in section.pqs_fuse_rules:
        wrong += check_fuse_rule(model, rule)
    said = {(m, r.fold_into, r.fold_from) for r in section.pqs_fuse_rules for m in r.module_names}
    said = {rule for rule in said if OLD or rule[0] not in CLASSES_OF_4}
    possible = _list_possible_rules(name)
    return wrong + [f"no rule says {rule}" for rule in sorted(possible - said)]


@functools.cache
def _list_possible_rules(model_type: str) -> set[tuple[str, str, str]]:
    """Every class with a pair of linears between which a fold leaves the logits as they are."""
    model = build(model_type)
    found = set()
    for module in model.modules():
        for into, source in _PAIRS:
            held = [getattr(module, name, None) for name in (into, source)]
            if all(isinstance(linear, torch.nn.Linear) for linear in held):
                found.add((type(module).__name__, into, source))
    return {
        (name, into, source)
        for name, into, source in found - NOT_ALWAYS.keys()
        if not check_fuse_rule(
            model, PqsFuseRule(module_names=(name,), fold_into=into, fold_from=source)
        )
    }


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
