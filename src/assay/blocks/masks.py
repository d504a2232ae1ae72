"""What a query may not see, as numbers added to the scores."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from assay.blocks.build import Build

__all__ = ["emit_dimension", "emit_full_mask", "emit_padding_bias", "emit_slots"]

INT64, BOOL = ir.DataType.INT64, ir.DataType.BOOL


def hidden_score(dtype: ir.DataType) -> float:
    """A score low enough that its softmax is exactly 0, and that sums of it stay finite."""
    return -3e4 if dtype == ir.DataType.FLOAT16 else -1e9


def emit_padding_bias(build: Build) -> ir.Value:
    """Emit 0 where a slot holds a token, else a hiding score: [batch, 1, sequence, total]."""

    def emit() -> ir.Value:
        emitter = build.emitter
        scores = _emit_padding_row(build)
        target = emitter.op(
            "Concat",
            [
                emitter.integers(1, 1),
                emit_dimension(build, build.inputs.input_ids, 1),
                emitter.integers(1),
            ],
            name="attention_mask.target_shape",
            shape=(4,),
            dtype=INT64,
            attributes={"axis": 0},
        )
        return emitter.op(
            "Expand",
            [scores, target],
            name="attention_mask.bias",
            shape=("batch", 1, "sequence", "total"),
        )

    return build.emitter.once("padding bias", emit)


def emit_full_mask(build: Build, window: int | None) -> ir.Value:
    """Emit causal, window and padding mask in one: [batch, 1, sequence, total]."""
    return build.emitter.once(("full mask", window), lambda: _emit_full_mask(build, window))


def _emit_padding_row(build: Build) -> ir.Value:
    """Emit the padding's scores for one query: [batch, 1, 1, total]."""

    def emit() -> ir.Value:
        emitter = build.emitter
        mask = emitter.op(
            "Unsqueeze",
            [build.inputs.attention_mask, emitter.integers(1, 2)],
            name="attention_mask.row",
            shape=("batch", 1, 1, "total"),
            dtype=INT64,
        )
        is_token = emitter.op(
            "Cast",
            [mask],
            name="attention_mask.is_token",
            shape=("batch", 1, 1, "total"),
            dtype=BOOL,
            attributes={"to": int(BOOL)},
        )
        return emitter.op(
            "Where",
            [is_token, emitter.scalar(0.0), emitter.scalar(hidden_score(emitter.float_dtype))],
            name="attention_mask.scores",
            shape=("batch", 1, 1, "total"),
        )

    return build.emitter.once("padding row", emit)


def emit_dimension(build: Build, value: ir.Value, axis: int) -> ir.Value:
    """Emit one dimension of a value, int64 [1]."""
    name = f"{value.name}.dim{axis}"
    return build.emitter.once(
        ("dimension", value.name, axis),
        lambda: build.emitter.op(
            "Shape",
            [value],
            name=name,
            shape=(1,),
            dtype=INT64,
            attributes={"start": axis, "end": axis + 1},
        ),
    )


def _emit_full_mask(build: Build, window: int | None) -> ir.Value:
    emitter = build.emitter
    prefix = f"attention_mask.{'full' if window is None else f'window_{window}'}"
    queries, keys = emit_slots(build)
    shape = ("sequence", "total")
    hidden = emitter.op(
        "Greater", [keys, queries], name=f"{prefix}.future", shape=shape, dtype=BOOL
    )
    if window is not None:
        size = emitter.constant(
            f"constants.int64_scalar.{window}", np.asarray(window, dtype=np.int64)
        )
        first = emitter.op(
            "Sub", [queries, size], name=f"{prefix}.before", shape=("sequence", 1), dtype=INT64
        )
        too_old = emitter.op(
            "LessOrEqual", [keys, first], name=f"{prefix}.too_old", shape=shape, dtype=BOOL
        )
        hidden = emitter.op(
            "Or", [hidden, too_old], name=f"{prefix}.hidden", shape=shape, dtype=BOOL
        )
    scores = emitter.op(
        "Where",
        [hidden, emitter.scalar(hidden_score(emitter.float_dtype)), _emit_padding_row(build)],
        name=prefix,
        shape=("batch", 1, "sequence", "total"),
    )
    return scores


def emit_slots(build: Build) -> tuple[ir.Value, ir.Value]:
    """Emit cache slots of the queries, int64 [sequence, 1], and of the keys [total]."""
    return build.emitter.once("slots", lambda: _emit_slots(build))


def _emit_slots(build: Build) -> tuple[ir.Value, ir.Value]:
    """Emit cache slots of the queries [sequence, 1] and of the keys [total]."""
    emitter = build.emitter
    one = emitter.constant("constants.int64_scalar.1", np.asarray(1, dtype=np.int64))
    zero = emitter.constant("constants.int64_scalar.0", np.asarray(0, dtype=np.int64))

    def scalar(value: ir.Value, axis: int, name: str) -> ir.Value:
        return emitter.op(
            "Squeeze",
            [emit_dimension(build, value, axis), emitter.integers(0)],
            name=name,
            shape=(),
            dtype=INT64,
        )

    total = scalar(build.inputs.attention_mask, 1, "attention_mask.total")
    length = scalar(build.inputs.input_ids, 1, "attention_mask.sequence")
    past = emitter.op("Sub", [total, length], name="attention_mask.past", shape=(), dtype=INT64)
    keys = emitter.op(
        "Range", [zero, total, one], name="attention_mask.key_slots", shape=("total",), dtype=INT64
    )
    queries = emitter.op(
        "Range",
        [past, total, one],
        name="attention_mask.query_slots",
        shape=("sequence",),
        dtype=INT64,
    )
    column = emitter.op(
        "Unsqueeze",
        [queries, emitter.integers(-1)],
        name="attention_mask.query_column",
        shape=("sequence", 1),
        dtype=INT64,
    )
    return column, keys
