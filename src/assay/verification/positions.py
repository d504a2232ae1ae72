"""Agreement position by position, for plots and for naming the worst token.

Shapes: P positions, V vocabulary. Numbers are rounded to four digits: they are shown, not judged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["tabulate_positions"]

FloatArray = npt.NDArray[np.floating]
_TOP = 10
_BLOCK_ELEMENTS = 1 << 22


def tabulate_positions(
    candidate_PV: FloatArray,
    reference_PV: FloatArray,
    *,
    token_ids_P: npt.NDArray[np.int64],
    noise_rel_l2_P: npt.NDArray[np.float64] | None = None,
) -> dict[str, list[Any]]:
    """Columns of one value a position.

    corr, rel_l2, max_abs; kl: KL(reference || candidate) in nats; argmax_agrees; top10_overlap:
    share of the reference's ten likeliest words among the candidate's ten; noise_rel_l2: the
    reference's own rounding noise there.
    """
    step = max(1, _BLOCK_ELEMENTS // max(1, reference_PV.shape[1]))
    blocks = [
        _tabulate(candidate_PV[s : s + step], reference_PV[s : s + step])
        for s in range(0, len(reference_PV), step)
    ]
    names = ("corr", "rel_l2", "max_abs", "kl", "argmax_agrees", "top10_overlap")
    columns = (np.concatenate(column) for column in zip(*blocks, strict=True))
    table: dict[str, list[Any]] = {"token_ids": [int(i) for i in token_ids_P]}
    table |= {name: _plain(column) for name, column in zip(names, columns, strict=True)}
    if noise_rel_l2_P is not None:
        table["noise_rel_l2"] = _plain(noise_rel_l2_P)
    return table


def _tabulate(a_PV: FloatArray, b_PV: FloatArray) -> tuple[npt.NDArray[Any], ...]:
    a, b = a_PV.astype(np.float64), b_PV.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        centred_a, centred_b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
        norms = np.linalg.norm(centred_a, axis=1) * np.linalg.norm(centred_b, axis=1)
        corr = (centred_a * centred_b).sum(1) / norms
        rel_l2 = np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)
        log_a, log_b = _log_softmax(a), _log_softmax(b)
        kl = np.maximum((np.exp(log_b) * (log_b - log_a)).sum(1), 0.0)
    return corr, rel_l2, np.abs(a - b).max(1), kl, a.argmax(1) == b.argmax(1), _overlap(a, b)


def _overlap(a: FloatArray, b: FloatArray) -> npt.NDArray[np.float64]:
    top = min(_TOP, b.shape[1])
    first = np.argpartition(a, -top, axis=1)[:, -top:]
    second = np.argpartition(b, -top, axis=1)[:, -top:]
    return np.asarray((first[:, :, None] == second[:, None, :]).any(2).mean(1))


def _log_softmax(logits: FloatArray) -> FloatArray:
    shifted = logits - logits.max(1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))


def _plain(column: npt.NDArray[Any]) -> list[Any]:
    if column.dtype == bool:
        return [bool(value) for value in column]
    return [float(f"{value:.4g}") for value in column]
