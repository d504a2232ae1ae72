"""The parts of a report below its verdict, in their order.

A section takes the whole dictionary and gives a `Section`, or None where it has nothing to show.
A new one is a module here and a line in SECTIONS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from assay.reports.section import Section
from assay.reports.sections.causes import show_causes, show_loss, show_own_errors, show_tried
from assay.reports.sections.checks import show_all_numbers, show_checks
from assay.reports.sections.cost import show_cost
from assay.reports.sections.environment import show_environment
from assay.reports.sections.files import show_files
from assay.reports.sections.layers import show_layers
from assay.reports.sections.positions import show_positions
from assay.reports.sections.prompts import show_prompts
from assay.reports.sections.weights import show_weights

__all__ = ["DIAGNOSIS_SECTIONS", "SECTIONS"]

SECTIONS: tuple[Callable[[Mapping[str, Any]], Section | None], ...] = (
    show_checks,
    show_positions,
    show_layers,
    show_weights,
    show_cost,
    show_prompts,
    show_environment,
    show_files,
    show_all_numbers,
)

DIAGNOSIS_SECTIONS: tuple[Callable[[Mapping[str, Any]], Section | None], ...] = (
    show_causes,
    show_own_errors,
    show_layers,
    show_loss,
    show_tried,
    show_environment,
)
