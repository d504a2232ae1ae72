"""A quantized graph computes what a float graph computes from the decoded weights.

The rounded export runs with accuracy_level 0. The reference is an fp32 export of a checkpoint
whose weights were rounded and decoded beforehand: so every format, group and row must be the one
that was asked for, in the place where it belongs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from assay.pipeline import export
from assay.quantization import Grid, dequantize_rows, quantize_rows
from tests.pipeline.running import draw_ids, find_rel_l2, run_logits
from tests.pipeline.tiny import Tensors, make_config, make_tensors, write_llama

# Measured: 0 in every case with GroupQueryAttention (both operators add in the same order), 7e-7
# with decomposed attention, whose reference has GroupQueryAttention.
BOUND = 2e-6
PARTIAL = {"hidden_size": 72, "intermediate_size": 88}
TIED = {"tie_word_embeddings": True}
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """options: of the export. formats: (pattern over tensors, format) that it must mean, first
    match wins; a format is (bits, group size, symmetric), float16 or None for float32."""

    options: dict[str, Any]
    formats: tuple[tuple[str, Any], ...]
    checkpoint: dict[str, Any] = field(default_factory=dict)


def grids(bits: int, group_size: int = 32, symmetric: bool = True, head: int = 8) -> Any:
    """Formats of a plain quantized export: head, embedding (never below 8 bits), the rest."""
    return (
        ("lm_head.*", (head, group_size, symmetric)),
        ("model.embed_tokens.*", (8, group_size, symmetric)),
        ("*_proj.*", (bits, group_size, symmetric)),
    )


def tied_grids(bits: int, head: int, group_size: int = 32, symmetric: bool = True) -> Any:
    """The same where the embedding is the head."""
    return (
        ("model.embed_tokens.*", (head, group_size, symmetric)),
        ("*_proj.*", (bits, group_size, symmetric)),
    )


CASES = {
    "int4": Case({"precision": "int4"}, grids(4)),
    "int4 decomposed": Case({"precision": "int4", "attention": "decomposed"}, grids(4)),
    "int4 partial": Case({"precision": "int4"}, grids(4), PARTIAL),
    "int4 partial asymmetric": Case(
        {"precision": "int4", "symmetric": False}, grids(4, symmetric=False), PARTIAL
    ),
    "int4 tied": Case({"precision": "int4"}, tied_grids(4, 8), TIED),
    "int4 tied partial": Case({"precision": "int4"}, tied_grids(4, 8), TIED | PARTIAL),
    "int4 tied partial, head int4": Case(
        {"precision": "int4", "head": "int4"}, tied_grids(4, 4), TIED | PARTIAL
    ),
    "int4 tied partial, head int4 asymmetric": Case(
        {"precision": "int4", "head": "int4", "symmetric": False},
        tied_grids(4, 4, symmetric=False),
        TIED | PARTIAL,
    ),
    "int8": Case({"precision": "int8"}, grids(8)),
    "int8 partial asymmetric": Case(
        {"precision": "int8", "symmetric": False}, grids(8, symmetric=False), PARTIAL
    ),
    "int8 tied partial asymmetric": Case(
        {"precision": "int8", "symmetric": False},
        tied_grids(8, 8, symmetric=False),
        TIED | PARTIAL,
    ),
    "group 16": Case({"precision": "int4", "group_size": 16}, grids(4, 16), PARTIAL),
    "group 64": Case({"precision": "int4", "group_size": 64}, grids(4, 64), PARTIAL),
    "group 128 asymmetric": Case(
        {"precision": "int4", "group_size": 128, "symmetric": False},
        grids(4, 128, symmetric=False),
        PARTIAL,
    ),
    "group 256 tied": Case(
        {"precision": "int4", "group_size": 256, "head": "int4"},
        tied_grids(4, 4, 256),
        TIED | PARTIAL,
    ),
    "head int4": Case({"precision": "int4", "head": "int4"}, grids(4, head=4), PARTIAL),
    "head fp16": Case(
        {"precision": "int4", "head": "fp16"}, (("lm_head.*", np.float16), *grids(4)), PARTIAL
    ),
    "head fp32": Case({"precision": "int4", "head": "fp32"}, (("lm_head.*", None), *grids(4))),
    "head alone": Case({"precision": "fp32", "head": "int8"}, (("lm_head.*", (8, 32, True)),)),
    "keep down in fp16": Case(
        {"precision": "int4", "keep": ("*.down_proj=fp16",)},
        (("*.down_proj.*", np.float16), *grids(4)),
        PARTIAL,
    ),
    "keep a layer in int8": Case(
        {"precision": "int4", "keep": ("model.layers.0.*=int8",)},
        (("model.layers.0.*_proj.*", (8, 32, True)), *grids(4)),
        PARTIAL,
    ),
    "keep q apart from k and v": Case(
        {"precision": "int4", "keep": ("*.q_proj=fp32",)}, (("*.q_proj.*", None), *grids(4))
    ),
    "keep one of many, the first match": Case(
        {
            "precision": "fp32",
            "keep": ("model.layers.1.mlp.gate_proj=int4", "model.layers.1.mlp.*=int8"),
        },
        (
            ("model.layers.1.mlp.gate_proj.*", (4, 32, True)),
            ("model.layers.1.mlp.*", (8, 32, True)),
        ),
        PARTIAL,
    ),
    "keep the embedding in int4": Case(
        {"precision": "int4", "keep": ("model.embed_tokens=int4",)},
        (("model.embed_tokens.*", (4, 32, True)), *grids(4)),
        PARTIAL,
    ),
    "keep the embedding in fp32": Case(
        {"precision": "int4", "keep": ("model.embed_tokens=fp32",)},
        (("model.embed_tokens.*", None), *grids(4)),
    ),
}


# What asks for a format of the embedding that isn't the default.
EMBEDDING_CASES = {
    "keep the embedding in fp16": Case(
        {"precision": "int4", "keep": ("model.embed_tokens=fp16",)},
        (("model.embed_tokens.*", np.float16), *grids(4)),
    ),
    "tied, head fp16": Case(
        {"precision": "int4", "head": "fp16"},
        (("model.embed_tokens.*", np.float16), *grids(4)),
        TIED,
    ),
    "tied, keep the embedding in int4": Case(
        {"precision": "int4", "keep": ("model.embed_tokens=int4",)}, tied_grids(4, 4), TIED
    ),
}


def decode(tensors: Tensors, formats: Mapping[str, Any] | tuple[tuple[str, Any], ...]) -> Tensors:
    """The tensors as their formats can hold them, float32."""
    decoded = {}
    for name, tensor in tensors.items():
        chosen = next((f for pattern, f in formats if fnmatchcase(name, pattern)), None)
        if tensor.ndim < 2 or chosen is None:
            decoded[name] = tensor
        elif chosen is np.float16:
            decoded[name] = tensor.astype(np.float16).astype(np.float32)
        else:
            decoded[name] = round_to_grid(tensor, *chosen)
    return decoded


def round_to_grid(tensor: Array, bits: int, group_size: int, symmetric: bool) -> Array:
    """Quantized and decoded again."""
    grid = Grid(bits=bits, group_size=group_size, symmetric=symmetric)
    return dequantize_rows(quantize_rows(tensor, grid), tensor.shape[1], grid)


def export_logits(checkpoint: Path, output: Path, options: dict[str, Any]) -> Array:
    """Export for all positions, and run 24 tokens."""
    exact = {"accuracy_level": 0, "all_logits": True, "check_loading": False}
    folder = export(checkpoint, output, **{**exact, **options}).folder
    return run_logits(folder, draw_ids(72))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_graph_equals_one_of_decoded_weights(case: Case, tmp_path: Path) -> None:
    """proves: P7, B10. Control: against the weights as they were, rounding shows."""
    check_case(case, tmp_path)


@pytest.mark.parametrize("case", EMBEDDING_CASES.values(), ids=EMBEDDING_CASES)
def test_the_embedding_has_the_format_asked_for(case: Case, tmp_path: Path) -> None:
    """proves: B3, B10. Control: as above."""
    check_case(case, tmp_path)


def check_case(case: Case, tmp_path: Path) -> None:
    """The rounded graph equals the decoded one, and differs from the original."""
    config = make_config(**case.checkpoint)
    tensors = make_tensors(config)
    original = write_llama(tmp_path / "original", tensors=tensors, **case.checkpoint)
    decoded = write_llama(
        tmp_path / "decoded", tensors=decode(tensors, case.formats), **case.checkpoint
    )
    rounded = export_logits(original, tmp_path / "rounded", case.options)
    reference = export_logits(decoded, tmp_path / "reference", {})
    unrounded = export_logits(original, tmp_path / "unrounded", {})
    assert find_rel_l2(rounded, reference) <= BOUND
    assert find_rel_l2(rounded, unrounded) > 1e-3


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16], ids=["bf16", "fp16"])
def test_halves_are_rounded_from_where_they_lie(dtype: Any, tmp_path: Path) -> None:
    """A bf16 or fp16 checkpoint gives the codes of its own values. proves: B6, B10

    Control: not those of the float32 values that it was rounded from.
    """
    tensors = make_tensors(make_config())
    stored = {name: t.astype(dtype).astype(np.float32) for name, t in tensors.items()}
    half = write_llama(tmp_path / "half", tensors=tensors, dtype=dtype)
    results = {}
    for name, source in (("stored", stored), ("before", tensors)):
        decoded = write_llama(tmp_path / name, tensors=decode(source, grids(4)))
        results[name] = export_logits(decoded, tmp_path / f"{name}-out", {})
    rounded = export_logits(half, tmp_path / "rounded", {"precision": "int4"})
    assert find_rel_l2(rounded, results["stored"]) <= BOUND
    assert find_rel_l2(rounded, results["before"]) > 10 * BOUND


def test_an_embedding_with_a_partial_group_is_cut(tmp_path: Path) -> None:
    """The gather gives whole groups, a Slice takes the rest off. proves: B4

    Control: none where the groups are whole.
    """
    kinds = {}
    for name, sizes in (("partial", PARTIAL), ("whole", {})):
        source = write_llama(tmp_path / name, **TIED, **sizes)
        folder = export(source, tmp_path / f"{name}-out", precision="int4", check_loading=False)
        graph = onnx.load(folder.folder / "model.onnx", load_external_data=False).graph
        kinds[name] = [node.op_type for node in graph.node][:2]
    assert kinds["partial"] == ["GatherBlockQuantized", "Slice"]
    assert kinds["whole"][0] == "GatherBlockQuantized"
    assert kinds["whole"][1] != "Slice"


def test_a_fault_in_the_codes_shows(tmp_path: Path) -> None:
    """A control of the bound: scales without their sign, one group shifted. proves: P7"""
    tensors = make_tensors(make_config())
    source = write_llama(tmp_path / "source", tensors=tensors)
    rounded = export_logits(source, tmp_path / "rounded", {"precision": "int4"})
    faults = {"sign": drop_sign, "shift": shift_a_group}
    for name, fault in faults.items():
        decoded = decode(tensors, grids(4))
        path = "model.layers.0.mlp.up_proj.weight"
        decoded[path] = fault(tensors[path])
        wrong = write_llama(tmp_path / name, tensors=decoded)
        logits = export_logits(wrong, tmp_path / f"{name}-out", {})
        assert find_rel_l2(rounded, logits) > 100 * BOUND, name


def drop_sign(tensor: Array) -> Array:
    """abs() of the signed scales (onnxruntime-genai 2209)."""
    grid = Grid(bits=4, group_size=32, symmetric=True)
    rows = quantize_rows(tensor, grid)
    return dequantize_rows(rows._replace(scales=np.abs(rows.scales)), tensor.shape[1], grid)


def shift_a_group(tensor: Array) -> Array:
    """Every code one step off in one group of one row."""
    grid = Grid(bits=4, group_size=32, symmetric=True)
    rows = quantize_rows(tensor, grid)
    decoded = dequantize_rows(rows, tensor.shape[1], grid)
    decoded[5, 32:64] += rows.scales[5, 1]
    return decoded
