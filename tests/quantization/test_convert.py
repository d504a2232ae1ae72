"""Float to float, against numpy's own casts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from assay.errors import WeightError
from assay.quantization import convert_rows

BFLOAT16 = ml_dtypes.bfloat16
SOURCES: list[Any] = [
    BFLOAT16,
    np.float16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
]


def list_every_value(dtype: Any) -> np.ndarray:
    """Every finite value of an 8- or 16-bit float type."""
    size = np.dtype(dtype).itemsize
    codes = np.arange(1 << (8 * size), dtype=np.uint8 if size == 1 else np.uint16)
    values = codes.view(dtype)
    return values[np.isfinite(values.astype(np.float32))]


# proves: B10
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", [np.float32, np.float16, BFLOAT16])
def test_every_value_converts_as_numpy_does(source: Any, target: Any) -> None:
    values = list_every_value(source)
    if target is np.float16:
        values = values[np.abs(values.astype(np.float32)) < 65520]
    with np.errstate(under="ignore"):
        expected = values.astype(np.float32).astype(target)
    got = convert_rows(values, target)
    assert got.dtype == target
    assert got.tobytes() == expected.tobytes()


# proves: B10
@pytest.mark.parametrize("target", [np.float16, BFLOAT16])
def test_float32_rounds_to_nearest_even(target: Any) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(200_000, dtype=np.float32) * np.exp2(
        rng.integers(-30, 10, 200_000)
    ).astype(np.float32)
    exact = list_every_value(target).astype(np.float32)
    exact = exact[np.abs(exact) < 30000]
    halfway = (exact + np.nextafter(exact.astype(target), target(np.inf)).astype(np.float32)) / 2
    values = np.concatenate([values, halfway.astype(np.float32)])
    with np.errstate(under="ignore"):
        expected = values.astype(target)
    assert convert_rows(values, target).tobytes() == expected.tobytes()
    # the control: cutting the low bits off instead would differ
    cut = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(target)
    assert cut.tobytes() != expected.tobytes()


# proves: B10
def test_overflow_names_the_place_instead_of_writing_infinity() -> None:
    weight = np.full((40, 50), 65519, np.float32)  # rounds down to 65504, the largest
    assert np.all(convert_rows(weight, np.float16) == np.float16(65504))
    weight[31, 7] = -65520
    with pytest.raises(WeightError, match=r"embed: the value at \[31, 7\] is -65520") as caught:
        convert_rows(weight, np.float16, name="embed")
    assert "float32" in caught.value.next_step
    weight[:] = 1
    weight[31, 7] = 65536
    with pytest.raises(WeightError, match=r"\[31, 7\]"):
        convert_rows(weight.astype(BFLOAT16), np.float16)
    with pytest.raises(WeightError, match="bfloat16"):
        convert_rows(np.full(3, np.finfo(np.float32).max), BFLOAT16)


# proves: B10
@pytest.mark.parametrize("source", [*SOURCES[:2], np.float32, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("target", [np.float32, np.float16, BFLOAT16])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_are_refused(source: Any, target: Any, bad: float) -> None:
    weight = np.ones((3, 4, 5), source)
    convert_rows(weight, target)  # the control
    weight[2, 1, 0] = bad
    with pytest.raises(WeightError, match=r"\[2, 1, 0\] is (nan|inf)"):
        convert_rows(weight, target)


# proves: B10
def test_shape_chunks_and_identity() -> None:
    weight = np.random.default_rng(0).standard_normal((3, 1100, 1000)).astype(BFLOAT16)
    got = convert_rows(weight, np.float32, num_threads=3)
    assert got.shape == weight.shape
    assert np.array_equal(got, weight.astype(np.float32))
    assert convert_rows(weight, BFLOAT16) is weight
    reused = np.empty(weight.shape, np.float16)
    assert convert_rows(weight, np.float16, out=reused) is reused
    assert np.array_equal(reused, weight.astype(np.float32).astype(np.float16))
    copied = np.empty_like(weight)
    assert convert_rows(weight, BFLOAT16, out=copied) is copied
    assert copied.tobytes() == weight.tobytes()
    assert convert_rows(np.ones((), np.float32), np.float16).shape == ()
    assert convert_rows(np.ones((0, 4), np.float32), np.float16).shape == (0, 4)
    mapped = np.frombuffer(b"x" + weight[0].tobytes(), np.uint16, offset=1).view(BFLOAT16)
    assert np.array_equal(convert_rows(mapped, np.float32), got[0].reshape(-1))
    with pytest.raises(WeightError, match="int32"):
        convert_rows(np.ones(3, np.int32), np.float32)
