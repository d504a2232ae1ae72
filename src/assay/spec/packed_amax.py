"""The amax of a fused parameter that holds gate and up together, taken apart.

Nothing here imports torch: an amax is anything that slices, clones and has `maximum`, as a tensor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from assay.spec.model_spec import ModelSpec
from assay.spec.observed import observed_expert_layout

__all__ = ["PackedAmax", "Packing", "find_packing"]


@dataclass(frozen=True, kw_only=True)
class Packing:
    """Where a fused parameter [experts, ., .] has the rows of gate and up.

    axis: of the parameter, 1 or 2; None where nobody says it. is_concatenated: the gate's rows
    first, else the two alternate; None where nobody says it.
    """

    name: str
    shape: tuple[int, ...]
    axis: int | None
    is_concatenated: bool | None


def find_packing(module: Any, spec: ModelSpec | None) -> Packing:
    """Read a fused block's packing: off the module where it says it, else from its spec."""
    observed = observed_expert_layout(module)
    assert observed is not None and observed.kind == "fused"
    container = getattr(module, observed.path) if observed.path else module
    held = getattr(container, observed.names[0])
    said = [
        layout
        for _, layout in (spec.moe_spec.layouts if spec is not None and spec.moe_spec else ())
        if layout.kind == "fused"
        and observed.is_transposed in (None, layout.is_transposed)
        and observed.is_concatenated in (None, layout.is_concatenated)
    ]
    transposed = observed.is_transposed
    if transposed is None:
        transposed = _agree([layout.is_transposed for layout in said])
    concatenated = observed.is_concatenated
    if concatenated is None:
        concatenated = _agree([layout.is_concatenated for layout in said])
    return Packing(
        name=observed.names[0],
        shape=tuple(int(size) for size in getattr(held, "weight", held).shape),
        axis=None if transposed is None else 2 if transposed else 1,
        is_concatenated=concatenated,
    )


def _agree(values: list[bool | None]) -> bool | None:
    return values[0] if values and len(set(values)) == 1 else None


class PackedAmax:
    """One amax: of the whole parameter, or of one expert's matrix.

    It may keep the parameter's dimensions with some made 1 or divided into groups, drop them, or
    have experts and rows as one dimension.
    """

    def __init__(self, amax: Any, packing: Packing) -> None:
        self._amax = amax
        self._packing = packing
        self._shape = tuple(int(size) for size in amax.shape)

    @property
    def is_shared(self) -> bool:
        """Whether gate and up have one amax already: one in all, or one an expert (and column)."""
        if math.prod(self._shape) in (1, self._packing.shape[0]):
            return True
        axis = self._packing.axis
        return axis is not None and len(self._shape) == 3 and self._shape[axis] == 1

    @property
    def problem(self) -> str:
        """Why it can't be taken apart; "" where it can."""
        if self._packing.axis is None:
            return "can't be told apart: nobody says whether the weight is transposed"
        if self._packing.is_concatenated is None:
            return (
                "can't be told apart: nobody says whether gate and up rows alternate "
                "(is_concatenated of the module, or a spec)"
            )
        if self._find_view() is None:
            rows = self._packing.shape[self._packing.axis]
            return f"has the shape {self._shape}, which doesn't show {rows} rows"
        return ""

    def give_maximum(self) -> Any:
        """Return a copy in which gate and up rows have their elementwise maximum."""
        found = self._find_view()
        assert found is not None
        shape, axis = found
        rows = shape[axis]
        parts = (
            (slice(0, rows // 2), slice(rows // 2, rows))
            if self._packing.is_concatenated
            else (slice(0, rows, 2), slice(1, rows, 2))
        )
        changed = self._amax.clone().reshape(shape)
        gate, up = ((slice(None),) * axis + (part,) for part in parts)
        largest = changed[gate].maximum(changed[up])
        changed[gate] = largest
        changed[up] = largest
        return changed.reshape(self._shape)

    def _find_view(self) -> tuple[tuple[int, ...], int] | None:
        """A shape in which the rows are one dimension, and which; None where there is none."""
        axis, shape = self._packing.axis, self._shape
        assert axis is not None
        experts, rows = self._packing.shape[0], self._packing.shape[axis]
        if len(shape) == 3:
            return (shape, axis) if shape[axis] == rows else None
        if axis == 1 and shape[0] == experts * rows:
            return (experts, rows, *shape[1:]), 1
        places = [place for place, size in enumerate(shape) if size == rows]
        return (shape, places[0]) if len(places) == 1 else None
