"""Packed weights that decode to something else: which reading of the bytes gives the original?

The codes alone are held against the checkpoint's weight first, each group with the scale and zero
point that fit it best: that tells whether the codes are right, or right in another order. What the
stored scales and zero points lack against the fitted ones is the fault. Shapes: N rows, K inputs,
G groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assay.diagnosis.finding import Cause
from assay.verification.folder import ModelFolder
from assay.verification.weight_match import MatchedRows, Parameters
from assay.verification.weights import DecodedRows, PackedTensor, decode_rows

__all__ = ["explain_encoding", "list_codes"]

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]

_MOST_ELEMENTS = 1 << 21  # the first rows tell how all were written
_ROUNDING = 12**-0.5  # of a step: the error of rounding to nearest
_HEALTHY = 2.0  # times that: what other methods than rounding to nearest stay below
_FITS = 1.5
_SCALED = 0.03  # a factor on all scales further from one than this is none of rounding's


@dataclass(frozen=True)
class _Fit:
    """Best scale and zero point of each group [N, G], and the relL2 that is left."""

    scales_NG: Floats
    zero_points_NG: Floats
    rel_l2: float


def explain_encoding(
    folder: ModelFolder,
    tensor: PackedTensor,
    stretches: list[MatchedRows],
    parameters: Parameters,
) -> Cause | None:
    """What is wrong with a packed weight against its original; None where nothing is."""
    decoded = _decode_first(folder, tensor)
    original = _read_rows(stretches, parameters, len(decoded.codes_NK))
    found = _relative(decoded.weight_NK, original)
    step = float(np.sqrt(np.mean(decoded.scales_NK.astype(np.float64) ** 2)))
    rms = max(float(np.sqrt(np.mean(original.astype(np.float64) ** 2))), 1e-30)
    codes_fit = _fit(decoded.codes_NK, original, tensor.group_size)
    rounding = min(_ROUNDING * step / rms, codes_fit.rel_l2 * _FITS)
    factor = _find_factor(decoded.weight_NK, original)
    if found <= _HEALTHY * rounding + 1e-3 and abs(factor - 1) < _SCALED:
        return None
    name, what, fix = _name(tensor, decoded, original, codes_fit)
    return Cause(
        id=name,
        place=", ".join(dict.fromkeys(s.parameter.removesuffix(".weight") for s in stretches)),
        confidence=0.5 if name == "encoding" else 1.0,
        evidence=f"{tensor.packed} decodes with relL2 {found:.3g}, rounding explains "
        f"{rounding:.3g}; {what}",
        fix=fix,
    )


def _name(
    tensor: PackedTensor, decoded: DecodedRows, original: Floats, as_stored: _Fit
) -> tuple[str, str, str]:
    """(cause, what, fix): codes first, then zero points, then scales."""
    groups = decoded.scales_NK[:, :: tensor.group_size]
    likely = (
        _FITS * _ROUNDING * float(np.median(np.abs(groups))) / max(float(original.std()), 1e-30)
    )
    if as_stored.rel_l2 > max(likely, 0.02):
        for reading, codes in list_codes(decoded.codes_NK, tensor.bits).items():
            other = _fit(codes, original, tensor.group_size)
            if reading and other.rel_l2 < 0.5 * as_stored.rel_l2 and other.rel_l2 <= likely:
                what, fix = _CODES[reading.strip()]
                return reading.strip(), f"{what}: {other.rel_l2:.3g}", fix
        if as_stored.rel_l2 > 0.5:
            fix = "pack the codes of the checkpoint's rows, in the order of the operator's input"
            return "encoding", "the codes are like no reading of the weight", fix
    zeros = decoded.zero_points_NK[:, :: tensor.group_size]
    ratio = np.asarray(as_stored.scales_NG / np.where(groups == 0, 1, groups), np.float32)
    shift = float(np.median(as_stored.zero_points_NG - zeros))
    if abs(shift) > 0.4:
        return (
            "zero_point",
            f"zero points {shift:+.2g} away from those that fit",
            "store the zero point that the codes were rounded with (8 for 4 bits when absent)",
        )
    return _name_scales(ratio, groups, as_stored.scales_NG)


def _name_scales(ratio_NG: Floats, stored_NG: Floats, fitted_NG: Floats) -> tuple[str, str, str]:
    negative = float(np.mean(ratio_NG < 0))
    typical = float(np.median(np.abs(ratio_NG)))
    even = float(np.mean(np.abs(np.abs(ratio_NG) / max(typical, 1e-30) - 1) < 0.1)) > 0.9
    if even and negative > 0.02 and abs(typical - 1) < 0.1:
        return (
            "abs_scales",
            f"{negative:.0%} of the groups need a negative scale",
            "keep the scales' signs: the grid's extreme code belongs to the group's extreme value",
        )
    if even:
        return (
            "scale_factor",
            f"scales are {1 / typical:.4g} times those that fit",
            "store the scales that the codes were made with",
        )
    for what, other in (
        ("the other way round", stored_NG.reshape(stored_NG.shape[::-1]).T),
        ("one group further", np.roll(stored_NG, -1, 1)),
        ("one group back", np.roll(stored_NG, 1, 1)),
        ("one row further", np.roll(stored_NG, -1, 0)),
        ("one row back", np.roll(stored_NG, 1, 0)),
    ):
        near = np.abs(other / np.where(fitted_NG == 0, 1, fitted_NG) - 1) < 0.15
        if other.shape == fitted_NG.shape and float(near.mean()) > 0.9:
            name = "scales_transposed" if "round" in what else "scales_order"
            return name, f"scales fit read {what}", "store scales as [rows, groups], in order"
    wrong = float(np.mean(np.abs(ratio_NG - 1) > 0.15))
    return (
        "scale_values",
        f"{wrong:.0%} of the groups have another scale than fits",
        "store the scales that the codes were made with",
    )


def list_codes(codes_NK: Codes, bits: int) -> dict[str, Codes]:
    """The codes as they are (""), and read in other ways, by the cause that each would show."""
    half = np.uint8(1 << (bits - 1))
    readings = {"": codes_NK, "signed_codes": codes_NK ^ half}
    last = np.uint8((1 << bits) - 1)
    readings["codes_wrapped"] = (codes_NK - 1) & last
    readings["codes_wrapped "] = (codes_NK + 1) & last
    if bits == 4 and codes_NK.shape[1] % 2 == 0:
        pairs = codes_NK.reshape(len(codes_NK), -1, 2)[..., ::-1]
        readings["nibble_order"] = np.ascontiguousarray(pairs).reshape(codes_NK.shape)
    return readings


_CODES = {
    "signed_codes": (
        "with codes as two's complement",
        "add 2^(bits-1) to signed codes before packing",
    ),
    "codes_wrapped": (
        "with codes one off, the last one being the first",
        "add the zero point before codes are cut to their bits",
    ),
    "nibble_order": ("with nibbles exchanged", "pack the low nibble first"),
}


def _fit(codes_NK: Codes, original_NK: Floats, group_size: int) -> _Fit:
    """Least squares of original = scale * (code - zero point), group by group."""
    codes, count = _group(codes_NK.astype(np.float32), group_size)
    wanted, _ = _group(original_NK, group_size)
    mean_c, mean_w = codes.sum(-1) / count, wanted.sum(-1) / count
    inside = np.arange(codes.shape[-1]) < count[:, None]  # the last group may be shorter
    c = (codes - mean_c[..., None]) * inside
    w = (wanted - mean_w[..., None]) * inside
    scales = (c * w).sum(-1) / np.maximum((c * c).sum(-1), 1e-12)
    zeros = mean_c - mean_w / np.where(np.abs(scales) < 1e-12, 1e-12, scales)
    left = float(np.linalg.norm(w - scales[..., None] * c))
    return _Fit(
        scales.astype(np.float32),
        zeros.astype(np.float32),
        left / max(float(np.linalg.norm(original_NK)), 1e-30),
    )


def _group(values_NK: Floats, group_size: int) -> tuple[Floats, Floats]:
    """[N, G, group] with zeros behind the last, and how many of each group count [G]."""
    rows, inputs = values_NK.shape
    groups = -(-inputs // group_size)
    padded = np.zeros((rows, groups * group_size), np.float32)
    padded[:, :inputs] = values_NK
    count = np.full(groups, group_size, np.float32)
    count[-1] = inputs - (groups - 1) * group_size
    return padded.reshape(rows, groups, group_size), count


def _decode_first(folder: ModelFolder, tensor: PackedTensor) -> DecodedRows:
    most = max(1, _MOST_ELEMENTS // tensor.num_inputs)
    inside = slice(0, min(most, tensor.num_rows))
    rows = [part for _, part in decode_rows(folder, tensor, rows=inside)]
    return DecodedRows(
        np.concatenate([part.codes_NK for part in rows]),
        np.concatenate([part.zero_points_NK for part in rows]),
        np.concatenate([part.scales_NK for part in rows]),
    )


def _read_rows(stretches: list[MatchedRows], parameters: Parameters, num_rows: int) -> Floats:
    """The original of the first packed rows."""
    parts = []
    for stretch in stretches:
        wanted = stretch.rows_R[: max(0, num_rows - stretch.start)]
        if len(wanted):
            parts.append(parameters.read(stretch.parameter, wanted, transposed=stretch.transposed))
    return np.concatenate(parts)


def _find_factor(weight: Floats, original: Floats) -> float:
    """The factor on the weight that fits the original best; one where it isn't like it at all."""
    wide = weight.astype(np.float64)
    squares, cross = float((wide**2).sum()), float((wide * original).sum())
    length = (squares * float((original.astype(np.float64) ** 2).sum())) ** 0.5
    return cross / squares if cross > 0.8 * length > 0 else 1.0


def _relative(a: Floats, b: Floats) -> float:
    error = float(np.linalg.norm(a.astype(np.float64) - b))
    return error / max(float(np.linalg.norm(b)), 1e-30)
