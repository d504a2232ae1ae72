"""The key/value cache as graph inputs and outputs, one slot for each attention layer."""

from __future__ import annotations

import onnx_ir as ir

from assay.blocks.build import Build

__all__ = [
    "PAST_KEY",
    "PAST_VALUE",
    "PRESENT_KEY",
    "PRESENT_VALUE",
    "add_cache_inputs",
    "add_cache_outputs",
]

PAST_KEY, PAST_VALUE = "past_key_values.%d.key", "past_key_values.%d.value"
PRESENT_KEY, PRESENT_VALUE = "present.%d.key", "present.%d.value"


def add_cache_inputs(
    build: Build, slot: int, num_kv_heads: int, head_dim: int
) -> tuple[ir.Value, ir.Value]:
    """Declare past keys and values: [batch, kv_heads, past, head_dim]."""
    shape = ("batch", num_kv_heads, "past", head_dim)
    dtype = build.emitter.float_dtype
    key, value = (
        build.emitter.add_input(name % slot, dtype, shape) for name in (PAST_KEY, PAST_VALUE)
    )
    return key, value


def add_cache_outputs(build: Build, slot: int, present: tuple[ir.Value, ir.Value]) -> None:
    """Declare present keys and values: [batch, kv_heads, total, head_dim]."""
    build.emitter.add_output(present[0], PRESENT_KEY % slot)
    build.emitter.add_output(present[1], PRESENT_VALUE % slot)
