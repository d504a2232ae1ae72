"""The expert tensors of a checkpoint, from its config and its tensors' names, dtypes and shapes.

A type's spec says under which names its experts are published. A quantized checkpoint keeps those
names and adds endings (`weight_scale`, `qweight`, `_blocks`), which are grouped with the weight
that they belong to. Nothing is guessed: what no published form accounts for is listed, and what
contradicts the config is an error. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from assay.errors import WeightError
from assay.spec.config import ModelConfig
from assay.spec.expert_checks import check_complete, check_layers, check_parts, name_layers
from assay.spec.expert_config import read_stack
from assay.spec.expert_forms import (
    ExpertGroup,
    Match,
    Tensors,
    gather,
    is_prediction,
    list_strays,
    list_unaccounted,
    rank_forms,
)
from assay.spec.expert_names import UnsupportedExpertsError
from assay.spec.expert_shapes import check_shapes, read_sizes
from assay.spec.expert_structure import observe_stacked
from assay.spec.experts import Experts
from assay.spec.matching import find_model_type
from assay.spec.model_spec import ModelSpec
from assay.spec.moe import ExpertFiles, MoESpec
from assay.spec.registry import get_spec

__all__ = ["ExpertFilesFound", "ExpertGroup", "group_expert_tensors"]


@dataclass(frozen=True, kw_only=True)
class ExpertFilesFound:
    """The expert tensors of a checkpoint.

    model_type: whose spec was read, or the config's that no spec knows. files: the published form;
    None where the config says that no layer has experts, or no spec knows the type. num_experts:
    of a layer, its second ones too. layers: the decoder's, with experts. beyond: those of them past
    the config's last layer; predicting: other stacks, such as "mtp."; both predict tokens after
    the next. unaccounted: tensors among the experts that no part of the form explains.
    """

    model_type: str
    files: ExpertFiles | None
    num_experts: int
    layers: tuple[int, ...]
    groups: tuple[ExpertGroup, ...]
    beyond: tuple[int, ...] = ()
    predicting: tuple[str, ...] = ()
    unaccounted: tuple[str, ...] = ()


def group_expert_tensors(
    config: Mapping[str, Any], tensors: Tensors, *, where: str = "checkpoint"
) -> ExpertFilesFound:
    """Group a checkpoint's expert tensors by stack, layer, projection and expert.

    config: the parsed config.json. tensors: name -> (dtype, shape), as stored; dtypes in
    safetensors' words ("BF16", "U8"). where: names the checkpoint in errors.

    Of a type that no spec knows, stacked experts are told as they stand (`observe_stacked`), and
    nothing is checked; else UnsupportedExpertsError. Raises WeightError where experts or parts of
    them are missing, too many, or of another shape than the config says, ConfigError where the
    config lacks a size, and BrokenSpecError where the type's specs.py can't be imported.
    """
    if find_model_type(config) is None and (stacked := observe_stacked(tensors)) is not None:
        return _report_stacked(config, tensors, *stacked)
    spec, moe = _find_spec(config)
    forms = rank_forms(moe, tensors)
    if not forms:
        return _find_none(spec, moe, config, tensors, where)
    failed: WeightError | None = None
    for form, matched in forms:  # forms of one name differ in their shapes
        try:
            return _group(spec, moe, config, tensors, form, matched, where)
        except WeightError as exc:
            failed = failed or exc
    assert failed is not None
    raise failed


def _report_stacked(
    config: Mapping[str, Any], tensors: Tensors, count: int, groups: tuple[ExpertGroup, ...]
) -> ExpertFilesFound:
    known = {name for group in groups for name in group.tensors.values()}
    decoder = [group for group in groups if not is_prediction(group.stack)]
    return ExpertFilesFound(
        model_type=str(config.get("model_type")),
        files=None,
        num_experts=count,
        layers=tuple(sorted({group.layer for group in decoder})),
        groups=groups,
        predicting=tuple(sorted({group.stack for group in groups if group not in decoder})),
        unaccounted=list_strays(tensors, known),
    )


def _find_none(
    spec: ModelSpec, moe: MoESpec, config: Mapping[str, Any], tensors: Tensors, where: str
) -> ExpertFilesFound:
    """No tensor has a published name: right only where the config has no experts either."""
    layers = read_stack(spec, moe, config, "", where).layers
    strays = list_unaccounted(moe, tensors, ())
    if layers:
        shown = f"; {strays[0]} looks like one" if strays else ""
        names = " or ".join(f"{'+'.join(form.gate_up)}+{form.down}" for form in moe.files)
        raise WeightError(
            where,
            f"no tensor has a name under which {spec.model_type} publishes experts{shown}",
            expected=f"experts in {name_layers(layers)}, called {names}",
            next_step="Complete the checkpoint; or, if it is published so, add that form to files "
            f"in models/{spec.model_type}/specs.py, as docs/registry.md says.",
        )
    return ExpertFilesFound(
        model_type=spec.model_type,
        files=None,
        num_experts=0,
        layers=(),
        groups=(),
        unaccounted=strays,
    )


def _group(
    spec: ModelSpec,
    moe: MoESpec,
    config: Mapping[str, Any],
    tensors: Tensors,
    form: ExpertFiles,
    matched: list[Match],
    where: str,
) -> ExpertFilesFound:
    gathered = gather(matched)
    stacks = tuple(dict.fromkeys(group.stack for group in gathered))
    decoders = tuple(stack for stack in stacks if not is_prediction(stack))
    if not decoders:
        return _find_none(spec, moe, config, {}, where)
    groups: list[ExpertGroup] = []
    layers: set[int] = set()
    beyond: set[int] = set()
    count = 0
    owners: dict[int, str] = {}
    for stack in stacks:
        own = tuple(group for group in gathered if group.stack == stack)
        said = read_stack(spec, moe, config, stack, where)
        found = sorted({group.layer for group in own})
        if stack in decoders:
            _check_one_stack(owners.setdefault(id(said.values), stack), stack, where)
            check_layers(said.layers, found, said.num_layers, where)
            layers |= set(found)
            beyond |= {layer for layer in found if layer >= said.num_layers}
        last = said.layers[-1] if said.layers else said.num_layers - 1
        known_layers = said.layers if stack in decoders else ()
        facts = {n: n if n in known_layers else last for n in found}
        sets = _split_sets(moe, form, said.text, facts, own)
        for one in sets:
            check_complete(one.groups, one.form, one.sizes, where, before=one.before)
            check_parts(one.groups, one.sizes, tensors, where)
            check_shapes(one.form, said.text, one.sizes, one.groups, tensors)
            groups += one.groups
        count = max(count, *(sum(one.sizes[n].count for one in sets) for n in found))
    known = {name for group in groups for name in group.tensors.values()}
    return ExpertFilesFound(
        model_type=spec.model_type,
        files=form,
        num_experts=count,
        layers=tuple(sorted(layers)),
        groups=tuple(groups),
        beyond=tuple(sorted(beyond)),
        predicting=tuple(stack for stack in stacks if stack not in decoders),
        unaccounted=list_unaccounted(moe, tensors, known),
    )


@dataclass(frozen=True)
class _Set:
    """A block's experts, or its second ones; before: how many are numbered before them."""

    form: ExpertFiles
    sizes: Mapping[int, Experts]
    groups: tuple[ExpertGroup, ...]
    before: int = 0


