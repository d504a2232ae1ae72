"""Proof that packed weights decode to the checkpoint's, within what their grid can hold.

A value lies at most half a step from its code's value; at the ends of a grid it may lie a whole
step away, because a signed symmetric grid (scale = the group's extreme / -2^(bits-1)) saturates
at the opposite extreme. Scales kept in fewer bits move each value by their rounding. A step may
not be wider than the group needs, or the first rule would hold for anything.
relL2 of round-to-nearest is 0.05 to 0.15 for int4; a sign lost in half of the groups gives
sqrt(2), so values above 1 are named an encoding fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from assay.verification.folder import ModelFolder
from assay.verification.packed_nodes import find_packed_tensors
from assay.verification.weight_match import (
    MatchedRows,
    Parameters,
    match_by_manifest,
    match_by_value,
)
from assay.verification.weights import (
    DecodedRows,
    PackedTensor,
    decode_rows,
    read_initializer,
)

if TYPE_CHECKING:
    import torch

__all__ = ["ENCODING_FAULT", "TensorFidelity", "prove_weights"]

ENCODING_FAULT = 1.0
_WIDEST_STEP = 1.02  # of the coarsest grid that still holds the group: extreme / (2^(bits-1) - 1)


@dataclass
class TensorFidelity:
    """How one packed tensor decodes.

    tensors: the checkpoint weights it holds; empty when none was found.
    rel_l2: of decoded against original. off_grid: share of elements further from their original
    than the grid allows. wide_groups: share of elements in groups with a needlessly wide step.
    """

    packed: str
    bits: int
    group_size: int
    tensors: tuple[str, ...]
    rel_l2: float = float("nan")
    off_grid: float = float("nan")
    wide_groups: float = float("nan")
    strict: bool = False

    @property
    def encoding_fault(self) -> bool:
        """Whether the codes mean something else than they were written for."""
        return not self.rel_l2 <= ENCODING_FAULT

    @property
    def passed(self) -> bool:
        """Within the grid's bound; without a manifest, where the method is unknown, by relL2."""
        if not self.tensors:
            return False
        if self.strict:
            return self.off_grid == 0 and self.wide_groups == 0
        return self.rel_l2 <= 2.0 ** (1 - self.bits) * 2.5


def prove_weights(folder: ModelFolder, model: torch.nn.Module) -> list[TensorFidelity]:
    """Compare each packed tensor with the reference's weights AND put its values in their place.

    The model is changed: afterwards it computes with the decoded weights, ready to be the truth
    for the graph. A tied embedding stays tied when the folder's two readers share one tensor.
    """
    packed = find_packed_tensors(folder)
    matches = {}
    parameters = Parameters(model)
    for tensor in packed:
        matches[tensor.packed] = _match(folder, tensor, parameters)
    parameters = _separate_tied_ends(model, packed, matches, parameters)
    return [_prove_tensor(folder, t, matches[t.packed], parameters) for t in packed]


def _match(
    folder: ModelFolder, tensor: PackedTensor, parameters: Parameters
) -> tuple[list[MatchedRows] | None, bool]:
    """(the rows it holds, whether the manifest says so)."""
    for entry in (folder.manifest or {}).get("weights", {}).values():
        if entry.get("initializers", {}).get("packed") == tensor.packed:
            return match_by_manifest(entry, tensor, parameters), True
    return match_by_value(folder, tensor, parameters), False


def _separate_tied_ends(
    model: torch.nn.Module,
    packed: list[PackedTensor],
    matches: dict[str, tuple[list[MatchedRows] | None, bool]],
    parameters: Parameters,
) -> Parameters:
    """Give the head a weight of its own unless one packed tensor serves embedding and head.

    Then point each end's match at its own parameter.
    """
    import torch

    embedding = model.get_input_embeddings()  # type: ignore[operator]
    head = model.get_output_embeddings()  # type: ignore[operator]
    if head is None or head.weight is not embedding.weight:
        return parameters
    names = {n for n, p in parameters.by_name.items() if p is embedding.weight}
    ends = [t for t in packed if any(m.parameter in names for m in matches[t.packed][0] or ())]
    if not ends or any(len(t.roles) == 2 for t in ends):
        return parameters
    head.weight = torch.nn.Parameter(head.weight.detach().clone(), requires_grad=False)
    parameters = Parameters(model)
    own = {"matmul": head.weight, "embedding": embedding.weight}
    for tensor in ends:
        name = next(n for n, p in parameters.by_name.items() if p is own[tensor.roles[0]])
        rows, by_manifest = matches[tensor.packed]
        moved = [MatchedRows(m.start, name, m.rows_R, m.transposed) for m in rows or ()]
        matches[tensor.packed] = moved, by_manifest
    return parameters


