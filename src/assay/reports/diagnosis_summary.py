"""The top of a diagnosis: healthy or not, and the way from the logits to the cause."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from assay.reports.markup import Content, Markup, join, name_code, tag
from assay.reports.numbers import as_float, show_number
from assay.reports.results import RESULTS, draw_sign
from assay.reports.section import list_of_mappings
from assay.reports.tables import fact_list

__all__ = ["show_diagnosis_summary"]

# The look of a banner, and the word on it.
_HEALTH = {
    "healthy": ("pass", "Healthy"),
    "explained": ("fail", "Explained"),
    "partly_explained": ("fail", "Partly explained"),
    "unexplained": ("fail", "Unexplained"),
}


def show_diagnosis_summary(diagnosis: Mapping[str, Any]) -> Markup:
    """Header, banner, the way to the cause, and facts."""
    kind, word = _HEALTH.get(str(diagnosis.get("health")), ("unjudged", "Unknown"))
    banner = tag(
        "section",
        tag("p", draw_sign(RESULTS[kind]), tag("strong", word), class_="status"),
        tag("p", join(_tell_way(diagnosis), " \u2192 "), class_="reason"),
        class_=f"verdict {kind}",
        aria_label="Diagnosis",
    )
    folder = str(diagnosis.get("folder") or "")
    header = tag(
        "header",
        tag("p", "assay diagnosis", class_="brand"),
        tag("h1", PurePath(folder).name or folder),
    )
    facts: list[tuple[str, Content]] = [
        ("Folder", name_code(folder)),
        ("Reference", name_code(str(diagnosis.get("reference") or ""))),
    ]
    return join([header, banner, fact_list(facts)])


def _tell_way(diagnosis: Mapping[str, Any]) -> list[Content]:
    """From the logits down: their error, the first layer with one of its own, place and cause."""
    if diagnosis.get("health") == "healthy":
        return ["The folder computes what the checkpoint computes."]
    way: list[Content] = []
    error = as_float(diagnosis.get("error"))
    if error is not None:
        way.append(f"logits, relL2 {show_number(error)}")
    layers = list_of_mappings(diagnosis.get("layers"))
    first = next((layer for layer in layers if _has_error(layer)), None)
    if first is not None:
        way.append(["first error of its own in ", name_code(str(first.get("name")))])
    for cause in list_of_mappings(diagnosis.get("causes"))[:3]:
        place = str(cause.get("place", "")).split(", ", maxsplit=1)[0]
        way.append([name_code(str(cause.get("id"))), " at ", name_code(place)])
    for entry in list_of_mappings(diagnosis.get("entries"))[:1]:
        way.append(["unknown cause in ", name_code(str(entry.get("place")))])
    return way or ["The folder doesn't run."]


def _has_error(layer: Mapping[str, Any]) -> bool:
    own, bound = as_float(layer.get("own_rel_l2")), as_float(layer.get("bound"))
    return own is None or (bound is not None and own > bound)
