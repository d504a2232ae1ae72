"""Values that aren't a weight's: in which other way are they?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from assay.diagnosis.alignment import Alignment, StoredMatrix
from assay.diagnosis.finding import Cause
from assay.verification.weight_match import MatchedRows, Parameters

__all__ = ["explain_values", "find_rows", "read_as"]

Floats = npt.NDArray[np.float32]
_SAME = 0.9
_MOST_ELEMENTS = 1 << 24  # of a table of rows against rows


def explain_values(
    initializer: str, rows: MatchedRows, part: Floats, original: Floats, relative: float
) -> Cause:
    """Say which rows differ, and by what factor where one fits."""
    values, base = part.astype(np.float64), original.astype(np.float64)
    limit = 1e-6 * np.linalg.norm(base, axis=1) + 1e-12
    wrong = np.flatnonzero(np.linalg.norm(values - base, axis=1) > limit)
    values, base = values[wrong], base[wrong]
    factor = float((values * base).sum() / max(float((base**2).sum()), 1e-30))
    fits = float(np.linalg.norm(values - factor * base)) < 0.01 * float(
        np.linalg.norm(values - base)
    )
    where = f"rows {wrong[0]} to {wrong[-1]}" if len(wrong) else "no whole row"
    what = f"{where} ({len(wrong)} of {len(part)}) differ"
    if fits:
        what = f"{where} are {factor:.6g} times the checkpoint's"
    return Cause(
        id="weight_values",
        place=_place(rows.parameter),
        confidence=1.0,
        evidence=f"{initializer}: relL2 {relative:.3g} of the values; {what}",
        fix="write the checkpoint's values",
    )


def find_rows(
    values_NK: Floats, names: list[str], parameters: Parameters
) -> tuple[MatchedRows, ...]:
    """The matrix as rows of these weights in any order, each row once; empty where it isn't."""
    width = values_NK.shape[1]
    fitting = [name for name in names if parameters.by_name[name].shape[1] == width]
    heights = [int(parameters.by_name[name].shape[0]) for name in fitting]
    if not fitting or sum(heights) < len(values_NK):
        return ()
    if sum(heights) * len(values_NK) > _MOST_ELEMENTS:
        return ()
    originals = np.concatenate(
        [
            parameters.read(name, np.arange(height), transposed=False)
            for name, height in zip(fitting, heights, strict=True)
        ]
    )
    products = np.abs(_unit(values_NK) @ _unit(originals).T)
    best = products.argmax(1)
    if products.max(1).min() < _SAME or len(set(best.tolist())) < len(best):
        return ()
    owner = np.repeat(np.arange(len(fitting)), heights)
    firsts = np.cumsum([0, *heights])
    cuts = np.flatnonzero(np.diff(owner[best])) + 1
    found = []
    for piece in np.split(np.arange(len(best)), cuts):
        number = int(owner[best[piece[0]]])
        rows_R = best[piece] - firsts[number]
        found.append(MatchedRows(int(piece[0]), fitting[number], rows_R, transposed=False))
    return tuple(found)


def read_as(
    matrix: StoredMatrix,
    values_NK: Floats,
    places: tuple[MatchedRows, ...],
    alignment: Alignment,
) -> Cause:
    """What a matrix holds instead of the weights that belong there."""
    parameters = alignment.parameters
    original = np.concatenate(
        [parameters.read(r.parameter, r.rows_R, transposed=r.transposed) for r in places]
    )
    place = ", ".join(_place(rows.parameter) for rows in places)
    found = _relative(values_NK, original)
    cause, what, fix = "weight_values", "", "write the checkpoint's values"
    if original.shape[0] == original.shape[1] and _like(values_NK.T, original):
        cause, what = "weight_transposed", "it is the checkpoint's, transposed"
        fix = "store the weight the way that the operator reads it"
    elif matrix.matched:
        others = ", ".join(dict.fromkeys(_place(rows.parameter) for rows in matrix.matched))
        cause, what = "wrong_tensor", f"it holds {others}"
        fix = "store the weight of this place"
    elif not values_NK.any():
        what = "all zeros"
    elif _same_columns(values_NK, original):
        cause, what = "weight_permuted", "its columns are the checkpoint's in another order"
        fix = "store the columns in the order of the operator's input"
    else:
        same = _agree(values_NK, original)
        what = f"{same:.0%} of its rows are like the checkpoint's"
    return Cause(
        id=cause,
        place=place,
        confidence=0.9,
        evidence=f"{matrix.name}: relL2 {found:.3g} of the values; {what}",
        fix=fix,
    )


def _same_columns(values_NK: Floats, original_NK: Floats) -> bool:
    if values_NK.shape[1] ** 2 > _MOST_ELEMENTS:
        return False
    products = np.abs(_unit(values_NK.T) @ _unit(original_NK.T).T)
    best = products.argmax(1)
    return bool(products.max(1).min() > _SAME and len(set(best.tolist())) == len(best))


def _agree(a: Floats, b: Floats) -> float:
    return float(np.mean(np.abs((_unit(a) * _unit(b)).sum(1)) > _SAME))


def _like(a: Floats, b: Floats) -> bool:
    return _agree(np.asarray(a), b) > _SAME


def _unit(rows: Floats) -> Floats:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(norms, 1e-30), np.float32)


def _relative(a: Floats, b: Floats) -> float:
    error = float(np.linalg.norm(a.astype(np.float64) - b))
    return error / max(float(np.linalg.norm(b)), 1e-30)


def _place(parameter: str) -> str:
    return parameter.removesuffix(".weight")
