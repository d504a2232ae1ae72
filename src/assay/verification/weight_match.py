"""Which checkpoint rows each packed tensor holds: from the manifest, else by value.

Shapes: N rows of the packed matrix, K inputs. A match lists, in the packed matrix's row order,
the parameter and the row of it that each packed row came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.errors import RuntimeFolderError
from assay.verification.folder import ModelFolder
from assay.verification.streaming import find_stream
from assay.verification.weights import PackedTensor, decode_rows

if TYPE_CHECKING:
    import torch

__all__ = ["MatchedRows", "Parameters", "match_by_manifest", "match_by_value"]

_SAME_ROW = 0.9  # correlation of a decoded row with its original; int4 gives above 0.98


@dataclass(frozen=True)
class MatchedRows:
    """A stretch of packed rows: packed row `start + i` is row rows_R[i] of the parameter.

    transposed: the parameter is [K, N], so its rows are columns.
    """

    start: int
    parameter: str
    rows_R: npt.NDArray[np.int64]
    transposed: bool


class Parameters:
    """The reference's matrices by name; tied ones appear under each name.

    Experts stacked in three dimensions are seen as one matrix, expert after expert. They lie in
    the model, or in a checkpoint from which they are read as they are used.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.stream = find_stream(model)
        self.by_name: dict[str, torch.Tensor] = {
            name: parameter if parameter.ndim == 2 else parameter.detach().flatten(0, 1)
            for name, parameter in model.named_parameters(remove_duplicate=False)
            if parameter.ndim == 2 or (parameter.ndim == 3 and self.stream is None)
        }
        self._last: tuple[str, npt.NDArray[np.float32]] | None = None

    def read(
        self, name: str, index_R: npt.NDArray[np.int64], *, transposed: bool
    ) -> npt.NDArray[np.float32]:
        """Rows of a parameter, or columns of a transposed one, as the original has them."""
        if self.stream is None:
            weight = self.by_name[name].detach().cpu().numpy()
            return np.asarray((weight.T if transposed else weight)[index_R], np.float32)
        if transposed:
            columns: npt.NDArray[np.float32] = self._read_whole(name).T[index_R]
            return columns
        first, last = int(index_R.min()), int(index_R.max()) + 1
        if last - first <= 2 * len(index_R):
            stretch = self.stream.read_rows(name, first, last)
            return np.asarray(stretch[index_R - first])
        rows = [self.stream.read_rows(name, row, row + 1) for row in index_R.tolist()]
        return np.concatenate(rows)

    def replace(self, stretch: MatchedRows, folder: ModelFolder, tensor: PackedTensor) -> None:
        """Let the reference compute with the decoded values of a stretch from now on."""
        if self.stream is None:
            self._write(stretch, folder, tensor)
            return
        twin = self.by_name[stretch.parameter]
        for name, parameter in self.by_name.items():
            if parameter is twin:
                change = _Overlay(stretch, folder, tensor)
                self.stream.overlays.setdefault(name, []).append(change)

    def _write(self, stretch: MatchedRows, folder: ModelFolder, tensor: PackedTensor) -> None:
        import torch

        weight = self.by_name[stretch.parameter].detach()
        weight = weight.T if stretch.transposed else weight
        inside = slice(stretch.start, stretch.start + len(stretch.rows_R))
        for rows, decoded in decode_rows(folder, tensor, rows=inside):
            own = slice(rows.start - stretch.start, rows.stop - stretch.start)
            index = torch.from_numpy(stretch.rows_R[own]).to(weight.device)
            weight[index] = torch.from_numpy(decoded.weight_NK).to(weight.device)

    def _read_whole(self, name: str) -> npt.NDArray[np.float32]:
        assert self.stream is not None
        if self._last is None or self._last[0] != name:
            self._last = name, self.stream.read_rows(name)
        return self._last[1]

    def find(self, tensor_name: str) -> str | None:
        """The parameter whose dotted name shares the longest end with a checkpoint tensor's.

        transformers puts prefixes before and after checkpoint names ("model.", and
        "language_model.model." for "model.language_model."), but keeps their ends.
        """
        if tensor_name in self.by_name:
            return tensor_name
        wanted = tensor_name.split(".")[::-1]
        shared = {name: _shared_length(name.split(".")[::-1], wanted) for name in self.by_name}
        best = max(shared.values(), default=0)
        names = [name for name, length in shared.items() if length == best]
        if best < min(2, len(wanted)) or len(names) != 1:
            return None
        left_over = wanted[best:]
        return None if any(part.isdigit() for part in left_over) else names[0]


