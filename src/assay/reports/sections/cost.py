"""What running the folder costs, where it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.reports.markup import Content
from assay.reports.numbers import as_float, show_number
from assay.reports.section import Section
from assay.reports.tables import simple_table

__all__ = ["show_cost"]


def show_cost(verdict: Mapping[str, Any]) -> Section | None:
    """A table of `cost`: {what: {"mean", "std", "unit"}}, or {what: a number}."""
    cost = verdict.get("cost")
    if not isinstance(cost, Mapping) or not cost:
        return None
    rows = [_show_row(str(name), value) for name, value in cost.items()]
    table = simple_table(
        "Cost of running the folder",
        ("What", "Mean", "Standard deviation", "Unit"),
        rows,
        numeric=("Mean", "Standard deviation"),
    )
    return Section("cost", "Cost", "Measured on the machine named under Environment.", table)


def _show_row(name: str, value: Any) -> tuple[Content, ...]:
    if not isinstance(value, Mapping):
        return name, value if isinstance(value, str) else show_number(value), "", ""
    spread = as_float(value.get("std"))
    return (
        name,
        show_number(value.get("mean")),
        "" if spread is None else show_number(spread),
        str(value.get("unit", "")),
    )
