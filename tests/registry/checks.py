"""What a spec claims about its type, checked on the installed transformers' own modules.

Each check returns what is wrong, as text; the tests assert that nothing is, and
scripts/mutate_registry.py asserts that a changed spec is noticed.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from packaging.version import Version
from torch import Tensor
from transformers.models.auto import configuration_auto

from assay.spec import (
    ModelSpec,
    get_expert_linear_names,
    get_experts_list,
    is_moe,
    match_moe_block,
    observed_expert_layout,
)
from assay.spec.experts import HashRouter, Router, SharedExpert
from assay.spec.export_section import PqsFuseRule
from assay.spec.moe import MoESpec
from assay.spec.registry import get_spec, has_spec
from tests.registry.blocks import (
    MOE_TYPES,
    Block,
    draw_tokens,
    find_moe_blocks,
    run_block,
    run_router,
)
from tests.registry.files_check import check_files
from tests.registry.interpret import (
    compute_block,
    find_declared_layout,
    find_declared_release,
    resolve_part,
    route,
)
from tests.registry.norms import find_weight_plus_one_norms
from tests.registry.tiny import OLD, UNBUILT, VERSION, build, has_type, make_config

__all__ = ["CHECKS", "NO_DTYPE", "OTHER_MODULE_NAMES", "VISION_BLOCKS", "check_spec"]

TOLERANCE = 1e-5

# Facts name modules as transformers 5 does; in 4.57 these types have other names.
OTHER_MODULE_NAMES = (
    {
        "ernie4_5_moe": "moe_statics stands in the block, not in the gate",
        "granitemoe": "the router is a module with a layer",
        "granitemoehybrid": "the router is a module with a layer",
        "granitemoeshared": "the router is a module with a layer",
        "phimoe": "the router is called gate",
    }
    if OLD
    else {}
)
# Blocks that run on image tokens alone: same layout, sizes of their own.
VISION_BLOCKS = ("vision_moe", "vision_tower")


def check_spec(spec: ModelSpec) -> list[str]:
    """Everything that is wrong with a spec, by every check that applies here."""
    return list(check_spec_lazily(spec))


def check_spec_lazily(spec: ModelSpec) -> Iterator[str]:
    """The same, one after the other, so that the first is there before the others are looked for.

    An error is something wrong too: a false fact may break anything.
    """
    for check in SPEC_CHECKS:
        yield from _run(check, spec)
    if spec.moe_spec is not None and spec.model_type in MOE_TYPES:
        for moe_check in CHECKS:
            yield from _run(moe_check, spec, spec.moe_spec)


def _run(check: Callable[..., list[str]], *parts: Any) -> Iterator[str]:
    try:
        found = check(*parts)
    except Exception as exc:  # noqa: BLE001  (whatever a false fact breaks)
        found = [f"{type(exc).__name__} {exc}"]
    for text in found:
        yield f"{check.__name__}: {text}"


def check_blocks(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """is_moe and match_moe_block find the blocks that are there and no other module."""
    wrong = []
    there = {block.path for block in find_moe_blocks(spec.model_type)}
    named = {
        path
        for path, module in build(spec.model_type).named_modules()
        if match_moe_block(module, spec.model_type) is not None
    }
    found = {
        path
        for path, module in build(spec.model_type).named_modules()
        if is_moe(module, spec.model_type)
    }
    if not there:
        wrong.append("no block was built")
    if found != there:
        wrong.append(f"is_moe differs on {sorted(found ^ there)[:3]}")
    if named != there - _unnamed(spec.model_type, there):
        wrong.append(f"match_moe_block differs on {sorted(named ^ there)[:3]}")
    classes = {type(module).__name__.lower() for module in build(spec.model_type).modules()}
    return wrong + [
        f"no module of the class {name}"
        for name in moe.block_names
        if name.lower() not in classes and (spec.model_type, name) not in SHOWN_BY
    ]


# A name that a smaller part doesn't show: it is seen in the type named here.
SHOWN_BY = {
    (thinker, "Qwen3OmniMoeTalkerTextSparseMoeBlock"): "qwen3_omni_moe_talker_text"
    for thinker in ("qwen3_omni_moe_text", "qwen3_omni_moe_thinker")
} | {
    ("dots3_note_text", "Dots3NoteVisionMoE"): "dots3_note's vision tower, dense by default",
    ("dots3_note", "Dots3NoteVisionMoE"): "a vision tower with experts, dense by default",
}


def _unnamed(model_type: str, there: set[str]) -> set[str]:
    """Blocks of another kind than the spec's: jetmoe's attention has experts too."""
    return {path for path in there if model_type == "jetmoe" and "self_attention" in path}


def _own_blocks(spec: ModelSpec, moe: MoESpec) -> list[Block]:
    return [b for b in find_moe_blocks(spec.model_type) if moe.matches(b.module)]


def check_layout(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """The observed layout is the one declared for this release; names are the spec's own."""
    wrong = []
    declared = find_declared_layout(moe)
    own = find_declared_release(moe) == moe.layouts[0][0]
    for block in _own_blocks(spec, moe):
        seen = observed_expert_layout(block.module)
        if seen is None:
            return ["no layout is seen"]
        for flag in ("kind", "is_transposed", "is_concatenated", "has_bias", "has_gate"):
            shown, said = getattr(seen, flag), getattr(declared, flag)
            if shown is not None and shown != said:
                wrong.append(f"{flag} is {shown}, not {said}")
        if own and set(seen.names) != set(moe.expert_linear_names):
            wrong.append(f"the experts' names are {seen.names}, not {moe.expert_linear_names}")
        if own and len(set(moe.expert_linear_names)) != len(moe.expert_linear_names):
            wrong.append("a name is there twice")
        if own and seen.kind == "fused" and seen.names != moe.expert_linear_names:
            wrong.append(f"the order is {seen.names}")
    gated = declared.has_gate
    if (moe.gate_up_pair is not None) != gated:
        wrong.append(f"gate_up_pair is {moe.gate_up_pair}, has_gate is {gated}")
    return wrong


