"""Token embedding and head, which may share one table."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from assay.blocks.build import Build
from assay.blocks.emitter import MICROSOFT, Shape
from assay.blocks.initializers import FloatInitializer, QuantizedMatrix, RowSource
from assay.blocks.linear import (
    Projection,
    emit_add,
    emit_linear,
    emit_matmul_nbits,
    use_float_vector,
    use_quantized_parts,
)
from assay.blocks.precision import FloatFormat
from assay.spec.vocabulary import Embedding, Head, LearnedPositions, Linear

__all__ = ["emit_embedding", "emit_head", "emit_last_position"]


def emit_embedding(
    build: Build, embedding: Embedding, head: Head, vocab_size: int, hidden_size: int
) -> ir.Value:
    """Emit scale * table[input_ids] (+ position vectors): [batch, sequence, hidden]."""
    emitter = build.emitter
    build.linear_paths.extend((embedding.name, head.name))
    shape = ("batch", "sequence", hidden_size)
    table = _use_table(build, embedding, head, vocab_size, hidden_size)
    if isinstance(table, QuantizedMatrix):
        x = _emit_quantized_gather(build, table, shape)
    else:
        x = emitter.op(
            "Gather",
            [table, build.inputs.input_ids],
            name=embedding.name,
            shape=shape,
            dtype=table.dtype,
            attributes={"axis": 0},
        )
        x = _cast_to_float_type(build, x, f"{embedding.name}.cast", shape)
    if embedding.scale != 1.0:
        x = emitter.op(
            "Mul",
            [x, emitter.scalar(float(embedding.scale))],
            name=f"{embedding.name}.scaled",
            shape=shape,
        )
    if embedding.positions is not None:
        x = emit_add(
            build,
            x,
            _emit_positions(build, embedding.positions, hidden_size),
            f"{embedding.positions.name}.added",
        )
    return x


def emit_last_position(build: Build, x: ir.Value, hidden_size: int) -> ir.Value:
    """Emit the last position of x alone: [batch, 1, hidden]. Generation reads no other."""
    return build.emitter.op(
        "Gather",
        [x, build.emitter.integers(-1)],
        name="last_position",
        shape=("batch", 1, hidden_size),
        attributes={"axis": 1},
    )


def emit_head(
    build: Build,
    x: ir.Value,
    head: Head,
    embedding: Embedding,
    vocab_size: int,
    hidden_size: int,
) -> ir.Value:
    """Emit logits, float32: softcap(multiplier * (W x + b)). x: [batch, positions, hidden]."""
    emitter = build.emitter
    assert x.shape is not None
    shape: Shape = ("batch", x.shape[1] if isinstance(x.shape[1], int) else "sequence", vocab_size)
    if head.tied:
        # The file may hold the shared table a second time, under the head's name.
        build.weights.ignore(f"{head.name}.weight")
        logits = _emit_tied(build, x, head, embedding, vocab_size, hidden_size, shape)
    else:
        linear = Linear(name=head.name, bias=head.bias)
        projection = Projection(head.name, linear, hidden_size, vocab_size)
        logits = emit_linear(build, x, head.name, [projection], kind="head")
    if head.multiplier != 1.0:
        logits = emitter.op(
            "Mul",
            [logits, emitter.scalar(float(head.multiplier))],
            name=f"{head.name}.scaled",
            shape=shape,
        )
    if head.softcap is not None:
        cap = float(head.softcap)
        logits = emitter.op(
            "Mul", [logits, emitter.scalar(1.0 / cap)], name=f"{head.name}.by_cap", shape=shape
        )
        logits = emitter.op("Tanh", [logits], name=f"{head.name}.tanh", shape=shape)
        logits = emitter.op(
            "Mul", [logits, emitter.scalar(cap)], name=f"{head.name}.capped", shape=shape
        )
    if emitter.float_dtype != ir.DataType.FLOAT:
        logits = emitter.op(
            "Cast",
            [logits],
            name=f"{head.name}.float32",
            shape=shape,
            dtype=ir.DataType.FLOAT,
            attributes={"to": int(ir.DataType.FLOAT)},
        )
    return logits


def _use_table(
    build: Build, embedding: Embedding, head: Head, vocab_size: int, hidden_size: int
) -> QuantizedMatrix | ir.Value:
    """Return the embedding's table, quantized or as a stored float matrix.

    A table that the head shares has the head's format: both read the same bytes.
    """
    weight_format = build.precision.find_table_format(
        embedding.name, head.name if head.tied else None
    )
    if isinstance(weight_format, FloatFormat):
        return _use_float_table(build, embedding.name, vocab_size, hidden_size, weight_format.dtype)
    source = _table_source(build, embedding.name, vocab_size, hidden_size)
    return QuantizedMatrix(
        embedding.name,
        "embedding",
        weight_format,
        vocab_size,
        hidden_size,
        (source,),
        build.precision.float_dtype,
    )


def _emit_quantized_gather(build: Build, table: QuantizedMatrix, shape: Shape) -> ir.Value:
    """Emit a gather that decodes only the rows it takes.

    The operator gives whole groups; what lies past the last input is cut off.
    """
    emitter = build.emitter
    packed, scales, zero_points = use_quantized_parts(build, table, flat=True)
    padded = table.groups * table.grid.group_size
    is_whole = padded == table.inputs
    x = emitter.op(
        "GatherBlockQuantized",
        [packed, build.inputs.input_ids, scales] + ([] if zero_points is None else [zero_points]),
        name=table.name,
        shape=(*shape[:-1], padded),
        domain=MICROSOFT,
        attributes={
            "bits": table.grid.bits,
            "block_size": table.grid.group_size,
            "gather_axis": 0,
            "quantize_axis": 1,
        },
    )
    if is_whole:
        return x
    return emitter.op(
        "Slice",
        [x, emitter.integers(0), emitter.integers(table.inputs), emitter.integers(-1)],
        name=f"{table.name}.cut",
        shape=shape,
    )


def _table_source(build: Build, name: str, rows: int, inputs: int) -> RowSource:
    path = f"{name}.weight"
    return RowSource(build.weights.use(path, (rows, inputs)), path, ((0, rows),))


def _cast_to_float_type(build: Build, x: ir.Value, name: str, shape: Shape) -> ir.Value:
    """Emit a cast to the activations' type where x has another one."""
    target = build.emitter.float_dtype
    if x.dtype == target:
        return x
    return build.emitter.op("Cast", [x], name=name, shape=shape, attributes={"to": int(target)})


