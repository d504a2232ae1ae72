"""Rotary frequencies and their cosine and sine tables, in transformers' float32 arithmetic.

Formulas: transformers 5.24 `modeling_rope_utils.py`. float32 steps are kept where transformers
takes them, so that large positions turn by the same angle. D is head_dim, R = dim rotated.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from assay.spec.vocabulary import Rope

__all__ = ["compute_attention_factor", "compute_frequencies", "compute_tables"]

Array = np.ndarray[Any, np.dtype[np.float32]]
F32 = np.float32


def compute_frequencies(rope: Rope, *, use_long: bool = False) -> Array:
    """Return inv_freq, float32 [R/2]: radians per position of each rotated pair.

    use_long: take longrope's long factors. `dynamic` gives the frequencies up to the trained
    length; beyond it they depend on the length and are computed in the graph.
    """
    powers = _power(rope.theta, np.arange(0, rope.dim, 2, dtype=F32) / F32(rope.dim))
    if rope.kind == "proportional":
        return _proportional(rope)
    if rope.kind == "longrope":
        factors = rope.long_factor if use_long else rope.short_factor
        assert factors is not None
        return _as_float32(F32(1) / (np.asarray(factors, dtype=F32) * powers))
    if rope.kind == "yarn":
        return _yarn(rope, powers)
    frequencies = _as_float32(F32(1) / powers)
    if rope.kind == "linear":
        assert rope.factor is not None
        return _as_float32(frequencies / F32(rope.factor))
    if rope.kind == "llama3":
        return _llama3(rope, frequencies)
    return frequencies


def compute_attention_factor(rope: Rope) -> float:
    """Return what multiplies cosine and sine (1 but for yarn and longrope)."""
    if rope.kind not in ("yarn", "longrope"):
        return 1.0
    if rope.attention_factor is not None:
        return float(rope.attention_factor)
    original = rope.original_max_position_embeddings
    assert original is not None
    factor = rope.factor
    if factor is None:
        factor = rope.max_position_embeddings / original
    if rope.kind == "longrope":
        return 1.0 if factor <= 1.0 else math.sqrt(1 + math.log(factor) / math.log(original))
    if rope.mscale and rope.mscale_all_dim:
        return _mscale(factor, rope.mscale) / _mscale(factor, rope.mscale_all_dim)
    return _mscale(factor, 1.0)


def compute_tables(
    rope: Rope, num_positions: int, *, use_long: bool = False
) -> tuple[Array, Array]:
    """Return cosine and sine, float32 [num_positions, R/2], attention factor included."""
    frequencies = compute_frequencies(rope, use_long=use_long)
    angles = np.arange(num_positions, dtype=F32)[:, None] * frequencies[None, :]
    factor = F32(compute_attention_factor(rope))
    return np.cos(angles) * factor, np.sin(angles) * factor


def _power(base: float, exponents: Array) -> Array:
    """base ** exponents, rounded once to float32 (torch's own pow is within one ulp of it)."""
    return _as_float32(np.power(np.float64(F32(base)), exponents.astype(np.float64)))


def _as_float32(values: Any) -> Array:
    return np.asarray(values, dtype=F32)


def _proportional(rope: Rope) -> Array:
    rotated = int(rope.rotated_fraction * rope.head_dim // 2)
    exponents = np.arange(0, 2 * rotated, 2, dtype=F32) / F32(rope.head_dim)
    frequencies = np.zeros(rope.head_dim // 2, dtype=F32)
    frequencies[:rotated] = F32(1) / _power(rope.theta, exponents)
    return _as_float32(frequencies / F32(rope.factor or 1.0))


def _llama3(rope: Rope, frequencies: Array) -> Array:
    low, high, original = (
        rope.low_freq_factor,
        rope.high_freq_factor,
        rope.original_max_position_embeddings,
    )
    assert rope.factor is not None and low is not None and high is not None
    assert original is not None
    factor = F32(rope.factor)
    wavelengths = F32(2 * math.pi) / frequencies
    scaled = np.where(wavelengths > F32(original / low), frequencies / factor, frequencies)
    smooth = (F32(original) / wavelengths - F32(low)) / F32(high - low)
    smoothed = (F32(1) - smooth) * scaled / factor + smooth * scaled
    is_medium = ~(wavelengths < F32(original / high)) & ~(wavelengths > F32(original / low))
    return _as_float32(np.where(is_medium, smoothed, scaled))


def _mscale(scale: float, mscale: float) -> float:
    return 1.0 if scale <= 1 else 0.1 * mscale * math.log(scale) + 1.0


def _yarn(rope: Rope, powers: Array) -> Array:
    original = rope.original_max_position_embeddings
    assert rope.factor is not None and original is not None
    low = _correction_dim(rope.beta_fast or 32, rope, original)
    high = _correction_dim(rope.beta_slow or 1, rope, original)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    if low == high:
        high += 0.001
    ramp = (np.arange(rope.dim // 2, dtype=F32) - F32(low)) / F32(high - low)
    extrapolated = F32(1) - np.clip(ramp, F32(0), F32(1))
    interpolation = F32(1) / (F32(rope.factor) * powers)
    mixed = interpolation * (F32(1) - extrapolated) + (F32(1) / powers) * extrapolated
    return _as_float32(mixed)


def _correction_dim(num_rotations: float, rope: Rope, original: int) -> float:
    rotations = original / (num_rotations * 2 * math.pi)
    return rope.dim * math.log(rotations) / (2 * math.log(rope.theta))
