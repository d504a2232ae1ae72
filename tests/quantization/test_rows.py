"""Rounding to the grid and back, against the definition and against planted faults."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from assay.errors import WeightError
from assay.quantization import (
    Grid,
    QuantizedRows,
    allocate_rows,
    dequantize_rows,
    quantize_rows,
    weight_error,
)

BFLOAT16 = ml_dtypes.bfloat16
GRIDS = [
    Grid(bits=bits, group_size=group_size, symmetric=symmetric)
    for bits in (4, 8)
    for group_size in (16, 32, 64, 128, 256)
    for symmetric in (True, False)
]


def name_grid(grid: Grid) -> str:
    return f"int{grid.bits}-g{grid.group_size}-{'sym' if grid.symmetric else 'asym'}"


def make_weight(rows: int, inputs: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((rows, inputs)) * 0.05).astype(np.float32)


def measure_error(quantized: QuantizedRows, weight: np.ndarray, grid: Grid) -> float:
    original = weight.astype(np.float64)
    decoded = dequantize_rows(quantized, weight.shape[1], grid)
    return float(np.linalg.norm(decoded - original) / np.linalg.norm(original))


def unpack_by_hand(packed: np.ndarray, bits: int) -> np.ndarray:
    """Codes [rows, bytes * 8 / bits], written without the kernels."""
    flat = packed.reshape(len(packed), -1)
    if bits == 8:
        return flat
    return np.stack([flat & 15, flat >> 4], axis=-1).reshape(len(flat), -1)


def dequantize_by_hand(quantized: QuantizedRows, inputs: int, grid: Grid) -> np.ndarray:
    codes = unpack_by_hand(quantized.packed, grid.bits).astype(np.int32)
    groups = quantized.scales.shape[1]
    if quantized.zero_points is None:
        zero_points = np.full((len(codes), groups), 1 << (grid.bits - 1))
    else:
        zero_points = unpack_by_hand(quantized.zero_points, grid.bits)[:, :groups].astype(np.int32)
    spread = np.repeat(zero_points, grid.group_size, axis=1)
    scales = np.repeat(quantized.scales, grid.group_size, axis=1)
    return ((codes - spread).astype(np.float32) * scales)[:, :inputs]


# proves: P7
@pytest.mark.parametrize("grid", GRIDS, ids=name_grid)
@pytest.mark.parametrize("inputs", [512, 333])
def test_decoding_follows_the_formula_and_the_codes_are_nearest(grid: Grid, inputs: int) -> None:
    weight = make_weight(7, inputs)
    quantized = quantize_rows(weight, grid)
    decoded = dequantize_rows(quantized, inputs, grid)
    assert np.array_equal(decoded, dequantize_by_hand(quantized, inputs, grid))

    # No other code of the grid comes closer than the one chosen.
    scales = np.repeat(quantized.scales, grid.group_size, axis=1)[:, :inputs].astype(np.float64)
    distance = np.abs(decoded - weight)
    for step in (-1, 1):
        codes = unpack_by_hand(quantized.packed, grid.bits)[:, :inputs].astype(int) + step
        possible = (codes >= 0) & (codes < 1 << grid.bits)
        other = np.abs(decoded + step * scales - weight)
        assert np.all((other >= distance - 1e-5 * np.abs(scales)) | ~possible)


# proves: P7
@pytest.mark.parametrize("grid", GRIDS, ids=name_grid)
def test_error_is_a_healthy_roundings(grid: Grid) -> None:
    weight = make_weight(64, 512)
    error = measure_error(quantize_rows(weight, grid), weight, grid)
    assert (0.05 < error < 0.15) if grid.bits == 4 else (0.003 < error < 0.01)
    assert weight_error(weight, grid) == pytest.approx(error, rel=1e-6)
    assert weight_error(weight.astype(BFLOAT16), grid) == pytest.approx(error, rel=0.05)


# proves: P7 (the controls: each planted fault is seen in the error)
@pytest.mark.parametrize("bits", [4, 8])
def test_planted_faults_cost_more_than_half(bits: int) -> None:
    weight = make_weight(64, 512)
    grid = Grid(bits=bits, group_size=32, symmetric=True)
    good = quantize_rows(weight, grid)
    assert (good.scales < 0).any(), "signed scales"
    assert (good.scales > 0).any(), "signed scales"
    assert measure_error(good._replace(scales=np.abs(good.scales)), weight, grid) > 1.2
    rolled = good._replace(scales=np.roll(good.scales, 1, axis=1))
    assert measure_error(rolled, weight, grid) > 0.5
    if bits == 4:
        swapped = good._replace(packed=(good.packed >> 4) | (good.packed << 4))
        assert measure_error(swapped, weight, grid) > 0.5

    grid = Grid(bits=bits, group_size=32, symmetric=False)
    good = quantize_rows(weight + np.float32(0.1), grid)
    assert good.zero_points is not None
    implied = good._replace(zero_points=np.full_like(good.zero_points, 0x88 if bits == 4 else 128))
    assert measure_error(implied, weight + np.float32(0.1), grid) > 0.5


# proves: P7
def test_the_largest_value_lands_on_code_0_with_a_signed_scale() -> None:
    grid = Grid(bits=4, group_size=16, symmetric=True)
    weight = np.zeros((2, 16), np.float32)
    weight[0, 3], weight[1, 3] = 0.8, -0.8
    quantized = quantize_rows(weight, grid)
    assert quantized.scales[:, 0].tolist() == [np.float32(-0.1), np.float32(0.1)]
    assert unpack_by_hand(quantized.packed, 4)[:, 3].tolist() == [0, 0]
    assert np.array_equal(dequantize_rows(quantized, 16, grid), weight)


# proves: P7
@pytest.mark.parametrize("bits", [4, 8])
def test_asymmetric_range_always_holds_zero(bits: int) -> None:
    grid = Grid(bits=bits, group_size=16, symmetric=False)
    weight = np.stack([np.linspace(1, 2, 16), np.linspace(-2, -1, 16)]).astype(np.float32)
    weight[:, 8] = 0
    quantized = quantize_rows(weight, grid)
    assert quantized.zero_points is not None
    zero_points = unpack_by_hand(quantized.zero_points, bits)[:, 0]
    assert zero_points.tolist() == [0, (1 << bits) - 1]
    assert np.all(dequantize_rows(quantized, 16, grid)[:, 8] == 0)


# proves: P7
@pytest.mark.parametrize("grid", GRIDS, ids=name_grid)
def test_padding_decodes_to_0_and_leaves_the_scale_alone(grid: Grid) -> None:
    inputs = grid.group_size + 5
    weight = make_weight(9, inputs) + np.float32(0.2)
    weight[4] -= np.float32(0.4)
    quantized = quantize_rows(weight, grid)
    padded = dequantize_rows(quantized, 2 * grid.group_size, grid)
    assert np.all(padded[:, inputs:] == 0)
    # The scale is that of the five inputs repeated until the group is full.
    full = np.resize(weight[:, grid.group_size :].T, (grid.group_size, 9)).T
    expected = quantize_rows(np.ascontiguousarray(full), grid).scales[:, 0]
    assert np.array_equal(quantized.scales[:, 1], expected)


# proves: B10
@pytest.mark.parametrize("grid", GRIDS[:2], ids=name_grid)
def test_each_source_type_gives_what_its_float32_gives(grid: Grid) -> None:
    weight = make_weight(11, 200) * np.geomspace(1e-6, 1, 11, dtype=np.float32)[:, None]
    types: list[Any] = [BFLOAT16, np.float16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
    for dtype in types:
        source = weight.astype(dtype)
        expected = quantize_rows(source.astype(np.float32), grid)
        for got, wanted in zip(quantize_rows(source, grid), expected, strict=True):
            assert (got is None and wanted is None) or np.array_equal(got, wanted), dtype
    # the control: the types do differ from each other
    assert not np.array_equal(
        quantize_rows(weight.astype(BFLOAT16), grid).packed,
        quantize_rows(weight.astype(np.float16), grid).packed,
    )


# proves: B10
def test_threads_memory_and_out_do_not_change_the_bytes() -> None:
    grid = Grid(bits=4, group_size=32, symmetric=False)
    weight = make_weight(3000, 800).astype(BFLOAT16)  # more than one chunk
    one = quantize_rows(weight, grid, num_threads=1)
    out = allocate_rows(3000, 800, grid)
    assert quantize_rows(weight, grid, out=out, num_threads=3) is out
    memory = b"x" + weight.tobytes()
    mapped = np.frombuffer(memory, np.uint16, offset=1).view(BFLOAT16).reshape(weight.shape)
    assert not mapped.flags.aligned
    for other in (out, quantize_rows(mapped, grid)):
        for got, wanted in zip(other, one, strict=True):
            assert got is not None
            assert wanted is not None
            assert got.tobytes() == wanted.tobytes()
    decoded = dequantize_rows(one, 800, grid, num_threads=1)
    assert np.array_equal(decoded, dequantize_rows(one, 800, grid, num_threads=3))


# proves: B10
@pytest.mark.parametrize("dtype", [BFLOAT16, np.float16, np.float32, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 31, 99])
def test_nan_or_infinity_names_tensor_and_row(dtype: Any, bad: float, column: int) -> None:
    grid = Grid(bits=4, group_size=32, symmetric=True)
    weight = np.ones((20, 100), dtype)
    assert quantize_rows(weight, grid).scales.all()  # the control
    weight[13, column] = weight[17, column] = bad
    with pytest.raises(WeightError, match=r"layers\.3\.q_proj: row 13 ") as caught:
        quantize_rows(weight, grid, name="layers.3.q_proj")
    assert caught.value.next_step
    with pytest.raises(WeightError, match="row 13 "):
        quantize_rows(weight, Grid(bits=8, group_size=16, symmetric=False))


# proves: B10
def test_other_types_are_refused() -> None:
    with pytest.raises(WeightError, match="int8"):
        quantize_rows(np.ones((2, 32), np.int8), Grid(bits=4, group_size=32, symmetric=True))


# proves: P7
def test_weight_error_of_zeros_and_of_many_chunks() -> None:
    grid = Grid(bits=4, group_size=32, symmetric=True)
    assert weight_error(np.zeros((4, 64), np.float32), grid) == 0.0
    weight = make_weight(1500, 700)
    whole = measure_error(quantize_rows(weight, grid), weight, grid)
    assert weight_error(weight, grid) == pytest.approx(whole, rel=1e-9)
    assert weight_error(weight, grid, num_threads=3) == weight_error(weight, grid, num_threads=1)
    assert weight_error(weight * np.float32(2.0**90), grid) == pytest.approx(whole, rel=1e-9)
    float8 = (weight * 100).astype(ml_dtypes.float8_e4m3fn)
    whole = measure_error(quantize_rows(float8, grid), float8.astype(np.float32), grid)
    assert weight_error(float8, grid) == pytest.approx(whole, rel=1e-9)
    weight[1234, 699] = np.nan
    with pytest.raises(WeightError, match="up_proj: row 1234 "):
        weight_error(weight, grid, name="up_proj")
