"""Proof for folders that compute in float16: looser bounds, and overflow told from a fault.

The noise is what float16 costs PyTorch itself on the first tokens of the prompt. corr >= 0.999
is blind to scale, so the scale and relL2 are held as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from assay.verification.candidate import Candidate
from assay.verification.float_proof import (
    NOISE_FACTOR,
    FloatReference,
    judge_settings,
)
from assay.verification.metrics import Agreement, Noise, measure_noise
from assay.verification.reference import ReferenceRun, find_window, run_half, run_logits
from assay.verification.settings import SETTINGS, plan_rows
from assay.verification.verdict import Check

if TYPE_CHECKING:
    import torch

__all__ = ["REFERENCE_OVERFLOWS", "HalfReference", "judge_float16", "measure_half_reference"]

REFERENCE_OVERFLOWS = "reference_overflows_float16"
MIN_CORR = 0.999
MAX_SCALE_ERROR = 0.01
MAX_REL_L2 = 0.045  # what corr 0.999 allows to noise that leaves the scale alone
NOISE_FLOOR = 5e-4  # one rounding to float16, 2^-11
_NUM_NOISE_TOKENS = 64

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class HalfReference:
    """The float32 truth with float16's noise; overflows: PyTorch's own float16 run isn't finite."""

    truth: FloatReference
    overflows: bool


def measure_half_reference(
    model: torch.nn.Module, input_ids: Ids, *, settings: Sequence[str] = SETTINGS
) -> HalfReference:
    """Run the reference in float32 on everything, in float16 on the first 64 tokens."""
    ids_S = np.asarray(input_ids, np.int64).reshape(-1)
    window = find_window(model.config)
    rows = plan_rows(ids_S, window) if "left_padded_batch" in settings else ()
    logits = [run_logits(model, ids) for ids in (ids_S, *rows)]
    half_SV = run_half(model, ids_S[:_NUM_NOISE_TOKENS])
    overflows = not bool(np.isfinite(half_SV).all())
    noise = None if overflows else measure_noise(half_SV, logits[0][:_NUM_NOISE_TOKENS])
    runs = [
        ReferenceRun(ids, values, _spread(noise, values))
        for ids, values in zip((ids_S, *rows), logits, strict=True)
    ]
    return HalfReference(FloatReference(runs[0], tuple(runs[1:]), window), overflows)


def _spread(noise: Noise | None, logits_SV: npt.NDArray[np.float32]) -> Noise:
    """The measured tokens' noise, taken for every position; the floor when it has none."""
    norm_S = np.square(logits_SV, dtype=np.float64).sum(1)
    relative = max(noise.rel_l2() if noise else 0.0, NOISE_FLOOR)
    largest = float(noise.max_abs_P.max()) if noise else relative * float(np.abs(logits_SV).max())
    return Noise(norm_S * relative**2, norm_S, np.full(len(norm_S), largest))


def judge_float16(
    candidate: Candidate, reference: HalfReference, *, settings: Sequence[str] = SETTINGS
) -> list[Check]:
    """Compare a float16 folder with the float32 truth, one Check per setting.

    Where the folder isn't finite and PyTorch's own float16 run isn't either, the check fails with
    the outcome `reference_overflows_float16`: the model can't be run in this precision.
    """
    checks = judge_settings(candidate, reference.truth, settings, _grade_float16)
    return [
        replace(
            check,
            outcome=REFERENCE_OVERFLOWS,
            detail="the original overflows in float16 too: export it in bf16 or fp32",
        )
        if reference.overflows and check.metrics.get("finite") is False
        else check
        for check in checks
    ]


def _grade_float16(agreement: Agreement, noise: float) -> tuple[bool, dict[str, float]]:
    bound = min(MAX_REL_L2, NOISE_FACTOR * noise)
    passed = (
        agreement.finite
        and agreement.corr >= MIN_CORR
        and abs(agreement.scale - 1) <= MAX_SCALE_ERROR
        and agreement.rel_l2 <= bound
        and not agreement.argmax_mismatches
    )
    return passed, {"rel_l2": bound, "min_corr": MIN_CORR, "max_scale_error": MAX_SCALE_ERROR}