def check_names(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """The linears named cover all parameters of the experts, and no others."""
    wrong = []
    for block in _own_blocks(spec, moe):
        try:
            names = get_expert_linear_names(block.module, spec.model_type)
        except NotImplementedError as exc:
            if moe.unsupported is None or "docs/registry.md" not in str(exc):
                wrong.append(f"raised {exc}")
            continue
        if moe.unsupported is not None:
            wrong.append("an unsupported layout gave names")
        seen = observed_expert_layout(block.module)
        assert seen is not None
        container = block.module.get_submodule(seen.path)
        covered = {
            f"{seen.path}.{name}".lstrip(".")
            for name, _ in container.named_parameters()
            if _is_named(name, names, seen.kind)
        }
        if covered != set(block.parameters):
            wrong.append(f"covered differs on {sorted(covered ^ set(block.parameters))[:3]}")
    return wrong


def _is_named(parameter: str, names: tuple[str, ...], kind: str) -> bool:
    parts = parameter.split(".")
    if kind == "iterable":
        return len(parts) > 1 and parts[1] in names
    return any(parts[0] in (name, f"{name}_bias") for name in names)


def check_lists(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """One list a linear where grouped export holds and experts are iterable, else none."""
    wrong = []
    grouped = spec.export_spec is not None and spec.export_spec.grouped_expert_export
    if grouped != (spec.model_type in GROUPED):
        wrong.append(f"grouped_expert_export is {grouped}")
    for block in _own_blocks(spec, moe):
        try:
            lists = get_experts_list(block.module, spec.model_type)
        except NotImplementedError as exc:
            if moe.unsupported is None or "docs/registry.md" not in str(exc):
                wrong.append(f"raised {exc}")
            continue
        seen = observed_expert_layout(block.module)
        assert seen is not None
        if moe.unsupported is not None:
            wrong.append("an unsupported layout gave lists")
        if not grouped or seen.kind == "fused":
            if lists:
                wrong.append("lists where there are none")
            continue
        wanted = [
            [getattr(expert, name) for _, expert in block.module.experts.named_children()]
            for name in moe.expert_linear_names
        ]
        same = [[id(a) for a in row] for row in lists] == [[id(a) for a in row] for row in wanted]
        if not same:
            wrong.append("the lists hold other linears")
    return wrong


# Validated for grouped export; whoever adds one says so here and in the table.
GROUPED = (
    "deepseek_v3", "gemma4", "gemma4_text", "mixtral", "nemotron_h", "qwen2_moe", "qwen3_moe",
    "qwen3_next",
)  # fmt: skip


def check_sparse_layers(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """The layers with experts are those that have a block, with and without the config's list."""
    blocks = [b for b in _own_blocks(spec, moe) if not _is_vision(b)]
    if not blocks:
        return ["no block"]
    config = blocks[0].config
    values = config.to_dict()
    count = getattr(config, "num_layers", None) or config.num_hidden_layers
    wanted = tuple(sorted({block.layer for block in blocks}))
    wrong = []
    found = moe.sparse_layers.find(values, count)
    if found != wanted:
        wrong.append(f"layers {found}, not {wanted}")
    if moe.sparse_layers.types_key is not None:
        if moe.sparse_layers.types_key not in values:
            wrong.append(f"no config key {moe.sparse_layers.types_key}")
        wrong += _check_without_list(spec, moe)
    return wrong


def _check_without_list(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """Files may lack the list of types; the class then derives it, and so must the spec."""
    rule = moe.sparse_layers
    assert rule.types_key is not None
    wrong = []
    keys = {rule.first_dense_key: 2} if rule.first_dense_key else {}
    for facts in ({}, keys):
        plain = make_config(spec.model_type).get_text_config()
        cls = type(plain)
        try:
            config = cls(num_hidden_layers=6, **facts).to_dict()
        except Exception:  # noqa: BLE001  (a class that can't be built from so little)
            continue
        listed = config.get(rule.types_key)
        if not listed or len(listed) != 6:
            continue
        said = tuple(i for i, name in enumerate(listed) if name in rule.types)
        file = {key: value for key, value in config.items() if key != rule.types_key} | facts
        if rule.types == ("sparse",) and rule.find(file, 6) != said:
            wrong.append(f"without {rule.types_key}: {rule.find(file, 6)}, not {said}")
    return wrong


def _is_vision(block: Block) -> bool:
    return any(part in block.path for part in VISION_BLOCKS)


def check_arithmetic(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """The block computes what router, experts and shared experts say."""
    if spec.model_type in OTHER_MODULE_NAMES or next(build(spec.model_type).parameters()).is_meta:
        return []
    wrong = []
    for block in _own_blocks(spec, moe):
        if _is_vision(block):
            continue
        hidden, ids, wanted = run_block(block)
        owner = find_text_spec(spec, block.config)
        try:
            with torch.no_grad():
                found = compute_block(
                    owner, block.module, block.config, block.layer, hidden, ids, moe
                )
        except Exception as exc:  # noqa: BLE001  (a wrong fact may break anything)
            wrong.append(f"{block.path}: {type(exc).__name__} {exc}")
            continue
        error = float((found - wanted).norm() / wanted.norm().clamp(min=1e-3))
        if not error < TOLERANCE:
            wrong.append(f"{block.path}: off by {error:.2g}")
    return wrong


def find_text_spec(spec: ModelSpec, config: Any) -> ModelSpec:
    """The spec of the text part, whose defaults hold for the text config."""
    name = config.model_type
    return get_spec(name) if has_spec(name) and spec.config_spec is None else spec


def check_router_dtype(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """In bfloat16, the weights are those of the router's own arithmetic, and of no other."""
    model: Any = build(spec.model_type)
    plain = isinstance(moe.router, (Router, HashRouter))
    if OLD or not plain or next(model.parameters()).is_meta or spec.model_type in NO_DTYPE:
        return []
    blocks = [b for b in _own_blocks(spec, moe) if not _is_vision(b)]
    if not blocks:
        return ["no block"]
    block = blocks[-1]
    owner = find_text_spec(spec, block.config)
    router = resolve_part(owner, moe.router, block.config, block.layer)
    shared: SharedExpert | None = resolve_part(owner, moe.shared, block.config, block.layer)
    router = router.by_score if isinstance(router, HashRouter) else router
    rows = shared.count if shared is not None and shared.combine == "weighted" else 0
    on_sum = router.scale_on == "sum"
    unscaled = dataclasses.replace(router, scale=1.0) if on_sum else router
    index, weights, module = run_router(block, torch.bfloat16)
    hidden = draw_tokens(torch.bfloat16)[0][0]
    errors = {}
    for math in ("float32", "scores", "model"):
        with torch.no_grad():
            i, w, _ = route(module, unscaled, hidden, rows, math=math)
        errors[math] = _distance(index, weights, i, w.to(weights.dtype))
    if errors[router.math] > min(errors.values()) or errors[router.math] > 1e-2:
        return [f"math is {router.math}, errors are {errors}"]
    return []


_KEPT = "the router's weight stays in float32 whatever the model's dtype is"
NO_DTYPE: dict[str, str] = {
    **dict.fromkeys(("inkling2", "inkling2_text"), _KEPT),
    **dict.fromkeys(("inkling2_loop", "inkling2_loop_text"), _KEPT),
    "jetmoe": "experts stand in the block itself, and get no weights",
    **dict.fromkeys(("llama4", "llama4_text"), "weights multiply the experts' inputs"),
}


def _distance(index: Tensor, weights: Tensor, other: Tensor, others: Tensor) -> float:
    """How far two choices lie apart as dense weights over experts."""
    size = int(max(index.max(), other.max())) + 1
    dense = torch.zeros(len(index), size).scatter_(1, index, weights.float())
    return float((dense - torch.zeros_like(dense).scatter_(1, other, others.float())).abs().mean())


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


SPEC_CHECKS: tuple[Callable[[ModelSpec], list[str]], ...] = (check_release, check_export)
CHECKS: tuple[Callable[[ModelSpec, MoESpec], list[str]], ...] = (
    check_blocks,
    check_layout,
    check_names,
    check_lists,
    check_sparse_layers,
    check_files,
    check_arithmetic,
    check_router_dtype,
)
