"""What a planted fault is, and when it counts as named."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.diagnosis import Diagnosis

__all__ = ["Fault", "NothingError", "is_named"]


class NothingError(Exception):
    """The folder hasn't what the fault changes."""


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    causes: ids that name it. place: a pattern that the named place has to match. plant: changes a
    finished folder; or plan: changes the plan before the export; or rows: changes weights as
    they are read. layer: the only layer that is changed, None for all. std: of the twin's weights.
    """

    name: str
    causes: tuple[str, ...]
    place: str = ""
    plan: Callable[[Any], Any] | None = None
    rows: Callable[[str, Any], Any] | None = None
    plant: Callable[[Path], None] | None = None
    std: float = 0.12


def is_named(fault: Fault, found: Diagnosis) -> bool:
    """Whether the doctor names the fault, in its place, and nothing beside it."""
    if not found.causes or found.entries:
        return False
    if any(cause.id not in fault.causes for cause in found.causes):
        return False
    return all(re.search(fault.place, cause.place) for cause in found.causes)
