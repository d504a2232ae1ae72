"""Judging against logits alone: no checkpoint, so no weights to compare and no noise to measure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from assay.verification.candidate import open_candidate
from assay.verification.float_proof import NOISE_FACTOR, FloatReference, judge_float32
from assay.verification.folder import ModelFolder
from assay.verification.half_proof import MAX_REL_L2, HalfReference, judge_float16
from assay.verification.metrics import Noise
from assay.verification.quantized_proof import judge_end_to_end
from assay.verification.reference import ReferenceRun
from assay.verification.verdict import Check

__all__ = ["judge_without_weights"]


def judge_without_weights(folder: ModelFolder, reference: FloatReference) -> list[Check]:
    """Checks of a folder against a reference's logits.

    A quantized folder's weights can't be proved this way: its end result is held to the
    requirement alone, and a check that could not be made says so.
    """
    if folder.is_quantized:
        run = reference.prompt
        detail = "there is no checkpoint to compare them with; only the end result is judged"
        unproved = Check("weights", None, required=False, detail=detail)
        settings = ("prefill", "decode")
        return [unproved, *judge_end_to_end(folder, run.ids_S, run.logits_SV, settings)]
    candidate = open_candidate(folder)
    if folder.precision == "float32":
        return judge_float32(candidate, reference)
    runs = [_assume_half_noise(run) for run in (reference.prompt, *reference.rows)]
    truth = replace(reference, prompt=runs[0], rows=tuple(runs[1:]))
    return judge_float16(candidate, HalfReference(truth, overflows=False))


def _assume_half_noise(run: ReferenceRun) -> ReferenceRun:
    """The noise for which float16's bound is its cap."""
    logits: Any = run.logits_SV
    norm_S = np.square(logits, dtype=np.float64).sum(1)
    relative = MAX_REL_L2 / NOISE_FACTOR
    largest = np.full(len(norm_S), relative * float(np.abs(logits).max()))
    return replace(run, noise=Noise(norm_S * relative**2, norm_S, largest))