def _split_sets(
    moe: MoESpec,
    form: ExpertFiles,
    config: ModelConfig,
    facts: Mapping[int, int],
    groups: tuple[ExpertGroup, ...],
) -> list[_Set]:
    """facts: as read_sizes takes layers."""
    sizes = read_sizes(moe.experts, config, facts)
    if moe.second_experts is None:
        return [_Set(form, sizes, _drop_biases(groups, sizes))]
    if form.second is None:  # one list
        groups = tuple(
            replace(group, second=(group.expert or 0) >= sizes[group.layer].count)
            for group in groups
        )
    before = 0 if form.second is not None else max(one.count for one in sizes.values())
    others = read_sizes(moe.second_experts, config, facts)
    first, second = (tuple(g for g in groups if g.second is flag) for flag in (False, True))
    return [
        _Set(form, sizes, _drop_biases(first, sizes)),
        _Set(form.second or form, others, _drop_biases(second, others), before),
    ]


def _check_one_stack(first: str, stack: str, where: str) -> None:
    if first != stack:
        raise WeightError(
            where,
            f"experts of one decoder stand under {first!r} and under {stack!r}",
            expected="each layer once",
            next_step="The checkpoint holds two models' tensors; leave one's files out.",
        )


def _drop_biases(
    groups: tuple[ExpertGroup, ...], sizes: Mapping[int, Experts]
) -> tuple[ExpertGroup, ...]:
    """Experts that have no bias: one that is there stays unaccounted for."""
    kept = (
        group
        if sizes[group.layer].bias
        else replace(group, tensors={k: v for k, v in group.tensors.items() if k != "bias"})
        for group in groups
    )
    return tuple(group for group in kept if group.tensors)


def _find_spec(config: Mapping[str, Any]) -> tuple[ModelSpec, MoESpec]:
    name = find_model_type(config)
    spec = get_spec(name) if name is not None else None
    if spec is None or spec.moe_spec is None:
        told = config.get("model_type")
        raise UnsupportedExpertsError(
            f"model type {told!r}",
            "no spec says where its experts are" if spec is None else "its spec has no experts",
            next_step="Register it: write models/<model_type>/specs.py with a moe_spec that names "
            "its files, as docs/registry.md says.",
        )
    return spec, spec.moe_spec
