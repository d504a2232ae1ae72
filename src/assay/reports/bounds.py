"""What a check's numbers were held against, and the gauge that shows it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.reports.markup import Markup, tag
from assay.reports.numbers import as_float, show_corr, show_number

__all__ = ["Held", "draw_gauge", "list_held", "show_metric"]

_METRIC_NAMES = {"rel_l2": "relL2"}
_DECADES = 3  # of the gauge, on each side of the bound


@dataclass(frozen=True)
class Held:
    """One number against its bound.

    bound: with its sign. allowed: the same in words. ratio: how much of the bound the number
    takes, or None.
    """

    name: str
    value: str
    bound: str = ""
    allowed: str = ""
    ratio: float | None = None


def list_held(check: Mapping[str, Any]) -> list[Held]:
    """One line for each of a check's bounds."""
    metrics, bounds = check.get("metrics"), check.get("bound")
    if not isinstance(bounds, Mapping):
        return []
    known: Mapping[str, Any] = metrics if isinstance(metrics, Mapping) else {}
    return [_hold(str(name), bound, known) for name, bound in bounds.items()]


def show_metric(name: str, value: Any) -> str:
    """A metric's value in its own form."""
    return show_corr(value) if name.endswith("corr") or name == "scale" else show_number(value)


def _hold(name: str, bound: Any, metrics: Mapping[str, Any]) -> Held:
    limit = as_float(bound)
    if name == "max_scale_error":
        scale = as_float(metrics.get("scale"))
        error = None if scale is None else abs(scale - 1)
        told = f"1 ± {show_number(limit)}"
        return _make("scale", metrics, told, told, _divide(error, limit))
    if name.startswith("min_"):
        metric = name.removeprefix("min_")
        value, told = as_float(metrics.get(metric)), show_metric(metric, limit)
        lacking = None if value is None else 1 - value
        ratio = _divide(lacking, None if limit is None else 1 - limit)
        return _make(metric, metrics, f"≥ {told}", f"at least {told}", ratio)
    metric = name if name in metrics else name.removeprefix("max_")
    ratio, told = _divide(as_float(metrics.get(metric)), limit), show_number(limit)
    return _make(metric, metrics, f"≤ {told}", f"at most {told}", ratio)


def _make(
    metric: str, metrics: Mapping[str, Any], bound: str, allowed: str, ratio: float | None
) -> Held:
    value = show_metric(metric, metrics[metric]) if metric in metrics else "not measured"
    name = _METRIC_NAMES.get(metric, metric.replace("_", " "))
    return Held(name, value, bound, allowed, ratio)


def _divide(value: float | None, limit: float | None) -> float | None:
    return None if value is None or not limit else value / limit


def draw_gauge(ratio: float | None) -> Markup:
    """Where a number lies from its bound: the bound is the line in the middle, each side spans
    three decades.
    """
    if ratio is None:
        return Markup("")
    away = math.log10(ratio) if ratio > 0 else -_DECADES
    share = min(max(away / _DECADES, -1.0), 1.0)
    x, kind = 60 + 54 * share, "within" if ratio <= 1 else "beyond"
    point = (
        tag("circle", cx=x, cy=8, r=4.5)
        if ratio <= 1
        else tag("path", d=f"M{x:.1f} 2l6 6l-6 6l-6 -6z")
    )
    text = f"{show_number(float(f'{ratio:.2g}'))} times the bound"
    return tag(
        "svg",
        tag("title", text),
        tag("line", x1=2, x2=118, y1=8, y2=8, class_="track"),
        tag("line", x1=60, x2=60, y1=1, y2=15, class_="limit"),
        point,
        viewBox="0 0 120 16",
        class_=f"gauge {kind}",
        role="img",
        aria_label=text,
    )