def _use_float_table(
    build: Build, name: str, rows: int, inputs: int, dtype: ir.DataType
) -> ir.Value:
    return build.emitter.use_initializer(
        FloatInitializer(
            f"{name}.weight",
            dtype,
            (rows, inputs),
            (_table_source(build, name, rows, inputs),),
        )
    )


def _emit_positions(build: Build, positions: LearnedPositions, hidden_size: int) -> ir.Value:
    emitter = build.emitter
    ids, shape = build.inputs.position_ids, ("batch", "sequence")
    if positions.offset:
        offset = emitter.constant(
            f"constants.int64_scalar.{positions.offset}",
            np.asarray(positions.offset, dtype=np.int64),
        )
        ids = emitter.op(
            "Add",
            [ids, offset],
            name=f"{positions.name}.rows",
            shape=shape,
            dtype=ir.DataType.INT64,
        )
    rows = positions.num_positions + positions.offset
    table = _use_float_table(build, positions.name, rows, hidden_size, build.precision.float_dtype)
    return emitter.op(
        "Gather",
        [table, ids],
        name=positions.name,
        shape=(*shape, hidden_size),
        attributes={"axis": 0},
    )


def _emit_tied(
    build: Build,
    x: ir.Value,
    head: Head,
    embedding: Embedding,
    vocab_size: int,
    hidden_size: int,
    shape: Shape,
) -> ir.Value:
    """Emit x times the embedding table, from the same stored bytes."""
    emitter = build.emitter
    bias = None
    if head.bias:
        path = f"{head.name}.bias"
        source = RowSource(build.weights.use(path, (vocab_size,)), path, ((0, vocab_size),))
        bias = use_float_vector(build, path, (source,), vocab_size)
    table = _use_table(build, embedding, head, vocab_size, hidden_size)
    if isinstance(table, QuantizedMatrix):
        parts = use_quantized_parts(build, table)
        return emit_matmul_nbits(build, x, head.name, table, parts, shape, bias)
    table = _cast_to_float_type(build, table, f"{head.name}.weight_cast", (vocab_size, hidden_size))
    flat = emitter.op(
        "Reshape",
        [x, emitter.integers(-1, hidden_size)],
        name=f"{head.name}.rows",
        shape=("positions", hidden_size),
    )
    product = emitter.op(
        "Gemm",
        [flat, table] + ([] if bias is None else [bias]),
        name=head.name,
        shape=("positions", vocab_size),
        attributes={"transB": 1},
    )
    leading = emitter.op(
        "Shape",
        [x],
        name=f"{head.name}.leading",
        shape=(2,),
        dtype=ir.DataType.INT64,
        attributes={"start": 0, "end": 2},
    )
    target = emitter.op(
        "Concat",
        [leading, emitter.integers(vocab_size)],
        name=f"{head.name}.shape",
        shape=(3,),
        dtype=ir.DataType.INT64,
        attributes={"axis": 0},
    )
    return emitter.op("Reshape", [product, target], name=f"{head.name}.logits", shape=shape)
