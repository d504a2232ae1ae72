"""Rotary position embedding in the graph: tables, their choice by length, and the rotation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from assay.blocks.build import Build
from assay.blocks.initializers import ComputedInitializer
from assay.blocks.rope_tables import compute_tables
from assay.spec.vocabulary import Rope

__all__ = ["RopeTables", "emit_rotation", "use_rope"]


@dataclass(frozen=True)
class RopeTables:
    """What a rotation needs.

    by_position: cos and sin are tables [positions, R/2]; else they are already picked for each
    token, [batch, sequence, R/2] (frequencies that depend on the length).
    offset: int64 scalar, added to a position to find its row in the tables (longrope).
    """

    cos: ir.Value
    sin: ir.Value
    by_position: bool = True
    offset: ir.Value | None = None


def use_rope(build: Build, rope: Rope) -> RopeTables:
    """Return the tables of a rope, shared by all layers that have the same one."""
    return build.emitter.once(("rope", rope), lambda: _build_tables(build, rope))


def emit_rotation(build: Build, x: ir.Value, rope: Rope, num_heads: int, name: str) -> ir.Value:
    """Rotate x: [batch, sequence, heads * head_dim], with its own operator."""
    tables = use_rope(build, rope)
    assert x.shape is not None
    inputs = [x, tables.cos, tables.sin]
    if tables.by_position:
        inputs.append(_emit_rows(build, tables))
    return build.emitter.op(
        "RotaryEmbedding",
        inputs,
        name=name,
        shape=("batch", "sequence", num_heads * rope.head_dim),
        attributes={
            "num_heads": num_heads,
            "interleaved": int(rope.pairing == "pairs"),
            "rotary_embedding_dim": 0 if rope.dim == rope.head_dim else rope.dim,
        },
    )


def _build_tables(build: Build, rope: Rope) -> RopeTables:
    number = build.emitter.once("rope count", lambda: [0])
    prefix = "rotary_emb" if number[0] == 0 else f"rotary_emb.{number[0]}"
    number[0] += 1
    if rope.kind == "dynamic":
        return _emit_dynamic(build, rope, prefix)
    offset: ir.Value | None = None
    longest = rope.max_position_embeddings
    if rope.kind != "longrope":
        cos, sin = compute_tables(rope, longest)
    else:
        # Short rows first, long rows after them: choosing is an offset, not a copied table.
        original = rope.original_max_position_embeddings
        assert original is not None
        short, long = (
            compute_tables(rope, rows, use_long=use_long)
            for rows, use_long in ((original, False), (max(longest, original), True))
        )
        cos, sin = (np.concatenate(pair) for pair in zip(short, long, strict=True))
        offset = _emit_long_offset(build, original, prefix)
    return RopeTables(
        _store(build, f"{prefix}.cos_cache", cos),
        _store(build, f"{prefix}.sin_cache", sin),
        offset=offset,
    )


def _emit_rows(build: Build, tables: RopeTables) -> ir.Value:
    """Emit each token's row in the tables: [batch, sequence]."""
    offset, positions = tables.offset, build.inputs.position_ids
    if offset is None:
        return positions
    return build.emitter.once(
        ("rope rows", offset.name),
        lambda: build.emitter.op(
            "Add",
            [positions, offset],
            name=f"{offset.name}.rows",
            shape=("batch", "sequence"),
            dtype=ir.DataType.INT64,
        ),
    )


def _store(
    build: Build, name: str, table: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> ir.Value:
    array = table.astype(build.emitter.float_dtype.numpy())
    return build.emitter.use_initializer(ComputedInitializer.from_array(name, array))


def _emit_length(build: Build, prefix: str) -> ir.Value:
    """Emit max(position_ids) + 1, int64 scalar: what transformers calls seq_len."""
    emitter = build.emitter
    last = emitter.op(
        "ReduceMax",
        [build.inputs.position_ids],
        name=f"{prefix}.last_position",
        shape=(),
        dtype=ir.DataType.INT64,
        attributes={"keepdims": 0},
    )
    one = emitter.constant("constants.int64_scalar.1", np.asarray(1, dtype=np.int64))
    return emitter.op(
        "Add", [last, one], name=f"{prefix}.length", shape=(), dtype=ir.DataType.INT64
    )


def _emit_long_offset(build: Build, original: int, prefix: str) -> ir.Value:
    """Emit where the rows start: at the long ones when the length exceeds the trained one."""
    emitter = build.emitter
    limit = emitter.constant(
        f"constants.int64_scalar.{original}", np.asarray(original, dtype=np.int64)
    )
    zero = emitter.constant("constants.int64_scalar.0", np.asarray(0, dtype=np.int64))
    is_long = emitter.op(
        "Greater",
        [_emit_length(build, prefix), limit],
        name=f"{prefix}.is_long",
        shape=(),
        dtype=ir.DataType.BOOL,
    )
    return emitter.op(
        "Where", [is_long, limit, zero], name=f"{prefix}.offset", shape=(), dtype=ir.DataType.INT64
    )


def _emit_dynamic(build: Build, rope: Rope, prefix: str) -> RopeTables:
    """Emit cosine and sine of NTK-scaled frequencies: the base grows with the length."""
    emitter, float32 = build.emitter, ir.DataType.FLOAT
    original = rope.original_max_position_embeddings
    assert rope.factor is not None and original is not None

    def op(
        op_type: str,
        inputs: list[ir.Value],
        suffix: str,
        shape: tuple[int | str, ...] = (),
    ) -> ir.Value:
        return emitter.op(op_type, inputs, name=f"{prefix}.{suffix}", shape=shape, dtype=float32)

    def number(value: float) -> ir.Value:
        return emitter.scalar(value, float32)

    length = emitter.op(
        "Cast",
        [_emit_length(build, prefix)],
        name=f"{prefix}.length_float",
        shape=(),
        dtype=float32,
        attributes={"to": int(float32)},
    )
    length = op("Max", [length, number(float(original))], "scaled_length")
    # base * (factor * length / original - (factor - 1)) ** (R / (R - 2))
    stretch = op("Mul", [length, number(rope.factor / original)], "stretch")
    stretch = op("Sub", [stretch, number(rope.factor - 1)], "stretch_beyond")
    stretch = op("Pow", [stretch, number(rope.dim / (rope.dim - 2))], "stretch_power")
    base = op("Mul", [stretch, number(rope.theta)], "base")
    exponents = np.arange(0, rope.dim, 2, dtype=np.float32) / np.float32(rope.dim)
    half = rope.dim // 2
    powers = op(
        "Pow", [base, emitter.constant(f"{prefix}.exponents", exponents)], "powers", (half,)
    )
    frequencies = op("Reciprocal", [powers], "inv_freq", (half,))
    positions = emitter.op(
        "Cast",
        [build.inputs.position_ids],
        name=f"{prefix}.positions_float",
        shape=("batch", "sequence"),
        dtype=float32,
        attributes={"to": int(float32)},
    )
    positions = op(
        "Unsqueeze", [positions, emitter.integers(-1)], "positions_column", ("batch", "sequence", 1)
    )
    shape = ("batch", "sequence", half)
    angles = op("Mul", [positions, frequencies], "angles", shape)
    cos, sin = (op(name, [angles], name.lower(), shape) for name in ("Cos", "Sin"))
    if emitter.float_dtype != float32:
        cos, sin = (
            emitter.op(
                "Cast",
                [value],
                name=f"{prefix}.{name}_cast",
                shape=shape,
                attributes={"to": int(emitter.float_dtype)},
            )
            for name, value in (("cos", cos), ("sin", sin))
        )
    return RopeTables(cos, sin, by_position=False)
