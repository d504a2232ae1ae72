"""How each packed tensor decodes, the worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.reports.check_names import describe_check
from assay.reports.markup import Content, Markup, join, name_code, tag
from assay.reports.numbers import as_float, count, show_number, show_share
from assay.reports.results import RESULTS, draw_sign, list_checks
from assay.reports.section import Section, list_of_mappings
from assay.reports.tables import fold, simple_table

__all__ = ["show_weights"]

_ENCODING_FAULT = 1.0  # of relL2, as in verification.weight_proof
_NUM_OPEN = 15
_COLUMNS = ("Packed tensor", "relL2", "From 0", "Bits", "Group", "Off its grid", "Wide steps")


def show_weights(verdict: Mapping[str, Any]) -> Section | None:
    """A bar for each packed tensor of the first check named weights."""
    tensors = _find_tensors(verdict)
    if not tensors:
        return None
    tensors = sorted(tensors, key=_rank)
    found = [v for v in (as_float(t.get("rel_l2")) for t in tensors) if v is not None]
    highest = max(found, default=1.0) or 1.0
    faults = sum(value > _ENCODING_FAULT for value in found)
    lead = "relL2 of decoded against original weights; 0.05 to 0.15 is usual for int4."
    if faults:
        lead += (
            f" {count(faults, 'tensor')} above {_ENCODING_FAULT:g}: an encoding fault, the codes "
            "are read otherwise than they were written. The dashed line stands there."
        )
    parts: list[Content] = [_table(tensors[:_NUM_OPEN], highest)]
    if len(tensors) > _NUM_OPEN:
        rest = _table(tensors[_NUM_OPEN:], highest)
        parts.append(fold(f"The other {count(len(tensors) - _NUM_OPEN, 'tensor')}", rest))
    return Section("weights", "Weight fidelity", lead, parts)


def _find_tensors(verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    for check in list_checks(verdict):
        metrics = check.get("metrics")
        if describe_check(str(check.get("name"))).base == "weights" and isinstance(
            metrics, Mapping
        ):
            return list_of_mappings(metrics.get("tensors"))
    return []


def _rank(tensor: Mapping[str, Any]) -> tuple[float, str]:
    """Without a number first, then by falling relL2."""
    value = as_float(tensor.get("rel_l2"))
    return (-float("inf") if value is None else -value), str(tensor.get("packed"))


def _table(tensors: Sequence[Mapping[str, Any]], highest: float) -> Markup:
    rows = [_show_tensor(tensor, highest) for tensor in tensors]
    numeric = ("relL2", "Bits", "Group", "Off its grid", "Wide steps")
    return simple_table("Weight fidelity", _COLUMNS, rows, numeric=numeric, class_="weights")


def _show_tensor(tensor: Mapping[str, Any], highest: float) -> tuple[Content, ...]:
    value = as_float(tensor.get("rel_l2"))
    is_fault = value is None or value > _ENCODING_FAULT
    names = tensor.get("tensors")
    holds = [str(name) for name in names] if isinstance(names, (list, tuple)) else []
    note = None
    if is_fault:
        word = "encoding fault" if value is not None else "no number"
        note = tag("span", draw_sign(RESULTS["fail"]), word, class_="result fail")
    held = join([name_code(name) for name in holds], ", ") or "nothing of the checkpoint"
    return (
        [
            name_code(str(tensor.get("packed", ""))),
            note,
            tag("span", "holds ", held, class_="aside"),
        ],
        show_number(value),
        _draw_bar(value, highest, "fault" if is_fault else "sound"),
        show_number(tensor.get("bits")),
        show_number(tensor.get("group_size")),
        show_share(tensor.get("off_grid")),
        show_share(tensor.get("wide_groups")),
    )


def _draw_bar(value: float | None, highest: float, kind: str) -> Markup:
    """A bar from 0; where bars reach so far, a line marks the encoding fault's threshold."""
    width = 200.0 * min((value or 0.0) / highest, 1.0)
    threshold = 200.0 * _ENCODING_FAULT / highest
    line = tag("line", x1=threshold, x2=threshold, y1=0, y2=16, class_="limit")
    return tag(
        "svg",
        tag("rect", x=0, y=4, width=max(width, 0.5), height=8),
        line if threshold < 200 else None,
        viewBox="0 0 200 16",
        class_=f"bar {kind}",
        aria_hidden="true",
    )
