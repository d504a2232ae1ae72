"""Stored matrices matched to the checkpoint's by value.

A matrix of the graph is one weight, several stacked, or one expert of many. A few rows of each
weight, normalised once, are held against the same rows of the matrix: one product for all weights
of a shape, so that the work grows with the number of matrices and not with its square times their
size. Shapes: N rows, K inputs, P probes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from assay.verification.weight_match import MatchedRows, Parameters

__all__ = ["ParameterIndex", "Rows"]

Floats = npt.NDArray[np.float32]
_NUM_PROBES = 6
_SAME_ROW = 0.9  # |correlation| of the median probe: a few wrong rows don't hide whose they are


class Rows(Protocol):
    """A matrix of which some rows are asked for."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


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
    """Every matrix of a reference as [outputs, inputs], whole and expert by expert.

    transposed: names of those that the reference keeps as [inputs, outputs]. skip: left out.
    """

    def __init__(
        self,
        parameters: Parameters,
        *,
        num_experts: int,
        transposed: Collection[str],
        skip: Collection[str],
    ) -> None:
        self.parameters = parameters
        self._groups: dict[int, dict[int, _Group]] = defaultdict(dict)  # width, height
        for name, parameter in parameters.by_name.items():
            if name in skip:
                continue
            height, width = parameter.shape
            if name in transposed:
                self._add(name, 0, int(width), int(height), transposed=True)
            else:
                self._add(name, 0, int(height), int(width), transposed=False)
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

    def match(self, matrix_NK: Rows, group_size: int = 0) -> list[MatchedRows]:
        """The weights that a matrix holds from its first row to its last; empty where none do.

        matrix_NK: an array, or whatever gives rows by their numbers. group_size: of codes whose
        scales and zero points aren't trusted; each group of them is then held against the weights
        by itself.
        """
        start, found = 0, []
        while start < len(matrix_NK):
            best: tuple[float, MatchedRows] | None = None
            for height, group in self._groups.get(matrix_NK.shape[1], {}).items():
                if start + height > len(matrix_NK):
                    continue
                probes = np.asarray(matrix_NK[start + group.probes_P], np.float32)
                if group_size:
                    scores = _correlate_groups(probes, group.stack(), group_size)
                else:
                    scores = _correlate(probes, group.stack())
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


def _correlate_groups(rows_PK: Floats, weights_WPK: Floats, group_size: int) -> npt.NDArray[Any]:
    """For each weight the mean |correlation| of whole groups, whatever their scale and offset."""
    whole = rows_PK.shape[-1] // group_size * group_size
    if not whole:
        return np.zeros(len(weights_WPK))
    rows = _centre(rows_PK[:, :whole].reshape(len(rows_PK), -1, group_size))
    weights = _centre(weights_WPK[..., :whole].reshape(*weights_WPK.shape[:2], -1, group_size))
    products = np.abs(np.einsum("pgk,wpgk->wpg", rows, weights))
    return np.asarray(products.mean((1, 2)))


def _centre(groups: Floats) -> Floats:
    return _normalize(groups - groups.mean(-1, keepdims=True))
