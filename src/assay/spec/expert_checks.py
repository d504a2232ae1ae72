"""Whether a checkpoint's expert tensors are all there: layers, projections, experts and parts.

Nothing here imports torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from assay.errors import WeightError
from assay.spec.expert_forms import ExpertGroup, Tensors, list_projections
from assay.spec.expert_parts import WEIGHTS, find_companions
from assay.spec.experts import Experts
from assay.spec.moe import ExpertFiles

__all__ = ["check_complete", "check_layers", "check_parts", "name_layers"]

_INCOMPLETE = "The checkpoint is incomplete, or config.json another model's."
_TWO_KINDS = "The checkpoint was put together from two; take the one that you mean."


def check_layers(
    expected: Iterable[int], layers: Iterable[int], num_layers: int, where: str
) -> None:
    """The layers with experts are those that the config says; past the last one any may have."""
    wanted, found = set(expected), set(layers)
    missing = sorted(wanted - found)
    more = sorted(layer for layer in found - wanted if layer < num_layers)
    for wrong, what in ((missing, "has no experts, but the config says so"), (more, "has experts")):
        if wrong:
            rest = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            raise WeightError(
                where,
                f"layer {wrong[0]} {what}{rest}",
                expected=f"experts in {name_layers(wanted)}",
                next_step="Complete the checkpoint, or correct config.json.",
            )


def check_complete(
    groups: Iterable[ExpertGroup],
    form: ExpertFiles,
    sizes: Mapping[int, Experts],
    where: str,
    *,
    before: int,
) -> None:
    """Every layer has every projection, of the first expert to the last where they lie apart.

    before: experts numbered before the first. Null experts need no tensors.
    """
    found: dict[tuple[int, str], set[int | None]] = {}
    for group in groups:
        if any(part in group.tensors for part in WEIGHTS):
            found.setdefault((group.layer, group.projection), set()).add(group.expert)
    apart = "{expert}" in form.down
    for layer, experts in sizes.items():
        count, end = experts.count, before + experts.count
        whole: set[int | None] = set(range(before, end)) if apart else {None}
        for projection in list_projections(form):
            own = found.get((layer, projection), set())
            lacking = sorted(e for e in whole - own if e is not None)
            more = sorted(e for e in own - whole if e is not None and e >= end + experts.null_count)
            if lacking or not own:
                which = f" of expert {lacking[0]}" if lacking else ""
                rest = f" (and of {len(lacking) - 1} more)" if len(lacking) > 1 else ""
                found_text, advice = f"lacks {projection}{which}{rest}", _INCOMPLETE
            elif more:
                found_text = f"has {projection} of expert {more[0]}"
                advice = "The checkpoint or its config.json is another model's."
            else:
                continue
            raise WeightError(
                where,
                f"layer {layer} {found_text}",
                expected=f"{count} experts, as the config says",
                next_step=advice,
            )


def check_parts(
    groups: Iterable[ExpertGroup], sizes: Mapping[int, Experts], tensors: Tensors, where: str
) -> None:
    """Every weight is there once, with what it needs; experts of one kind have the same parts.

    Of one kind: of one layer and projection, with weights of one name, dtype and shape, so that
    single experts may be kept in float. Their parts must also have one shape.
    """
    kinds: dict[tuple[Any, ...], list[ExpertGroup]] = {}
    for group in groups:
        weights = [part for part in WEIGHTS if part in group.tensors]
        if len(weights) != 1:
            shown = " and ".join(weights) if weights else f"no weight, but {min(group.tensors)}"
            raise _fail(where, group, f"has {shown}", "one weight", _TWO_KINDS)
        dtype, shape = tensors[group.tensors[weights[0]]]
        needed = [*find_companions(weights[0])]
        if dtype == "U8" and weights[0] == "weight" and not _has_scale(group):
            needed.append("weight_scale")
        if sizes[group.layer].bias:
            needed.append("bias")
        for part in needed:
            if part not in group.tensors:
                expected = f"{part} beside {weights[0]}"
                raise _fail(where, group, f"lacks {part}", expected, _INCOMPLETE)
        key = group.layer, group.projection, weights[0], dtype, shape
        kinds.setdefault(key, []).append(group)
    for alike in kinds.values():
        _check_alike(alike, tensors, where)


def _has_scale(group: ExpertGroup) -> bool:
    return any("scale" in part or "absmax" in part for part in group.tensors)


def _check_alike(groups: list[ExpertGroup], tensors: Tensors, where: str) -> None:
    for part in sorted({part for group in groups for part in group.tensors} - {"bias"}):
        having = [group for group in groups if part in group.tensors]
        if len(having) != len(groups):
            lacking = next(group for group in groups if part not in group.tensors)
            other = f"{part}, which {len(having)} of {len(groups)} experts have"
            raise _fail(where, lacking, f"lacks {part}", other, _INCOMPLETE)
        shapes = [tensors[group.tensors[part]] for group in groups]
        usual = Counter(shapes).most_common(1)[0][0]
        for group, (dtype, shape) in zip(groups, shapes, strict=True):
            if (dtype, shape) != usual:
                expected = f"{usual[0]} {list(usual[1])}, as most of the experts have"
                found = f"has {part} as {dtype} {list(shape)}"
                raise _fail(where, group, found, expected, "Quantize the checkpoint again.")


def _fail(where: str, group: ExpertGroup, found: str, expected: str, next_step: str) -> WeightError:
    which = f" of expert {group.expert}" if group.expert is not None else ""
    return WeightError(
        where,
        f"{group.stack}{group.layer}: {group.projection}{which} {found}",
        expected=expected,
        next_step=next_step,
    )


def name_layers(layers: Iterable[int]) -> str:
    """The numbers, the first eight of them."""
    numbers = sorted(layers)
    shown = ", ".join(str(number) for number in numbers[:8])
    return f"layers {shown}{', ...' if len(numbers) > 8 else ''}" if numbers else "no layer"
