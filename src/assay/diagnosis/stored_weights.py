"""Causes that lie in stored values, and the reference computing with the folder's own.

First what is where it belongs: its values against the checkpoint's. Then matrices that are like
no weight, or like another place's: held against the weights that their layer lacks. What was found
is put into the reference, so that it stands in the way of nothing that is looked at afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.diagnosis.alignment import Alignment, StoredMatrix
from assay.diagnosis.encodings import explain_encoding
from assay.diagnosis.finding import Cause
from assay.diagnosis.hypothesis import Hypothesis, Variant, replaced, values
from assay.diagnosis.readings import explain_values, find_rows, read_as
from assay.verification.weight_match import MatchedRows

if TYPE_CHECKING:
    import torch

__all__ = ["examine_order", "examine_weights"]

Floats = npt.NDArray[np.float32]
_ROUNDING = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def examine_weights(
    alignment: Alignment, model: torch.nn.Module
) -> tuple[list[Cause], list[str], Hypothesis]:
    """Return causes, notes, and what else may be; the folder's values are in the model afterwards.

    The hypothesis is that rows in another order are read as they lie.
    """
    reordered: list[tuple[StoredMatrix, tuple[MatchedRows, ...]]] = []
    strangers = {matrix.name for matrix in alignment.matrices if _is_stranger(alignment, matrix)}
    missing = _list_missing(alignment, strangers)
    causes: list[Cause] = []
    notes: list[str] = []
    placed: list[StoredMatrix] = []
    for matrix in alignment.matrices:
        if matrix.name not in strangers:
            causes += _examine(alignment, matrix)
            placed.append(matrix)
            continue
        fitting = _fit_first(alignment, matrix, missing)
        cause, places, in_order = _place_stranger(alignment, matrix, missing)
        if places and not in_order and fitting:
            reordered.append((matrix, fitting))
        causes += [cause] if cause is not None else []
        if places:
            placed.append(replace(matrix, matched=places))
        elif alignment.find_layer(matrix.stretches[0]) is not None:
            notes.append(f"{matrix.name} is like no weight of the checkpoint")
    for matrix in placed:  # only now: the original was needed until here
        _grant(alignment, matrix, model)
    return causes, notes, _describe_order(alignment, reordered)


def examine_order(alignment: Alignment, model: torch.nn.Module) -> list[Cause]:
    """Layers that stand in another order; the reference has the graph's afterwards."""
    order = alignment.order
    if order == sorted(order):
        return []
    moved = [place for place, layer in enumerate(order) if place != layer]
    parent, _, _ = alignment.layers[0].rpartition(".")
    holder, _, name = parent.rpartition(".")
    layers: Any = model.get_submodule(parent)
    setattr(model.get_submodule(holder), name, type(layers)([layers[layer] for layer in order]))
    return [
        Cause(
            id="layer_order",
            place=", ".join(alignment.layers[place] for place in moved),
            confidence=1.0,
            evidence=f"the graph's layers hold the weights of {', '.join(map(str, order))}",
            fix="write the layers in the checkpoint's order",
        )
    ]


def _is_stranger(alignment: Alignment, matrix: StoredMatrix) -> bool:
    """Like no weight, or like one of another layer than the one it is read in."""
    if not matrix.matched:
        return True
    here = {alignment.find_layer(stretch) for stretch in matrix.stretches}
    owners = {alignment.layer_of(rows.parameter) for rows in matrix.matched}
    return bool(alignment.streams) and None not in owners and not owners <= here


def _examine(alignment: Alignment, matrix: StoredMatrix) -> Iterator[Cause]:
    """A matrix in its place: encoding or values that aren't the checkpoint's."""
    folder, parameters = alignment.folder, alignment.parameters
    if matrix.packed is not None:
        cause = explain_encoding(folder, matrix.packed, list(matrix.matched), parameters)
        if cause is not None:
            yield cause
        return
    error_M, norm_M = np.sqrt(alignment.measure_matched(matrix))
    for rows, relative in zip(matrix.matched, error_M / np.maximum(norm_M, 1e-30), strict=True):
        if relative > _ROUNDING[folder.precision]:
            part = matrix.read(folder)[rows.start : rows.start + len(rows.rows_R)]
            original = parameters.read(rows.parameter, rows.rows_R, transposed=rows.transposed)
            yield explain_values(matrix.name, rows, part, original, float(relative))


def _list_missing(alignment: Alignment, strangers: set[str]) -> dict[int, list[str]]:
    """For each layer the matrices of the reference that the graph has nowhere, in order."""
    held = {
        rows.parameter
        for matrix in alignment.matrices
        if matrix.name not in strangers
        for rows in matrix.matched
    }
    missing: dict[int, list[str]] = {}
    for name in alignment.parameters.by_name:
        layer = alignment.layer_of(name)
        if name not in held and layer is not None:
            missing.setdefault(layer, []).append(name)
    return missing