class _Overlay:
    """Puts decoded values over the rows of a parameter that is read from the checkpoint."""

    def __init__(self, stretch: MatchedRows, folder: ModelFolder, tensor: PackedTensor) -> None:
        self.stretch, self.folder, self.tensor = stretch, folder, tensor

    def __call__(self, part: slice, values: npt.NDArray[np.float32]) -> None:
        """Change rows `part` of the parameter, given as `values`, in place."""
        stretch, start = self.stretch, self.stretch.start
        if stretch.transposed:
            inside = slice(start, start + len(stretch.rows_R))
            for rows, decoded in decode_rows(self.folder, self.tensor, rows=inside):
                columns = stretch.rows_R[rows.start - start : rows.stop - start]
                values[:, columns] = decoded.weight_NK.T[part]
            return
        wanted = np.flatnonzero((stretch.rows_R >= part.start) & (stretch.rows_R < part.stop))
        if not len(wanted):
            return
        inside = slice(start + int(wanted[0]), start + int(wanted[-1]) + 1)
        for rows, decoded in decode_rows(self.folder, self.tensor, rows=inside):
            targets = stretch.rows_R[rows.start - start : rows.stop - start]
            own = (targets >= part.start) & (targets < part.stop)
            values[targets[own] - part.start] = decoded.weight_NK[own]


def _shared_length(a: Sequence[str], b: Sequence[str]) -> int:
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return min(len(a), len(b))


def match_by_manifest(
    entry: dict[str, Any], tensor: PackedTensor, parameters: Parameters
) -> list[MatchedRows] | None:
    """Read one manifest entry's parts; None when a part names no parameter of the reference.

    Raises RuntimeFolderError when the parts don't add up to the packed matrix.
    """
    matched, start = [], 0
    for part in _read_parts(entry, tensor):
        names = (part["tensor"], part.get("file_tensor"))
        name = next((found for n in names if n and (found := parameters.find(n))), None)
        if name is None:
            return None
        transposed = bool(part.get("transposed", False))
        height, width = parameters.by_name[name].shape[:: -1 if transposed else 1]
        rows_R = np.concatenate([np.arange(height)[slice(*piece)] for piece in part["rows"]])
        if width != tensor.num_inputs:
            raise RuntimeFolderError(
                tensor.packed, f"holds {tensor.num_inputs} inputs a row, but {name} has {width}"
            )
        matched.append(MatchedRows(start, name, rows_R, transposed))
        start += len(rows_R)
    if start != tensor.num_rows:
        raise RuntimeFolderError(
            tensor.packed,
            f"the manifest lists {start} rows for it, the graph {tensor.num_rows}",
            next_step="The manifest doesn't belong to this graph; export the model again.",
        )
    return matched


def _read_parts(entry: dict[str, Any], tensor: PackedTensor) -> list[dict[str, Any]]:
    parts = entry.get("parts")
    if not isinstance(parts, list) or not all(
        isinstance(part, dict) and {"tensor", "rows"} <= set(part) for part in parts
    ):
        raise RuntimeFolderError(
            "manifest.json",
            f"doesn't say which checkpoint rows {tensor.packed} holds",
            expected='a list "parts" of {"tensor": ..., "rows": ...}',
            next_step="Export the model again.",
        )
    return parts


def match_by_value(
    folder: ModelFolder, tensor: PackedTensor, parameters: Parameters, *, num_probes: int = 5
) -> list[MatchedRows] | None:
    """Find the parameters whose consecutive rows the packed matrix holds, or None.

    Works for one weight and for several stacked whole, as in a fused QKV. Rows that were
    reordered inside a weight are not found.
    """
    weight_NK = np.concatenate([rows.weight_NK for _, rows in decode_rows(folder, tensor)])
    matched: list[MatchedRows] = []
    start = 0
    while start < tensor.num_rows:
        found = _match_stretch(weight_NK, start, parameters, tensor, num_probes)
        if found is None:
            return None
        matched.append(found)
        start += len(found.rows_R)
    return matched


def _match_stretch(
    weight_NK: npt.NDArray[np.float32],
    start: int,
    parameters: Parameters,
    tensor: PackedTensor,
    num_probes: int,
) -> MatchedRows | None:
    """The whole parameter that begins at a packed row: its best-correlated probes decide."""
    best: tuple[float, MatchedRows] | None = None
    for name, parameter in parameters.by_name.items():
        for transposed in (False, True):
            height, width = parameter.shape[:: -1 if transposed else 1]
            if width != weight_NK.shape[1] or start + height > len(weight_NK):
                continue
            if height < len(weight_NK) - start and "embedding" in tensor.roles:
                continue
            probes = np.unique(np.linspace(0, height - 1, num_probes).astype(np.int64))
            for order_R in _list_orders(height, tensor):
                original = parameters.read(name, order_R[probes], transposed=transposed)
                score = _correlate_rows(weight_NK[start + probes], original)
                if best is None or score > best[0]:
                    best = score, MatchedRows(start, name, order_R, transposed)
    return best[1] if best and best[0] > _SAME_ROW else None


def _list_orders(height: int, tensor: PackedTensor) -> Iterator[npt.NDArray[np.int64]]:
    """Row orders to try: as the parameter has them; for experts also gate and up in turns."""
    plain_R = np.arange(height)
    yield plain_R
    experts = tensor.num_experts
    if experts > 1 and height == tensor.num_rows and height % (2 * experts) == 0:
        halves = plain_R.reshape(experts, 2, -1)
        yield np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(-1)


def _correlate_rows(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    """The lowest |correlation| of corresponding rows; a row of zeros agrees with anything."""
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    products = np.abs((a * b).sum(1))
    return float(np.min(np.where(norms > 0, products / np.maximum(norms, 1e-30), 1.0)))
