"""Attention as com.microsoft GroupQueryAttention."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from assay.blocks.build import Build
from assay.blocks.emitter import MICROSOFT
from assay.blocks.masks import emit_dimension, emit_padding_bias, emit_slots
from assay.blocks.rope import RopeTables, use_rope
from assay.spec.vocabulary import Attention

__all__ = ["can_rotate_inside", "emit_gqa", "is_gqa_exact"]


def is_gqa_exact(attention: Attention) -> bool:
    """Whether the operator computes this attention exactly (head_dim in whole 8s)."""
    return attention.head_dim % 8 == 0


def can_rotate_inside(attention: Attention) -> bool:
    """Whether the operator's own rotation is exact: tables by position, whole 8s wide.

    A norm after the rotation must stand outside, and so must the rotation before it.
    """
    rope = attention.rope
    after = attention.q_norm is not None and not attention.qk_norm_before_rope
    return rope is not None and rope.kind != "dynamic" and (rope.dim // 2) % 8 == 0 and not after


def emit_gqa(
    build: Build,
    qkv: list[ir.Value],
    past: tuple[ir.Value, ir.Value],
    attention: Attention,
    name: str,
    rotate_inside: bool,
) -> tuple[ir.Value, tuple[ir.Value, ir.Value]]:
    """Emit attention over q, k, v (or all three packed in one value).

    Left padding: every row counts all its slots (seqlens_k = total - 1), and an additive bias
    hides the padded ones; counting only real tokens would shift the padded rows' cache. Rows
    rotate by slot, not by position: only differences of positions enter the scores, and the
    operator reads its position_ids per token in a decode but, in a prefill, takes the first one
    as an offset for all rows.
    """
    emitter = build.emitter
    lengths, total = emitter.once("gqa lengths", lambda: _emit_lengths(build))
    bias = emit_padding_bias(build)
    tables = use_rope(build, attention.rope) if rotate_inside and attention.rope else None
    packed = [qkv[0], None, None] if len(qkv) == 1 else qkv
    inputs: list[ir.Value | None] = [
        *packed,
        *past,
        lengths,
        total,
        tables.cos if tables else None,
        tables.sin if tables else None,
        _emit_slots(build, tables) if tables else None,
        bias,
    ]
    cache_shape = ("batch", attention.num_kv_heads, "total", attention.head_dim)
    dtype = emitter.float_dtype
    width = attention.num_heads * attention.head_dim
    output, key, value = emitter.ops(
        "GroupQueryAttention",
        inputs,
        name=name,
        outputs=[(dtype, ("batch", "sequence", width)), (dtype, cache_shape), (dtype, cache_shape)],
        domain=MICROSOFT,
        attributes=_attributes(attention, rotate_inside),
    )
    return output, (key, value)


def _emit_slots(build: Build, tables: RopeTables) -> ir.Value | None:
    """Emit the table row of each slot, [batch, sequence]; None where it is the slot's number."""
    if tables.offset is None:
        return None
    emitter, offset = build.emitter, tables.offset
    int64 = ir.DataType.INT64

    def emit() -> ir.Value:
        column, _ = emit_slots(build)
        slots = emitter.op(
            "Squeeze",
            [column, emitter.integers(-1)],
            name=f"{offset.name}.slots",
            shape=("sequence",),
            dtype=int64,
        )
        rows = emitter.op(
            "Add",
            [slots, offset],
            name=f"{offset.name}.slot_rows",
            shape=("sequence",),
            dtype=int64,
        )
        shape = emitter.op(
            "Shape",
            [build.inputs.input_ids],
            name=f"{offset.name}.shape",
            shape=(2,),
            dtype=int64,
        )
        return emitter.op(
            "Expand",
            [rows, shape],
            name=f"{offset.name}.batch_rows",
            shape=("batch", "sequence"),
            dtype=int64,
        )

    return emitter.once(("gqa slots", offset.name), emit)


def _attributes(attention: Attention, rotate_inside: bool) -> dict[str, int | float]:
    attributes: dict[str, int | float] = {
        "num_heads": attention.num_heads,
        "kv_num_heads": attention.num_kv_heads,
        "scale": float(attention.scale),
        "do_rotary": int(rotate_inside),
        "local_window_size": attention.window if attention.window is not None else -1,
    }
    if attention.softcap is not None:
        attributes["softcap"] = float(attention.softcap)
    if rotate_inside and attention.rope is not None:
        attributes["rotary_interleaved"] = int(attention.rope.pairing == "pairs")
    return attributes


def _emit_lengths(build: Build) -> tuple[ir.Value, ir.Value]:
    """Emit seqlens_k (int32 [batch], total - 1) and the total length (int32 scalar)."""
    emitter = build.emitter
    int32, int64 = ir.DataType.INT32, ir.DataType.INT64
    mask = build.inputs.attention_mask
    batch, total = emit_dimension(build, mask, 0), emit_dimension(build, mask, 1)
    scalar = emitter.op(
        "Squeeze",
        [total, emitter.integers(0)],
        name="attention.total_scalar",
        shape=(),
        dtype=int64,
    )
    total_int32 = emitter.op(
        "Cast",
        [scalar],
        name="attention.total_length",
        shape=(),
        dtype=int32,
        attributes={"to": int(int32)},
    )
    one = emitter.constant("constants.int32.1", np.asarray(1, dtype=np.int32))
    last = emitter.op("Sub", [total_int32, one], name="attention.last_slot", shape=(), dtype=int32)
    lengths = emitter.op(
        "Expand", [last, batch], name="attention.seqlens_k", shape=("batch",), dtype=int32
    )
    return lengths, total_int32
