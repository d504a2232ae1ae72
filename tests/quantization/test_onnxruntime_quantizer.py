"""Codes, scales and zero points beside those of onnxruntime's own quantizer."""

from __future__ import annotations

import numpy as np
import pytest
from onnxruntime.capi import _pybind_state as ort

from assay.quantization import Grid, QuantizedRows, dequantize_rows, quantize_rows

GRIDS = [
    Grid(bits=bits, group_size=group_size, symmetric=symmetric)
    for bits in (4, 8)
    for symmetric in (True, False)
    for group_size in (16, 32, 64, 128, 256)
]


def quantize_with_onnxruntime(weight_OI: np.ndarray, grid: Grid) -> QuantizedRows:
    rows, inputs = weight_OI.shape
    groups = grid.count_groups(inputs)
    source_IO = np.zeros((groups * grid.group_size, rows), np.float32)
    source_IO[:inputs] = weight_OI.T
    packed = np.zeros((rows, groups, grid.group_bytes), np.uint8)
    scales = np.zeros((rows, groups), np.float32)
    zero_points = np.zeros((rows, -(-groups * grid.bits // 8)), np.uint8)
    quantize = ort.quantize_matmul_4bits if grid.bits == 4 else ort.quantize_matmul_8bits
    quantize(packed, source_IO, scales, zero_points, grid.group_size, rows, inputs, grid.symmetric)
    return QuantizedRows(packed, scales, None if grid.symmetric else zero_points)


def read_codes(quantized: QuantizedRows, inputs: int, bits: int) -> np.ndarray:
    """Codes of the real inputs; the two sides fill the padding differently."""
    flat = quantized.packed.reshape(len(quantized.packed), -1)
    if bits == 4:
        flat = np.stack([flat & 15, flat >> 4], axis=-1).reshape(len(flat), -1)
    return flat[:, :inputs]


def make_hard_weight(inputs: int, seed: int) -> np.ndarray:
    """Random rows of many magnitudes, and rows that are hard to round."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((40, inputs)).astype(np.float32)
    weight *= rng.choice([1e-36, 1e-30, 1e-3, 0.02, 1, 1e20, 1e37], (40, 1)).astype(np.float32)
    weight[3] = 0
    weight[4] = np.round(weight[4] * 4) / 4
    weight[5] = rng.integers(-8, 9, inputs) * 0.5  # ties everywhere
    weight[6] = np.abs(weight[6])
    weight[7] = -np.abs(weight[7])
    weight[8] = rng.integers(0, 3, inputs)
    weight[9], weight[10] = 1, -1
    weight[11] = np.where(rng.integers(0, 2, inputs), 0.7, -0.7)  # the largest has both signs
    weight[12] = np.where(rng.integers(0, 2, inputs), 0.0, -0.0)
    weight[13] = rng.integers(-17, 18, inputs) / 30  # ties of asymmetric grids
    weight[14, ::3] = 0
    # Steps of exactly 1, and the largest value below a half: adding 0.5 would round it up.
    weight[15:17] = np.nextafter(np.float32(0.5), np.float32(0))
    weight[15, ::16], weight[16, ::16] = 15, 255
    return weight


# proves: B10
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_bytes_equal_onnxruntimes(grid: Grid) -> None:
    for seed, inputs in enumerate((512, 576, 100, 333)):
        weight = make_hard_weight(inputs, seed)
        ours, theirs = quantize_rows(weight, grid), quantize_with_onnxruntime(weight, grid)
        assert np.array_equal(
            read_codes(ours, inputs, grid.bits), read_codes(theirs, inputs, grid.bits)
        )
        assert ours.scales.tobytes() == theirs.scales.tobytes()
        if not grid.symmetric:
            assert ours.zero_points is not None
            assert theirs.zero_points is not None
            assert ours.zero_points.tobytes() == theirs.zero_points.tobytes()


# proves: B10 (the control: the comparison sees a change of one unit in the last place)
def test_comparison_sees_one_unit_in_the_last_place() -> None:
    grid = Grid(bits=4, group_size=32, symmetric=True)
    weight = make_hard_weight(512, 0)
    theirs = quantize_with_onnxruntime(weight, grid)
    ours = quantize_rows(np.nextafter(weight, np.float32(np.inf)), grid)
    assert ours.scales.tobytes() != theirs.scales.tobytes()


# proves: P7
@pytest.mark.parametrize("grid", [grid for grid in GRIDS if grid.group_size == 32], ids=str)
@pytest.mark.parametrize("top", [1e-38, 4e-39, 1e-41])
def test_where_the_reciprocal_overflows_ours_is_nearer(grid: Grid, top: float) -> None:
    """Groups below about 1e-37: onnxruntime multiplies by an infinite 1/scale there."""
    weight = (np.random.default_rng(0).standard_normal((32, 64)) * top).astype(np.float32)
    weight[:, ::5] = 0
    original = weight.astype(np.float64)

    def measure(quantized: QuantizedRows) -> float:
        decoded = dequantize_rows(quantized, 64, grid).astype(np.float64)
        return float(np.linalg.norm(decoded - original) / np.linalg.norm(original))

    ours = measure(quantize_rows(weight, grid))
    assert ours <= 1.0
    assert ours < measure(quantize_with_onnxruntime(weight, grid)) - 0.5


# proves: P7
def test_a_range_beyond_float32_is_still_rounded() -> None:
    grid = Grid(bits=4, group_size=32, symmetric=False)
    weight = np.random.default_rng(0).uniform(-2.5e38, 2.5e38, (8, 64)).astype(np.float32)
    original = weight.astype(np.float64)
    decoded = dequantize_rows(quantize_rows(weight, grid), 64, grid).astype(np.float64)
    assert np.linalg.norm(decoded - original) / np.linalg.norm(original) < 0.1
    theirs = dequantize_rows(quantize_with_onnxruntime(weight, grid), 64, grid)
    assert not np.isfinite(theirs).all()
