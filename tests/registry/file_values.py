"""The values of a file's tensors against those of the modules that they become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from assay.spec import ExpertFiles, ExpertGroup, ModelSpec
from assay.spec.experts import Experts
from assay.spec.moe import MoESpec
from tests.registry.blocks import is_vision, list_own_blocks
from tests.registry.identity_check import find_text_spec
from tests.registry.interpret import resolve_part, split_experts, split_rows
from tests.registry.tiny import OLD

__all__ = ["check_form", "check_renames", "check_table", "check_values"]

Values = Mapping[str, Tensor]

# Types whose files come from a model that can't be built here: transformers' own table of names.
SHOWN_BY_TABLE = {"inkling_text": "inkling_mm_model"}

# Types whose text decoder alone is saved under other names than the whole model of the hub.
SHOWN_BY_WHOLE = {
    "ernie4_5_vl_moe_text": "ernie4_5_vl_moe",
    "minimax_m3_vl_text": "minimax_m3_vl",
    "mistral_large4_text": "mistral_large4",
    "step3p5": "step3p7",
}


def check_form(moe: MoESpec, form: ExpertFiles) -> list[str]:
    """A form's layout is the one that its names show, and the second experts' form's too."""
    second = [] if form.second is None else check_form(moe, form.second)
    return second + _check_layout(moe, form)


def _check_layout(moe: MoESpec, form: ExpertFiles) -> list[str]:
    names, layout = (*form.gate_up, form.down), form.layout
    each = {"{expert}" in name for name in names}
    last = {name.removesuffix(".weight").endswith("{expert}") for name in names}
    kind = "fused" if each == {False} else "by_projection" if last == {True} else "iterable"
    wrong = []
    if layout.kind != kind and (layout.kind, kind) != ("flat", "fused"):
        wrong.append(f"its names show {kind}, not {layout.kind}")
    if layout.has_gate != moe.experts.gated:
        wrong.append(f"has_gate is {layout.has_gate}")
    if layout.has_bias != moe.experts.bias:
        wrong.append(f"has_bias is {layout.has_bias}")
    packed = layout.has_gate and len(form.gate_up) == 1 and layout.kind == "fused"
    if (layout.is_concatenated is not None) != packed:
        wrong.append(f"is_concatenated is {layout.is_concatenated}")
    return wrong


def check_values(
    spec: ModelSpec,
    moe: MoESpec,
    form: ExpertFiles,
    groups: Iterable[ExpertGroup],
    values: Values,
) -> list[str]:
    """Each block's experts, taken apart by the layouts of module and file, are the same."""
    groups = tuple(groups)
    wrong = []
    for block in list_own_blocks(spec, moe):
        second = is_vision(block)
        part = moe.second_experts if second else moe.experts
        if part is None or (second and form.second is None):
            continue
        owner = find_text_spec(spec, block.config)
        experts: Experts = resolve_part(owner, part, block.config, block.layer)
        own = [g for g in groups if g.layer == block.layer and g.second == second]
        as_said = form.second if second and form.second is not None else form
        read = [
            _read_stack([g for g in own if g.stack == stack], as_said, experts, values)
            for stack in {group.stack for group in own}
        ]
        wanted = {
            (number, name): part
            for number, expert in enumerate(split_experts(block.module, moe, experts))
            for name, part in zip(_list_parts(experts), (*expert.first, expert.down), strict=True)
        }
        if not any(_is_same(one, wanted, experts) for one in read):
            wrong.append(f"{block.path}: the file's experts have other values")
    return wrong


def _list_parts(experts: Experts) -> tuple[str, ...]:
    return ("gate", "up", "down") if experts.gated else ("up", "down")


def _is_same(
    found: dict[tuple[int, str], Tensor], wanted: dict[tuple[int, str], Tensor], experts: Experts
) -> bool:
    """Null experts may have weights that nobody reads (longcat_flash)."""
    read = {key for key in found if key[0] < experts.count}
    most = experts.count + experts.null_count
    return (
        read == wanted.keys()
        and all(torch.equal(found[k], wanted[k]) for k in wanted)
        and all(number < most for number, _ in found)
    )


