"""Stored matrices matched to the checkpoint's by value.

A matrix of the graph is one weight, several stacked, or one expert of many. A few rows of each
weight, normalised once, are held against the same rows of the matrix: one product for all weights
of a shape, so that the work grows with the number of matrices and not with its square times their
size. Shapes: N rows, K inputs, P probes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.verification.weight_match import MatchedRows, Parameters

__all__ = ["ParameterIndex"]

Floats = npt.NDArray[np.float32]
_NUM_PROBES = 6
_SAME_ROW = 0.9  # |correlation| of the median probe: a few wrong rows don't hide whose they are


@dataclass
class _Group:
    """Weights of one height and width."""

    probes_P: npt.NDArray[np.int64]
    places: list[tuple[str, int, bool]] = field(default_factory=list)  # name, first row, transposed
    rows: list[Floats] = field(default_factory=list)

    def stack(self) -> Floats:
        """Unit rows [weights, P, K]."""
        if len(self.rows) > 1 or self.rows[0].ndim == 2:
            self.rows = [np.stack(self.rows)] if self.rows[0].ndim == 2 else self.rows
        return self.rows[0]


class ParameterIndex:
    """Every matrix of a reference, whole, transposed, and expert by expert; `skip` left out."""

    def __init__(self, parameters: Parameters, num_experts: int, skip: tuple[str, ...]) -> None:
        self.parameters = parameters
        self._groups: dict[int, dict[int, _Group]] = defaultdict(dict)  # width, height
        for name, parameter in parameters.by_name.items():
            if name in skip:
                continue
            height, width = parameter.shape
            self._add(name, 0, int(height), int(width), transposed=False)
            if height != width:
                self._add(name, 0, int(width), int(height), transposed=True)
            if num_experts > 1 and height % num_experts == 0 and ".experts" in name:
                self._add_experts(name, int(height), int(width), num_experts)

    def _add(self, name: str, first: int, height: int, width: int, *, transposed: bool) -> None:
        probes = np.unique(np.linspace(0, height - 1, _NUM_PROBES).astype(np.int64))
        group = self._groups[width].setdefault(height, _Group(probes))
        rows = self.parameters.read(name, first + probes, transposed=transposed)
        group.places.append((name, first, transposed))
        group.rows.append(_normalize(rows))

    def _add_experts(self, name: str, height: int, width: int, num_experts: int) -> None:
        each = height // num_experts
        for expert in range(num_experts):
            self._add(name, expert * each, each, width, transposed=False)
            if each % 2 == 0:
                for half in range(2):
                    first = expert * each + half * each // 2
                    self._add(name, first, each // 2, width, transposed=False)

    def match(self, matrix_NK: Floats) -> list[MatchedRows]:
        """The weights that a matrix holds from its first row to its last; empty where none do."""
        start, found = 0, []
        while start < len(matrix_NK):
            best: tuple[float, MatchedRows] | None = None
            for height, group in self._groups.get(matrix_NK.shape[1], {}).items():
                if start + height > len(matrix_NK):
                    continue
                scores = _correlate(matrix_NK[start + group.probes_P], group.stack())
                number = int(np.argmax(scores))
                if best is None or scores[number] > best[0]:
                    name, first, transposed = group.places[number]
                    rows_R = np.arange(first, first + height)
                    best = float(scores[number]), MatchedRows(start, name, rows_R, transposed)
            if best is None or best[0] < _SAME_ROW:
                return []
            found.append(best[1])
            start += len(best[1].rows_R)
        return found


def _normalize(rows: Floats) -> Floats:
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.maximum(norms, 1e-30), np.float32)


def _correlate(rows_PK: Floats, weights_WPK: Floats) -> npt.NDArray[Any]:
    """For each weight the median |correlation| of its probes; two rows of zeros agree."""
    products = np.abs(np.einsum("pk,wpk->wp", _normalize(rows_PK), weights_WPK))
    empty = ~rows_PK.any(-1) & ~weights_WPK.any(-1)
    return np.asarray(np.median(np.where(empty, 1.0, products), axis=1))
