"""The catalogue: every cause that the doctor knows, in the order in which ties are decided."""

from __future__ import annotations

from assay.diagnosis.causes import attention, mlp, norms, positions, scales
from assay.diagnosis.hypothesis import Hypothesis

__all__ = ["CATALOGUE"]

CATALOGUE: tuple[Hypothesis, ...] = (
    *norms.CAUSES,
    *positions.CAUSES,
    *attention.CAUSES,
    *mlp.CAUSES,
    *scales.CAUSES,
)