def _prove_tensor(
    folder: ModelFolder,
    tensor: PackedTensor,
    match: tuple[list[MatchedRows] | None, bool],
    parameters: Parameters,
) -> TensorFidelity:
    stretches, strict = match
    names = tuple(dict.fromkeys(m.parameter for m in stretches or ()))
    fidelity = TensorFidelity(tensor.packed, tensor.bits, tensor.group_size, names, strict=strict)
    if stretches is None:
        return fidelity
    slack = _scale_slack(folder, tensor)
    sums = np.zeros(4)  # squared error, squared norm, off-grid elements, elements in wide groups
    for rows, decoded in decode_rows(folder, tensor):
        for original_RK, part in _pair(stretches, rows, decoded, parameters):
            sums += _measure(original_RK, part, tensor, slack)
    for stretch in stretches:
        parameters.replace(stretch, folder, tensor)
    size = tensor.num_rows * tensor.num_inputs
    fidelity.rel_l2 = float(np.sqrt(sums[0] / sums[1])) if sums[1] else float(sums[0] > 0)
    fidelity.off_grid, fidelity.wide_groups = float(sums[2] / size), float(sums[3] / size)
    return fidelity


def _pair(
    stretches: list[MatchedRows], rows: slice, decoded: DecodedRows, parameters: Parameters
) -> Iterator[tuple[npt.NDArray[np.float32], DecodedRows]]:
    """Yield originals beside decoded rows."""
    for stretch in stretches:
        start = max(rows.start, stretch.start)
        stop = min(rows.stop, stretch.start + len(stretch.rows_R))
        if start >= stop:
            continue
        index_R = stretch.rows_R[start - stretch.start : stop - stretch.start]
        inside = slice(start - rows.start, stop - rows.start)
        part = DecodedRows(
            decoded.codes_NK[inside], decoded.zero_points_NK[inside], decoded.scales_NK[inside]
        )
        yield parameters.read(stretch.parameter, index_R, transposed=stretch.transposed), part


def _scale_slack(folder: ModelFolder, tensor: PackedTensor) -> float:
    """By how many steps rounded scales move the value that is furthest from the zero point."""
    scales = read_initializer(folder, tensor.scales).astype(np.float32)
    with np.errstate(over="ignore"):
        is_half = np.array_equal(scales.astype(np.float16).astype(np.float32), scales)
    bits_kept = 11 if is_half else 8 if _is_bfloat16(scales) else 22
    return float(2.0 ** (tensor.bits - bits_kept)) + 1e-4


def _is_bfloat16(scales: npt.NDArray[np.float32]) -> bool:
    return not (np.ascontiguousarray(scales).view(np.uint32) & 0xFFFF).any()


def _measure(
    original_RK: npt.NDArray[np.float32], decoded: DecodedRows, tensor: PackedTensor, slack: float
) -> npt.NDArray[np.float64]:
    """Squared error and norm, and how many elements break each rule of the grid."""
    step_RK = np.abs(decoded.scales_NK)
    error_RK = np.abs(decoded.weight_NK - original_RK)
    at_end = (decoded.codes_NK == 0) | (decoded.codes_NK == (1 << tensor.bits) - 1)
    # Only outwards: a value beyond the last code saturates, one inside the grid never does.
    outward = np.abs(original_RK) >= np.abs(decoded.weight_NK)
    allowed = np.where(at_end & outward, 1.0, 0.5) + slack
    tiny = 6e-8 * 2.0**tensor.bits  # scales below the smallest half-precision number
    off_grid = error_RK > allowed * step_RK + tiny
    extremes_RK = _group_extremes(original_RK, tensor.group_size)
    widest_RK = extremes_RK / max(1, 2 ** (tensor.bits - 1) - 1)
    # A group of zeros may have any scale: it must decode to zeros, which off_grid sees.
    wide = (step_RK > widest_RK * _WIDEST_STEP + tiny) & (extremes_RK > 0)
    off_grid |= (extremes_RK == 0) & (decoded.weight_NK != 0)
    norm = np.square(original_RK, dtype=np.float64).sum()
    return np.asarray(
        [np.square(error_RK, dtype=np.float64).sum(), norm, off_grid.sum(), wide.sum()]
    )


def _group_extremes(weight_RK: npt.NDArray[np.float32], group_size: int) -> npt.NDArray[np.float32]:
    """The largest magnitude of each element's group, spread over its elements."""
    num_rows, num_inputs = weight_RK.shape
    padding = -num_inputs % group_size
    padded = np.pad(np.abs(weight_RK), ((0, 0), (0, padding)))
    extremes = padded.reshape(num_rows, -1, group_size).max(2)
    return np.repeat(extremes, group_size, axis=1)[:, :num_inputs]
