"""Proof that a float graph computes what PyTorch computes, in all four settings.

The bound is a constant times the reference's own rounding noise at the compared positions, at
most 1e-4: small faults (rope theta 10001 for 10000, eps 1e-6 for 1e-5) cost only 3e-5, so a
fixed tolerance would either miss them or reject deep models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.errors import RuntimeFolderError
from assay.verification.candidate import Candidate, open_candidate
from assay.verification.metrics import Agreement, compare_logits
from assay.verification.positions import tabulate_positions
from assay.verification.reference import ReferenceRun, find_window, run_with_noise
from assay.verification.settings import (
    SETTINGS,
    Comparison,
    plan_rows,
    run_padded_batch,
    run_setting,
)
from assay.verification.verdict import Check

if TYPE_CHECKING:
    import torch

__all__ = [
    "MAX_REL_L2",
    "NOISE_FACTOR",
    "NOISE_FLOOR",
    "FloatReference",
    "bound_float32",
    "judge_float32",
    "measure_reference",
]

MAX_REL_L2 = 1e-4
# 205 comparisons of healthy folders (17 model types, weights of std 0.02, 0.1 and 0.3, written by
# onnxruntime-genai's builder and mobius, prefill, decode, window and padded batch; onnxruntime
# 1.32, torch 2.13) lay 0.8 to 2.2 times the noise from the reference.
NOISE_FACTOR = 5.0
NOISE_FLOOR = 2e-7  # such models' noise is 0.9e-7 to 3e-6

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Grade = Callable[[Agreement, float], tuple[bool, dict[str, float]]]


@dataclass(frozen=True)
class FloatReference:
    """What the reference says to a prompt and to the rows of a batch, with its noise.

    Measured once, it serves any number of candidates.
    """

    prompt: ReferenceRun
    rows: tuple[ReferenceRun, ...]
    window: int | None

    def run(self, sequence: int) -> ReferenceRun:
        """The run of the prompt (-1) or of a batch row."""
        return self.prompt if sequence < 0 else self.rows[sequence]

    def noise_at(self, sequence: int, positions_P: Ids) -> tuple[float, Floats]:
        """The noise's relL2 over some positions, and how far a logit may move at each of them.

        Neither is taken lower than over the whole prompt: at a few positions the noise of one
        run can be low by chance, up to sevenfold, while another order of summation isn't.
        """
        noise, whole = self.run(sequence).noise, self.prompt.noise
        usual = float(whole.max_abs_P.mean())
        return (
            max(noise.rel_l2(positions_P), whole.rel_l2()),
            np.maximum(noise.max_abs_P[positions_P], usual),
        )


def bound_float32(noise: float) -> float:
    """The largest relL2 that rounding explains: NOISE_FACTOR times the noise, at most 1e-4.

    NOISE_FLOOR stands in for a noise that came out lower than float32 can promise.
    """
    return min(MAX_REL_L2, NOISE_FACTOR * max(noise, NOISE_FLOOR))


def measure_reference(
    model: torch.nn.Module,
    input_ids: Ids,
    *,
    settings: Sequence[str] = SETTINGS,
    window: int | None = None,
) -> FloatReference:
    """Run the reference once in float32 and once in float64, for the prompt and each batch row.

    input_ids: [S], one prompt. window: the attention window; read from the model's config when
    absent.
    """
    ids_S = np.asarray(input_ids, np.int64).reshape(-1)
    window = window or find_window(model.config)
    prompt = run_with_noise(model, ids_S)
    rows = plan_rows(ids_S, window) if "left_padded_batch" in settings else ()
    return FloatReference(prompt, tuple(run_with_noise(model, row) for row in rows), window)


def judge_float32(
    folder: str | Path | Candidate,
    reference: FloatReference,
    *,
    settings: Sequence[str] = SETTINGS,
) -> list[Check]:
    """Compare a float32 folder with the reference, one Check per setting.

    A setting that the prompt is too short for comes back with passed=None.
    """
    candidate = folder if isinstance(folder, Candidate) else open_candidate(folder)
    return judge_settings(candidate, reference, settings, grade_float32)


def judge_settings(
    candidate: Candidate,
    reference: FloatReference,
    settings: Sequence[str],
    grade: Grade,
    *,
    shipped_too: bool = True,
) -> list[Check]:
    """Run each setting and grade its worst comparison by `grade`.

    shipped_too: a graph that was edited to give every position is then run as it lies on disk.
    """
    checks = []
    for setting in settings:
        if reason := _inapplicable(setting, reference):
            checks.append(Check(setting, None, detail=reason, required=False))
        else:
            checks.append(_judge_setting(setting, candidate, reference, grade))
    if candidate.bypassed and shipped_too:
        padded = any(c.name == "left_padded_batch" and c.passed for c in checks)
        truth = reference if padded else replace(reference, rows=())
        checks.append(_judge_setting("as_shipped", candidate.as_shipped(), truth, grade))
    return checks


def _judge_setting(
    setting: str, candidate: Candidate, reference: FloatReference, grade: Grade
) -> Check:
    rows = [row.ids_S for row in reference.rows]
    try:
        comparisons = list(
            run_setting(
                setting, candidate, reference.prompt.ids_S, window=reference.window, rows=rows
            )
        )
    except RuntimeFolderError as exc:
        check = Check(setting, False, detail=str(exc), outcome="runtime_error")
    else:
        check = grade_comparisons(setting, comparisons, reference, grade)
    signature = candidate.folder.signature
    foreign = candidate.folder.manifest is None and not signature.position_ids
    if setting == "left_padded_batch" and check.passed is False and foreign:
        return _try_right_padding(check, candidate, reference, grade)
    return check


def _try_right_padding(
    failed: Check, candidate: Candidate, reference: FloatReference, grade: Grade
) -> Check:
    """A foreign graph without position ids may be made for batches padded on the right.

    onnxruntime-genai pads its own batches there. Such a graph isn't faulty, but whoever pads on
    the left must know: not passed, not failed, with both numbers in the detail.
    """
    rows = [row.ids_S for row in reference.rows]
    try:
        comparisons = list(run_padded_batch(candidate, rows, pad_left=False))
    except RuntimeFolderError as exc:
        told = "it refuses rows of unequal length" if failed.outcome else ""
        if not told:
            return failed
        return replace(failed, passed=None, required=False, detail=f"{told}: {exc.found}")
    right = grade_comparisons("right_padded_batch", comparisons, reference, grade)
    if not right.passed:
        return failed
    return replace(
        failed,
        passed=None,
        required=False,
        outcome="right_padding_only",
        detail=f"wrong when padded on the left (relL2 {failed.metrics.get('rel_l2', np.nan):.2g}), "
        f"right when padded on the right ({right.metrics['rel_l2']:.2g})",
    )


def grade_float32(agreement: Agreement, noise: float) -> tuple[bool, dict[str, float]]:
    """relL2 within the noise's bound; the counted argmaxes agree."""
    bound = bound_float32(noise)
    passed = agreement.rel_l2 <= bound and not agreement.argmax_mismatches
    return passed and agreement.finite, {"rel_l2": bound}