def _read_stack(
    groups: list[ExpertGroup], form: ExpertFiles, experts: Experts, values: Values
) -> dict[tuple[int, str], Tensor]:
    """(expert, projection) -> weight [out, in], as the form says that it lies."""
    found = {}
    for group in groups:
        held = values[group.tensors["weight"]]
        for number in range(experts.count) if group.expert is None else (group.expert,):
            for name, weight in _take(held, group, number, form, experts):
                found[number, name] = weight
    return found


def _take(
    held: Tensor, group: ExpertGroup, number: int, form: ExpertFiles, experts: Experts
) -> Iterator[tuple[str, Tensor]]:
    if form.layout.kind == "flat":
        weight = held[number * experts.width : (number + 1) * experts.width]
        weight = weight.T if group.projection == "down" else weight
    else:
        weight = held[number] if group.expert is None else held
    weight = weight.T if form.layout.is_transposed else weight
    if group.projection == "gate_up":
        yield from zip(("gate", "up"), split_rows(weight, form.layout), strict=True)
    else:
        yield group.projection, weight


def check_renames(
    spec: ModelSpec,
    form: ExpertFiles,
    groups: Iterable[ExpertGroup],
    values: Values,
) -> list[str]:
    """A block's other tensors stand under their own name in a file, or under a rename's."""
    if OLD:  # whose modules have other names than those that facts are said in
        return []
    moe = spec.moe_spec
    if spec.model_type in SHOWN_BY_WHOLE or moe is None:
        return []
    stacks = {group.stack for group in groups}
    used: set[tuple[str, str]] = set()
    wrong = []
    for block in list_own_blocks(spec, moe):
        if "vision_tower" in block.path:
            continue
        before, _, inside = block.path.partition(f".{block.layer}")
        inside = inside.lstrip(".")
        state = block.module.state_dict()
        for name in state.keys() - block.parameters:
            path = _rename(f"{inside}.{name}".lstrip("."), form, used)
            stems = [f"{before}.{block.layer}.", *(f"{stack}{block.layer}." for stack in stacks)]
            if not any(_holds(values, stem + path, state[name]) for stem in stems):
                wrong.append(f"{block.path}.{name} isn't {path} in the file")
    return wrong + [f"nothing is renamed by {pair}" for pair in form.renames if pair not in used]


def _rename(path: str, form: ExpertFiles, used: set[tuple[str, str]]) -> str:
    for module, file in sorted(form.renames, key=lambda pair: -len(pair[0])):
        if path == module or path.startswith(f"{module}."):
            used.add((module, file))
            return file + path[len(module) :]
    return path


def _holds(values: Values, name: str, wanted: Tensor) -> bool:
    """Whether a file has a tensor: as it is, turned, or as one row of several.

    A packed gate and up may stand there as two; two tensors of one name, as `name` and `name_1`.
    """
    parts = [name]
    if "gate_up_proj" in name and name not in values:
        parts = [name.replace("gate_up_proj", part) for part in ("gate_proj", "up_proj")]
    if any(part not in values for part in parts):
        return False
    found = [torch.cat([values[part] for part in parts])]
    found += [values[f"{name}_1"]] if f"{name}_1" in values else []
    shown = [form for held in found for form in (held, held.T, *(held if held.ndim == 2 else ()))]
    flat = wanted.flatten()
    return any(one.numel() == flat.numel() and torch.equal(one.flatten(), flat) for one in shown)


def check_table(spec: ModelSpec, form: ExpertFiles) -> list[str]:
    """Renames and the order of packed rows, as transformers' table for loading files says them."""
    if OLD or spec.model_type not in SHOWN_BY_TABLE or "gate_up_proj" in form.gate_up[0]:
        return []
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    table = get_checkpoint_conversion_mapping(SHOWN_BY_TABLE[spec.model_type]) or ()
    known = {(entry.source_patterns[0], entry.target_patterns[0]) for entry in table}
    wrong = [f"the table doesn't rename {p}" for p in form.renames if (p[1], p[0]) not in known]
    in_block = {pair for pair in known if pair[0].startswith("mlp.gate.")}
    wrong += [f"no rename for {p}" for p in in_block if (p[1], p[0]) not in form.renames]
    for entry in table:
        if entry.source_patterns[0] == form.gate_up[0]:
            kinds = {type(step).__name__ for step in entry.operations}
            if ("Interleave" in kinds) == form.layout.is_concatenated:
                wrong.append(f"is_concatenated is {form.layout.is_concatenated}")
    return wrong
