"""Ways of running that a prefill and a decode of one prompt say nothing of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from assay.diagnosis.finding import Cause
from assay.verification.candidate import Candidate
from assay.verification.float_proof import judge_float32, measure_reference

if TYPE_CHECKING:
    import torch

__all__ = ["examine_settings"]

Ids = npt.NDArray[np.int64]

# What fails while a prefill is right: cause, place, fix. The first that fails speaks.
_SETTINGS = {
    "decode": (
        "cache",
        "past_key_values",
        "return each layer's keys and values, and read them back in the same slot and order",
    ),
    "window": (
        "window_in_decode",
        "past_key_values",
        "apply the window to cached keys too: count from the query's own slot",
    ),
    "left_padded_batch": (
        "left_padding",
        "attention_mask",
        "mask padded slots, and count positions from each row's first token",
    ),
    "as_shipped": ("last_position", "lm_head", "gather the last position, not another one"),
}


def examine_settings(candidate: Candidate, model: torch.nn.Module, ids_S: Ids) -> list[Cause]:
    """Causes that only a batch, or the graph as it is shipped, shows; the first that fails."""
    if candidate.folder.precision != "float32":
        return []
    checks = {c.name: c for c in judge_float32(candidate, measure_reference(model, ids_S))}
    for name, (cause, place, fix) in _SETTINGS.items():
        check = checks.get(name)
        if check is not None and check.passed is False:
            relative = check.metrics.get("rel_l2", float("nan"))
            evidence = f"{name}: relL2 {relative:.3g} ({check.detail}), a prefill is right"
            found = Cause(id=cause, place=place, confidence=0.9, evidence=evidence, fix=fix)
            return [found]
    return []