def grade_comparisons(
    name: str, comparisons: list[Comparison], reference: FloatReference, grade: Grade
) -> Check:
    """One Check over several comparisons: the one that stands worst against its bound speaks."""
    worst: tuple[float, bool, Agreement, float, dict[str, float], Comparison] | None = None
    for comparison in comparisons:
        run = reference.run(comparison.sequence)
        positions = comparison.positions_P
        words = comparison.logits_PV.shape[1], run.logits_SV.shape[1]
        if words[0] != words[1]:
            return Check(name, False, detail=f"{words[0]} logits, the reference has {words[1]}")
        noise, max_abs_P = reference.noise_at(comparison.sequence, positions)
        agreement = compare_logits(
            comparison.logits_PV,
            run.logits_SV[positions],
            margin_noise_P=NOISE_FACTOR * max_abs_P,
        )
        passed, bound = grade(agreement, noise)
        excess = agreement.rel_l2 / bound_float32(noise)
        rank = (not passed, excess if agreement.finite else np.inf)
        if worst is None or rank > (not worst[1], worst[0]):
            worst = (
                excess if agreement.finite else np.inf,
                passed,
                agreement,
                noise,
                bound,
                comparison,
            )
    assert worst is not None, name
    table = _tabulate(comparisons[0], reference) if name == "prefill" else {}
    _, passed, agreement, noise, bound, comparison = worst
    metrics = asdict(agreement) | {"noise": noise, "num_comparisons": len(comparisons)} | table
    position = int(comparison.positions_P[agreement.worst_position])
    where = "the prompt" if comparison.sequence < 0 else f"batch row {comparison.sequence}"
    detail = "" if passed else f"worst at token {position} of {where}"
    return Check(name, passed, metrics | {"worst_position": position}, bound, detail)


def _tabulate(comparison: Comparison, reference: FloatReference) -> dict[str, Any]:
    run = reference.run(comparison.sequence)
    positions = comparison.positions_P
    noise_P = np.sqrt(
        run.noise.error_P[positions] / np.maximum(run.noise.norm_P[positions], 1e-300)
    )
    table = tabulate_positions(
        comparison.logits_PV,
        run.logits_SV[positions],
        token_ids_P=run.ids_S[positions],
        noise_rel_l2_P=noise_P,
    )
    return {"positions": table}


def _inapplicable(setting: str, reference: FloatReference) -> str:
    if setting == "window":
        if reference.window is None:
            return "the model has no sliding window"
        if reference.window >= len(reference.prompt.ids_S):
            return f"the prompt doesn't pass the window of {reference.window} tokens"
    if setting == "left_padded_batch" and not reference.rows:
        return "the prompt is too short for a batch of unequal rows"
    return ""
