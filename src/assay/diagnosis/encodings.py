"""Packed weights that decode to something else: which reading of the bytes gives the original?

Each reading is tried on the codes, zero points and scales as they are stored, and scored by relL2
against the checkpoint's weight, never against another decoding.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from assay.diagnosis.finding import Cause
from assay.verification.folder import ModelFolder
from assay.verification.weight_match import MatchedRows, Parameters
from assay.verification.weights import DecodedRows, PackedTensor, decode_rows

__all__ = ["explain_encoding"]

Floats = npt.NDArray[np.float32]
Reading = Callable[[DecodedRows, Floats, PackedTensor], Floats]

_MOST_ELEMENTS = 1 << 21  # the first rows tell how all were written
_HEALTHY = {8: 0.03, 4: 0.25, 2: 0.8}  # relL2 that rounding alone stays below


def explain_encoding(
    folder: ModelFolder,
    tensor: PackedTensor,
    stretches: list[MatchedRows],
    parameters: Parameters,
) -> Cause | None:
    """The reading that reconstructs the original, as a cause; None where none does."""
    most = max(1, _MOST_ELEMENTS // tensor.num_inputs)
    rows = [
        part for _, part in decode_rows(folder, tensor, rows=slice(0, min(most, tensor.num_rows)))
    ]
    decoded = DecodedRows(
        np.concatenate([part.codes_NK for part in rows]),
        np.concatenate([part.zero_points_NK for part in rows]),
        np.concatenate([part.scales_NK for part in rows]),
    )
    original = _read_rows(stretches, parameters, len(decoded.codes_NK))
    found = _relative(decoded.weight_NK, original)
    limit = _HEALTHY.get(tensor.bits, 0.25)
    if found <= limit:
        return None
    place = ", ".join(s.parameter.removesuffix(".weight") for s in stretches)
    best: tuple[float, str, str, str] | None = None
    for name, (reading, what, fix) in _READINGS.items():
        score = _relative(reading(decoded, original, tensor), original)
        if best is None or score < best[0]:
            best = score, name, what, fix
    if best is None or best[0] > limit or best[0] > 0.5 * found:
        return None
    score, name, what, fix = best
    return Cause(
        id=name,
        place=place,
        confidence=min(1.0, 1.0 - score / found),
        evidence=f"{tensor.packed} decodes with relL2 {found:.3g}; {what}: {score:.3g}",
        fix=fix,
    )


def _read_rows(stretches: list[MatchedRows], parameters: Parameters, num_rows: int) -> Floats:
    """The original of the first packed rows."""
    parts = []
    for stretch in stretches:
        wanted = stretch.rows_R[: max(0, num_rows - stretch.start)]
        if len(wanted):
            parts.append(parameters.read(stretch.parameter, wanted, transposed=stretch.transposed))
    return np.concatenate(parts)


def _relative(a: Floats, b: Floats) -> float:
    error = float(np.linalg.norm(a.astype(np.float64) - b))
    return error / max(float(np.linalg.norm(b)), 1e-30)


def _signed_scales(decoded: DecodedRows, original: Floats, tensor: PackedTensor) -> Floats:
    """Every group's sign chosen to fit: right only where signs were lost."""
    if (decoded.scales_NK < 0).any():
        return decoded.weight_NK
    inputs = decoded.codes_NK.shape[1]
    groups = np.arange(0, inputs, tensor.group_size)
    products = np.add.reduceat(decoded.weight_NK * original, groups, axis=1)
    signs = np.where(products < 0, -1.0, 1.0).astype(np.float32)
    return decoded.weight_NK * np.repeat(signs, tensor.group_size, axis=1)[:, :inputs]


def _swapped_nibbles(decoded: DecodedRows, original: Floats, tensor: PackedTensor) -> Floats:
    if tensor.bits != 4 or tensor.num_inputs % 2:
        return decoded.weight_NK
    codes = decoded.codes_NK.reshape(len(decoded.codes_NK), -1, 2)[..., ::-1]
    return _decode(codes.reshape(decoded.codes_NK.shape), decoded)


def _other_zero_point(decoded: DecodedRows, original: Floats, tensor: PackedTensor) -> Floats:
    middle = 1 << (tensor.bits - 1)
    candidates = [decoded.zero_points_NK + shift for shift in (-1, 1)]
    candidates += [np.full_like(decoded.zero_points_NK, z) for z in (0, middle - 1, middle)]
    readings = [
        (decoded.codes_NK.astype(np.float32) - zeros) * decoded.scales_NK for zeros in candidates
    ]
    return min(readings, key=lambda reading: _relative(reading, original))


def _signed_codes(decoded: DecodedRows, original: Floats, tensor: PackedTensor) -> Floats:
    """Codes meant as two's complement."""
    half = 1 << (tensor.bits - 1)
    codes = decoded.codes_NK.astype(np.int16)
    signed = np.where(codes >= half, codes - 2 * half, codes).astype(np.float32)
    return signed * decoded.scales_NK


def _scaled(decoded: DecodedRows, original: Floats, tensor: PackedTensor) -> Floats:
    weight = decoded.weight_NK.astype(np.float64)
    factor = float((weight * original).sum() / max(float((weight**2).sum()), 1e-30))
    return (weight * factor).astype(np.float32)


def _transposed_scales(decoded: DecodedRows, original: Floats, tensor: PackedTensor) -> Floats:
    inputs = decoded.codes_NK.shape[1]
    scales = decoded.scales_NK[:, :: tensor.group_size]
    turned = scales.reshape(scales.shape[::-1]).T
    spread = np.repeat(turned, tensor.group_size, axis=1)[:, :inputs]
    weight_NK = (decoded.codes_NK.astype(np.float32) - decoded.zero_points_NK) * spread
    return np.asarray(weight_NK, np.float32)


def _decode(codes: npt.NDArray[np.uint8], decoded: DecodedRows) -> Floats:
    return (codes.astype(np.float32) - decoded.zero_points_NK) * decoded.scales_NK


_READINGS: dict[str, tuple[Reading, str, str]] = {
    "abs_scales": (
        _signed_scales,
        "with a sign for each group",
        "keep the scales' signs: the grid's extreme code belongs to the group's extreme value",
    ),
    "nibble_order": (_swapped_nibbles, "with nibbles exchanged", "pack the low nibble first"),
    "zero_point": (
        _other_zero_point,
        "with another zero point",
        "store the zero point that the codes were rounded with (8 for 4 bits when absent)",
    ),
    "signed_codes": (
        _signed_codes,
        "with codes as two's complement",
        "add 2^(bits-1) to signed codes before packing",
    ),
    "scale_factor": (_scaled, "times one factor", "store the scales that the codes were made with"),
    "scales_transposed": (
        _transposed_scales,
        "with scales read the other way round",
        "store scales as [rows, groups]",
    ),
}
