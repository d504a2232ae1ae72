"""How far one set of logits lies from another, with fixed definitions.

Shapes: P positions, V vocabulary. Everything is summed in float64, a block of positions at a
time, so that a 262,144-word vocabulary costs megabytes and not gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = [
    "Agreement",
    "Noise",
    "compare_logits",
    "extend_noise",
    "measure_noise",
    "relative_l2",
]

FloatArray = npt.NDArray[np.floating]
_BLOCK_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class Agreement:
    """What one comparison of candidate and reference logits found.

    corr: Pearson correlation of the flattened logits; blind to scale.
    rel_l2: ||candidate - reference|| / ||reference||; not blind to scale.
    max_abs: the largest difference of one logit.
    scale: the factor that best maps reference to candidate (least squares); 1 when healthy.
    kl_nats_per_token: mean over positions of KL(reference || candidate).
    argmax_counted: positions whose reference margin exceeds the noise; only they count.
    argmax_mismatches: counted positions where the two argmaxes differ.
    argmax_share: agreeing share of ALL positions, near ties included.
    worst_position, worst_rel_l2: the position with the largest relative error.
    first_mismatch: the first counted position that differs, or -1.
    finite: False when the candidate holds NaN or infinity (the numbers above are then NaN).
    """

    num_positions: int
    corr: float
    rel_l2: float
    max_abs: float
    scale: float
    kl_nats_per_token: float
    argmax_counted: int
    argmax_mismatches: int
    argmax_share: float
    worst_position: int
    worst_rel_l2: float
    first_mismatch: int
    finite: bool


@dataclass(frozen=True)
class Noise:
    """The rounding noise of a reference run, position by position.

    error_P, norm_P: squared L2 norms of (float32 - float64) and of float64.
    max_abs_P: the largest difference of one logit at each position.
    """

    error_P: npt.NDArray[np.float64]
    norm_P: npt.NDArray[np.float64]
    max_abs_P: npt.NDArray[np.float64]

    def rel_l2(self, positions: slice | npt.NDArray[np.int64] = slice(None)) -> float:
        """Relative L2 of float32 against float64 over some positions."""
        norm = float(self.norm_P[positions].sum())
        return float(np.sqrt(self.error_P[positions].sum() / norm)) if norm else 0.0


def relative_l2(candidate: FloatArray, reference: FloatArray) -> float:
    """||candidate - reference|| / ||reference|| over whole arrays of any shape."""
    shape = (-1, reference.shape[-1])
    error = norm = 0.0
    for a, b in _blocks(candidate.reshape(shape), reference.reshape(shape)):
        error += float(np.square(a - b).sum())
        norm += float(np.square(b).sum())
    return float(np.sqrt(error / norm)) if norm else float(np.sqrt(error))


def measure_noise(float32_PV: FloatArray, float64_PV: FloatArray) -> Noise:
    """Compare the float32 run of a model with its float64 run."""
    parts = [
        (np.square(a - b).sum(1), np.square(b).sum(1), np.abs(a - b).max(1))
        for a, b in _blocks(float32_PV, float64_PV)
    ]
    error_P, norm_P, max_abs_P = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Noise(error_P, norm_P, max_abs_P)


def extend_noise(noise: Noise, logits_PV: FloatArray) -> Noise:
    """Noise for every position of logits [P, V] from that of the first ones.

    Later positions get the measured ones' relL2 and mean largest difference.
    """
    later_PV = logits_PV[len(noise.norm_P) :]
    norm_P = np.concatenate([np.square(b).sum(1) for _, b in _blocks(later_PV, later_PV)] or [[]])
    largest_P = np.full(len(norm_P), noise.max_abs_P.mean())
    return Noise(
        np.concatenate([noise.error_P, norm_P * noise.rel_l2() ** 2]),
        np.concatenate([noise.norm_P, norm_P]),
        np.concatenate([noise.max_abs_P, largest_P]),
    )


def compare_logits(
    candidate_PV: FloatArray,
    reference_PV: FloatArray,
    *,
    margin_noise_P: npt.NDArray[np.float64] | None = None,
) -> Agreement:
    """Compare candidate logits with the reference's at the same positions.

    margin_noise_P: how far each logit may move at each position without meaning anything; an
    argmax counts only where the reference leads by more than twice that. None counts them all.
    """
    assert candidate_PV.shape == reference_PV.shape, (candidate_PV.shape, reference_PV.shape)
    num_positions = len(reference_PV)
    sums = np.zeros(5)  # a, b, aa, bb, ab
    columns = [_compare_block(a, b, sums) for a, b in _blocks(candidate_PV, reference_PV)]
    error_P, norm_P, max_abs_P, kl_P, same_P, margin_P = (
        np.concatenate(column) for column in zip(*columns, strict=True)
    )
    finite = bool(np.isfinite(error_P).all())
    threshold_P = 0.0 if margin_noise_P is None else 2.0 * margin_noise_P
    counted_P = margin_P > threshold_P
    missed = np.flatnonzero(counted_P & ~same_P)
    relative_P = np.sqrt(error_P / np.maximum(norm_P, 1e-300))
    worst = int(np.argmax(np.where(np.isfinite(relative_P), relative_P, np.inf)))
    corr, scale = _correlate(sums, reference_PV.size) if finite else (np.nan, np.nan)
    return Agreement(
        num_positions=num_positions,
        corr=corr,
        rel_l2=float(np.sqrt(error_P.sum() / max(float(norm_P.sum()), 1e-300))),
        max_abs=float(max_abs_P.max()),
        scale=scale,
        kl_nats_per_token=float(kl_P.mean()),
        argmax_counted=int(counted_P.sum()),
        argmax_mismatches=len(missed),
        argmax_share=float(same_P.mean()),
        worst_position=worst,
        worst_rel_l2=float(relative_P[worst]),
        first_mismatch=int(missed[0]) if len(missed) else -1,
        finite=finite,
    )


def _blocks(
    a_PV: FloatArray, b_PV: FloatArray
) -> Iterator[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    step = max(1, _BLOCK_ELEMENTS // max(1, b_PV.shape[-1]))
    for start in range(0, len(b_PV), step):
        rows = slice(start, start + step)
        yield a_PV[rows].astype(np.float64), b_PV[rows].astype(np.float64)


def _compare_block(
    a: npt.NDArray[np.float64], b: npt.NDArray[np.float64], sums: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.generic], ...]:
    """Add to the five moments in place; return the columns of this block's positions."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = a - b
        norm = np.square(b).sum(1)
        sums += [a.sum(), b.sum(), np.square(a).sum(), norm.sum(), (a * b).sum()]
        log_a, log_b = _log_softmax(a), _log_softmax(b)
        kl = (np.exp(log_b) * (log_b - log_a)).sum(1)
    top_two = np.partition(b, -2, axis=1)[:, -2:] if b.shape[1] > 1 else np.zeros((len(b), 2))
    return (
        np.square(difference).sum(1),
        norm,
        np.abs(difference).max(1),
        kl,
        a.argmax(1) == b.argmax(1),
        top_two[:, 1] - top_two[:, 0],
    )


def _log_softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shifted = logits - logits.max(1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))


def _correlate(sums: npt.NDArray[np.float64], size: int) -> tuple[float, float]:
    sum_a, sum_b, sum_aa, sum_bb, sum_ab = (float(value) for value in sums)
    covariance = sum_ab - sum_a * sum_b / size
    variance = (sum_aa - sum_a**2 / size) * (sum_bb - sum_b**2 / size)
    corr = covariance / variance**0.5 if variance > 0 else float("nan")
    return corr, sum_ab / sum_bb if sum_bb else float("nan")
