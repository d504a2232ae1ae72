"""The catalogue: every cause that the doctor knows, in the order in which ties are decided."""

from __future__ import annotations

from assay.diagnosis.causes import (
    attention,
    exchanges,
    experts,
    masks,
    mlp,
    norms,
    positions,
    rotation,
    scales,
)
from assay.diagnosis.hypothesis import Hypothesis

__all__ = ["CATALOGUE"]

CATALOGUE: tuple[Hypothesis, ...] = (
    *norms.CAUSES,
    *positions.CAUSES,
    *rotation.CAUSES,
    *masks.CAUSES,
    *attention.CAUSES,
    *mlp.CAUSES,
    *experts.CAUSES,
    *scales.CAUSES,
    *exchanges.CAUSES,
)
