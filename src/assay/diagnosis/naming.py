"""What a search found, in words: one cause for all the places that one change explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from assay.diagnosis.finding import Cause
from assay.diagnosis.hypothesis import Variant
from assay.diagnosis.isolation import Isolation
from assay.diagnosis.search import Explanation, Step

__all__ = ["name_causes"]

_MOST_LISTED = 6


@dataclass
class _Group:
    """Segments with one change."""

    step: Step
    found: list[Explanation] = field(default_factory=list)
    variants: dict[str, Variant] = field(default_factory=dict)  # one for each place


def name_causes(explained: Sequence[Explanation], isolation: Isolation) -> list[Cause]:
    """Causes, those of most segments first; changes that differ in their place only are one."""
    groups: dict[tuple[str, str], _Group] = {}
    for found in sorted(explained, key=lambda e: e.segment):
        for step in found.path:
            key = step.hypothesis.id, step.variant.what
            group = groups.setdefault(key, _Group(step))
            if not group.found or group.found[-1] is not found:
                group.found.append(found)
    ranked = sorted(groups.values(), key=lambda group: -len(group.found))
    return [_name(group, isolation) for group in ranked]


def _name(group: _Group, isolation: Isolation) -> Cause:
    hypothesis, what = group.step.hypothesis, group.step.variant.what
    worst = max(group.found, key=lambda e: e.before)
    segments = sorted({e.segment for e in group.found})
    names = [isolation.names[k] for k in segments]
    sure = min(_tell_confidence(e, float(isolation.bounds[e.segment])) for e in group.found)
    return Cause(
        id=hypothesis.id,
        place=_place(group, isolation),
        confidence=round(sure, 3),
        evidence=f"{what}: PyTorch changed this way lies {worst.after:.3g} from the folder in "
        f"{isolation.names[worst.segment]}, without it {worst.before:.3g}"
        + (f"; in {len(names)} places" if len(names) > 1 else ""),
        fix=hypothesis.fix,
    )


def _tell_confidence(found: Explanation, bound: float) -> float:
    """The share of the error's logarithm, down to the noise, that is removed."""
    if not math.isfinite(found.before):
        return 1.0 if found.after <= bound else 0.5
    whole = math.log(max(found.before / bound, 1.0 + 1e-9))
    removed = math.log(found.before / max(found.after, 1e-30))
    return max(0.0, min(1.0, removed / whole))


def _place(group: _Group, isolation: Isolation) -> str:
    """Module paths: each place once, all layers that have it as `*`, some of them in braces."""
    inner: dict[Variant, list[int]] = {}
    outer: list[str] = []
    last = len(isolation.names) - 1
    for found in group.found:
        for step in found.path:
            if _key(step) != _key(group.step):
                continue
            variant = group.variants.setdefault(step.variant.place, step.variant)
            if 0 < found.segment < last and "*" in variant.place:
                inner.setdefault(variant, []).append(found.segment - 1)
            else:
                outer.append(variant.elsewhere or variant.place)
    touched = {k - 1 for e in group.found for k in e.touched if 0 < k < last}
    places = [_write_layers(variant, layers, touched) for variant, layers in inner.items()]
    return ", ".join(dict.fromkeys([*places, *outer]))


def _key(step: Step) -> tuple[str, str]:
    return step.hypothesis.id, step.variant.what


def _write_layers(variant: Variant, layers: list[int], touched: set[int]) -> str:
    place = variant.place
    if touched <= set(layers) and len(layers) > 1:
        return variant.shared or place
    if len(layers) == 1:
        return ", ".join(p.replace("*", str(layers[0]), 1) for p in place.split(", "))
    listed = [str(layer) for layer in layers[:_MOST_LISTED]]
    more = ",..." if len(layers) > _MOST_LISTED else ""
    numbers = "{" + ",".join(listed) + more + "}"
    return ", ".join(p.replace("*", numbers, 1) for p in place.split(", "))
