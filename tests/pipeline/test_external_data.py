"""model.onnx.data: aligned for mapping, nothing overlapping, shared bytes stored once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from assay.pipeline import export
from tests.pipeline.running import load_graph
from tests.pipeline.tiny import write_llama


def list_extents(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Name, offset and size of every tensor in the data file."""
    for tensor in load_graph(folder).graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            facts = {entry.key: entry.value for entry in tensor.external_data}
            assert facts["location"] == "model.onnx.data"
            size = (
                int(np.prod(tensor.dims))
                * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
            )
            assert int(facts["length"]) == size, tensor.name
            yield tensor.name, int(facts["offset"]), size


def check_extents(extents: list[tuple[str, int, int]], file_size: int) -> None:
    """Aligned, inside the file, and apart unless they are the same bytes."""
    end = 0
    for offset, size in sorted({(offset, size) for _, offset, size in extents}):
        assert offset % (65536 if size >= 1 << 20 else 4096) == 0, (offset, size)
        assert offset >= end, "two tensors overlap"
        end = offset + size
    assert end == file_size


def test_external_data_is_aligned_and_apart(folder: Path) -> None:
    """proves: B11. Control: a shifted or an overlapping tensor is found."""
    extents = list(list_extents(folder))
    size = (folder / "model.onnx.data").stat().st_size
    check_extents(extents, size)
    (name, offset, length), *others = sorted(extents, key=lambda extent: extent[1], reverse=True)
    for wrong in ((name, offset + 64, length), (name, offset - 4096 * 100, length)):
        with pytest.raises(AssertionError):
            check_extents([wrong, *others], size)


@pytest.mark.parametrize("choices", [{}, {"precision": "int4", "head": "int8"}], ids=str)
def test_large_tensors_are_aligned_for_mapping(tmp_path: Path, choices: dict[str, Any]) -> None:
    """Above 1 MiB the unit is 64 KiB, which Windows maps. proves: B11. Control: smaller ones."""
    checkpoint = write_llama(tmp_path / "checkpoint", vocab_size=20_000)
    folder = export(checkpoint, tmp_path / "out", check_loading=False, **choices).folder
    extents = list(list_extents(folder))
    check_extents(extents, (folder / "model.onnx.data").stat().st_size)
    assert sum(size >= 1 << 20 for _, _, size in extents) == 2
    assert any(offset % 65536 for _, offset, _ in extents), "small tensors don't waste space"


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_tied_table_is_stored_once(
    checkpoints: dict[bool, Path], tmp_path: Path, symmetric: bool
) -> None:
    """Embedding and head read the same bytes. proves: B11. Control: untied they don't."""
    choices: dict[str, Any] = {"precision": "int4", "head": "int4", "symmetric": symmetric}
    extents: dict[bool, dict[str, tuple[int, int]]] = {}
    uses: dict[bool, dict[str, list[str]]] = {}
    for tied, checkpoint in checkpoints.items():
        folder = export(checkpoint, tmp_path / str(tied), check_loading=False, **choices).folder
        extents[tied] = {name: (offset, size) for name, offset, size in list_extents(folder)}
        nodes = {node.name: list(node.input) for node in load_graph(folder).graph.node}
        uses[tied] = {name: nodes[name] for name in ("model.embed_tokens", "lm_head")}
    gather, head = uses[True]["model.embed_tokens"], uses[True]["lm_head"]
    assert gather[0] != head[1], "the two operators want different shapes"
    assert extents[True][gather[0]] == extents[True][head[1]], "of the same bytes"
    assert gather[2] == head[2], "scales"
    assert gather[3:4] == head[3:4], "zero points"
    assert len(gather) == (3 if symmetric else 4)
    groups = 3  # 72 inputs in groups of 32
    assert extents[True][head[1]][1] == 72 * groups * 16
    tables = [extent for name, extent in extents[True].items() if "embed" in name or "head" in name]
    assert len(set(tables)) == (2 if symmetric else 3)
    untied = uses[False]["model.embed_tokens"][0], uses[False]["lm_head"][1]
    assert extents[False][untied[0]] != extents[False][untied[1]]


def test_a_tied_float_table_is_stored_once(checkpoints: dict[bool, Path], tmp_path: Path) -> None:
    """proves: B11. Control: untied, the file holds it twice."""
    table = 72 * 72 * 4
    folder = export(checkpoints[True], tmp_path / "tied", check_loading=False).folder
    extents = list(list_extents(folder))
    assert [size for name, _, size in extents if "embed" in name or "head" in name] == [table]
    untied = export(checkpoints[False], tmp_path / "untied", check_loading=False).folder
    names = [name for name, _, _ in list_extents(untied) if "embed" in name or "head" in name]
    assert len(names) == 2
