"""Numbers that a half-precision format can't hold."""

from __future__ import annotations

import numpy as np

from assay.diagnosis.finding import Cause
from assay.diagnosis.isolation import Isolation

__all__ = ["find_overflow"]

_LARGEST = {"float16": 65504.0}


def find_overflow(precision: str, isolation: Isolation) -> Cause | None:
    """The first place where a folder's stream isn't finite; None where all is.

    In float16 that is the range of the format; in any other precision a fault of the graph.
    """
    streams = (*isolation.streams.streams_SH, isolation.streams.logits_SV)
    first = next((k for k, stream in enumerate(streams) if not np.isfinite(stream).all()), None)
    if first is None:
        return None
    name = isolation.names[first]
    before = float(np.abs(streams[first - 1]).max()) if first else float("nan")
    largest = _LARGEST.get(precision)
    if largest is None:
        return Cause(
            id="not_finite",
            place=name,
            confidence=0.5,
            evidence=f"infinite or NaN from here on; before it the largest value is {before:.3g}",
            fix="look for a division by zero, a logarithm or an exponential at this place",
        )
    return Cause(
        id="half_overflow",
        place=name,
        confidence=1.0,
        evidence=f"infinite or NaN from here on; before it the largest value is {before:.3g}, "
        f"{precision} ends at {largest:g}",
        fix="export in bfloat16 or float32",
    )
