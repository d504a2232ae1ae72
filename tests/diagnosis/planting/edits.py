"""Edits of a finished folder's graph; its weights are put inside the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tests.diagnosis.planting.fault import NothingError

__all__ = ["edit_graph", "find_graph", "find_stored"]


def find_graph(folder: Path) -> Path:
    """The graph of a folder."""
    return next(folder.rglob("*.onnx"))


def edit_graph(folder: Path, edit: Callable[[Any], None]) -> None:
    """Load a folder's graph with its weights, change it, and write it whole into its file.

    Raises NothingError where the edit changes nothing.
    """
    path = find_graph(folder)
    model = onnx.load(str(path))
    before = model.SerializeToString(deterministic=True)
    edit(model)
    if model.SerializeToString(deterministic=True) == before:
        raise NothingError
    onnx.save(model, str(path))


def find_stored(model: Any, weight: np.ndarray[Any, Any]) -> tuple[Any, bool, int]:
    """(initializer, whether transposed, first row) that holds a weight's values.

    Raises NothingError where none does, as in a graph that stores it another way.
    """
    for tensor in model.graph.initializer:
        if len(tensor.dims) != weight.ndim or tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        stored = numpy_helper.to_array(tensor)
        for transposed in (True, False) if weight.ndim == 2 else (False,):
            view = stored.T if transposed else stored
            if view.shape[1:] != weight.shape[1:]:
                continue
            for start in range(0, len(view) - len(weight) + 1, 1):
                if np.array_equal(view[start], weight[0]) and np.array_equal(
                    view[start : start + len(weight)], weight
                ):
                    return tensor, transposed, start
    raise NothingError