def _place_stranger(
    alignment: Alignment, matrix: StoredMatrix, missing: dict[int, list[str]]
) -> tuple[Cause | None, tuple[MatchedRows, ...], bool]:
    """What a matrix is that isn't where it belongs, the weights in whose place it is, in order?"""
    layer = alignment.find_layer(matrix.stretches[0])
    if layer is None:
        return None, (), True
    values_NK = matrix.read(alignment.folder)
    lacking = missing.get(layer, [])
    if found := find_rows(values_NK, lacking, alignment.parameters):
        # The layer's own rows in another order: right where the graph knows of it.
        _strike(lacking, found)
        return next(_examine(alignment, replace(matrix, matched=found)), None), found, False
    for places in _fit(alignment, values_NK.shape, lacking):
        cause = None
        if matrix.packed is not None:
            parameters = alignment.parameters
            cause = explain_encoding(alignment.folder, matrix.packed, list(places), parameters)
        if cause is None:
            cause = read_as(matrix, values_NK, places, alignment)
        _strike(lacking, places)
        return cause, places, True
    return None, (), True


def _fit(
    alignment: Alignment, shape: tuple[int, ...], lacking: list[str]
) -> Iterator[tuple[MatchedRows, ...]]:
    """Weights, or runs of up to three, that a matrix of this shape may be meant to hold."""
    by_name = alignment.parameters.by_name
    for count in (1, 2, 3):
        for first in range(len(lacking) - count + 1):
            names = lacking[first : first + count]
            turned = [name in alignment.transposed for name in names]
            sizes = [
                tuple(by_name[name].shape)[:: -1 if t else 1]
                for name, t in zip(names, turned, strict=True)
            ]
            if sum(h for h, _ in sizes) != shape[0] or {w for _, w in sizes} != {shape[1]}:
                continue
            starts = np.cumsum([0, *(h for h, _ in sizes)])
            yield tuple(
                MatchedRows(int(start), name, np.arange(height), transposed)
                for start, name, (height, _), transposed in zip(
                    starts, names, sizes, turned, strict=False
                )
            )


def _fit_first(
    alignment: Alignment, matrix: StoredMatrix, missing: dict[int, list[str]]
) -> tuple[MatchedRows, ...]:
    layer = alignment.find_layer(matrix.stretches[0])
    lacking = missing.get(layer, []) if layer is not None else []
    shape = matrix.read(alignment.folder).shape
    return next(_fit(alignment, shape, lacking), ())


def _describe_order(
    alignment: Alignment, reordered: list[tuple[StoredMatrix, tuple[MatchedRows, ...]]]
) -> Hypothesis:
    """Rows that were found in another order than the checkpoint's, read as they lie."""

    def variants(model: torch.nn.Module) -> Iterator[Variant]:
        import torch

        named = dict(model.named_parameters(remove_duplicate=False))
        for matrix, places in reordered:
            values_NK = matrix.read(alignment.folder)
            targets = []
            for rows in places:
                part = values_NK[rows.start : rows.start + len(rows.rows_R)]
                part = part.T if rows.transposed else part
                tensor = torch.from_numpy(np.array(part)).to(named[rows.parameter])
                targets.append((named[rows.parameter], replaced(tensor)))
            place = ", ".join(rows.parameter.removesuffix(".weight") for rows in places)
            what = f"the rows of {matrix.name} as they lie"
            yield Variant(place, what, values(targets))

    return Hypothesis(
        "weight_permuted",
        "a large error from one weight on",
        "store the rows in the checkpoint's order",
        variants,
    )


def _strike(lacking: list[str], found: tuple[MatchedRows, ...]) -> None:
    for name in {rows.parameter for rows in found}:
        if name in lacking:
            lacking.remove(name)


def _grant(alignment: Alignment, matrix: StoredMatrix, model: torch.nn.Module) -> None:
    """Let the reference compute with the graph's values."""
    import torch

    named = dict(model.named_parameters(remove_duplicate=False))
    for place, index_R, values_RK in matrix.read_matched(alignment.folder):
        rows = matrix.matched[place]
        values, index = torch.from_numpy(np.array(values_RK)), torch.from_numpy(index_R)
        for name in alignment.list_roles(matrix, rows.parameter):
            parameter = named[name].detach()
            whole = parameter.reshape(-1, parameter.shape[-1])
            weight = whole.T if rows.transposed else whole
            weight[index.to(weight.device)] = values.to(weight)
