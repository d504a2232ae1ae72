"""Projections: y = x W^T + b, in float or as MatMulNBits."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from assay.blocks.build import Build
from assay.blocks.emitter import MICROSOFT, Shape
from assay.blocks.initializers import (
    FloatInitializer,
    QuantizedMatrix,
    QuantizedPart,
    RowSource,
)
from assay.blocks.precision import FloatFormat, WeightFormat, WeightKind
from assay.quantization import Grid
from assay.spec.vocabulary import Linear

__all__ = [
    "Projection",
    "emit_add",
    "emit_linear",
    "emit_packed_linear",
    "use_float_vector",
    "use_quantized_parts",
]


@dataclass(frozen=True)
class Projection:
    """Some output rows of one `Linear` of the file.

    path: module path of the linear. file_rows: rows that its tensor has in all.
    rows: the ranges taken, in order; None takes all.
    """

    path: str
    linear: Linear
    inputs: int
    file_rows: int
    rows: tuple[tuple[int, int], ...] | None = None

    @property
    def num_rows(self) -> int:
        """How many output features this projection has."""
        if self.rows is None:
            return self.file_rows
        return sum(stop - start for start, stop in self.rows)

    def weight_source(self, build: Build) -> RowSource:
        """Where the weight's rows stand in the checkpoint."""
        shape = (
            (self.inputs, self.file_rows)
            if self.linear.transposed
            else (self.file_rows, self.inputs)
        )
        path = f"{self.path}.weight"
        rows = self.rows or ((0, self.file_rows),)
        return RowSource(build.weights.use(path, shape), path, rows, self.linear.transposed)

    def bias_source(self, build: Build) -> RowSource:
        """Where the bias' entries stand in the checkpoint."""
        path = f"{self.path}.bias"
        rows = self.rows or ((0, self.file_rows),)
        return RowSource(build.weights.use(path, (self.file_rows,)), path, rows)


def emit_linear(
    build: Build,
    x: ir.Value,
    name: str,
    projections: list[Projection],
    *,
    kind: WeightKind = "projection",
) -> ir.Value:
    """Emit one product for all projections' rows, stacked. x: [batch, sequence, inputs].

    name: the node's. All projections must agree in format and in having a bias
    (see `emit_packed_linear`). Returns [batch, sequence, rows].
    """
    weight_format = find_common_format(build, projections, kind=kind)
    assert weight_format is not None, name
    rows = sum(projection.num_rows for projection in projections)
    bias = _use_bias(build, name, projections, rows)
    shape = (*_leading(x), rows)
    build.linear_paths.extend(projection.path for projection in projections)
    if isinstance(weight_format, Grid):
        return _emit_quantized(build, x, name, projections, weight_format, shape, bias)
    product = _emit_float(build, x, name, projections, weight_format, shape)
    return product if bias is None else emit_add(build, product, bias, f"{name}.bias_add")


def find_common_format(
    build: Build, projections: list[Projection], *, kind: WeightKind = "projection"
) -> WeightFormat | None:
    """Return the format that all projections have; None where they differ or one has a bias."""
    formats = {build.precision.find_format(p.path, kind) for p in projections}
    biases = {p.linear.bias for p in projections}
    return formats.pop() if len(formats) == 1 and len(biases) == 1 else None


def emit_packed_linear(
    build: Build, x: ir.Value, name: str, projections: list[Projection], names: list[str]
) -> list[ir.Value]:
    """Emit projections that share an input: one product if they agree, else one for each.

    names: node names for the separate products. Returns one value, or one per projection.
    """
    if find_common_format(build, projections) is not None:
        return [emit_linear(build, x, name, projections)]
    return [
        emit_linear(build, x, own, [projection])
        for own, projection in zip(names, projections, strict=True)
    ]


def emit_add(build: Build, a: ir.Value, b: ir.Value, name: str) -> ir.Value:
    """Emit a + b in the shape of a."""
    return build.emitter.op("Add", [a, b], name=name, shape=_shape(a))


def use_float_vector(
    build: Build, name: str, sources: tuple[RowSource, ...], size: int, offset: float = 0.0
) -> ir.Value:
    """Return a stored vector of the graph's float type."""
    return build.emitter.use_initializer(
        FloatInitializer(name, build.precision.float_dtype, (size,), sources, offset)
    )


def use_quantized_parts(
    build: Build, matrix: QuantizedMatrix, *, flat: bool = False
) -> tuple[ir.Value, ir.Value, ir.Value | None]:
    """Return codes, scales and zero points of a quantized matrix.

    flat: codes as [rows, bytes] for a gather; else [rows, groups, bytes of a group]. Both are
    the same bytes in the file.
    """
    grid, groups = matrix.grid, matrix.groups
    blob = grid.group_size * grid.bits // 8
    codes = (
        ("flat", (matrix.rows, groups * blob)) if flat else ("packed", (matrix.rows, groups, blob))
    )
    use = build.emitter.use_initializer

    def part(suffix: str, kind: str, dtype: ir.DataType, shape: tuple[int, ...]) -> ir.Value:
        return use(QuantizedPart(f"{matrix.name}.weight.{suffix}", dtype, shape, matrix, kind))

    packed = part(codes[0], "packed", ir.DataType.UINT8, codes[1])
    scales = part("scales", "scales", matrix.scale_dtype, (matrix.rows, groups))
    if grid.symmetric:
        return packed, scales, None
    zero_bytes = -(-groups * grid.bits // 8)
    zero_points = part("zero_points", "zero_points", ir.DataType.UINT8, (matrix.rows, zero_bytes))
    return packed, scales, zero_points


def _emit_quantized(
    build: Build,
    x: ir.Value,
    name: str,
    projections: list[Projection],
    grid: Grid,
    shape: Shape,
    bias: ir.Value | None,
) -> ir.Value:
    inputs = projections[0].inputs
    rows = sum(projection.num_rows for projection in projections)
    matrix = QuantizedMatrix(
        name,
        "matmul",
        grid,
        rows,
        inputs,
        tuple(projection.weight_source(build) for projection in projections),
        build.precision.float_dtype,
    )
    packed, scales, zero_points = use_quantized_parts(build, matrix)
    return emit_matmul_nbits(build, x, name, matrix, (packed, scales, zero_points), shape, bias)


def emit_matmul_nbits(
    build: Build,
    x: ir.Value,
    name: str,
    matrix: QuantizedMatrix,
    parts: tuple[ir.Value, ir.Value, ir.Value | None],
    shape: Shape,
    bias: ir.Value | None,
) -> ir.Value:
    """Emit x times a quantized matrix."""
    packed, scales, zero_points = parts
    inputs: list[ir.Value | None] = [x, packed, scales, zero_points, None, bias]
    while inputs[-1] is None:
        inputs.pop()
    return build.emitter.op(
        "MatMulNBits",
        inputs,
        name=name,
        shape=shape,
        domain=MICROSOFT,
        attributes={
            "K": matrix.inputs,
            "N": matrix.rows,
            "bits": matrix.grid.bits,
            "block_size": matrix.grid.group_size,
            "accuracy_level": build.precision.accuracy_level,
        },
    )


def _emit_float(
    build: Build,
    x: ir.Value,
    name: str,
    projections: list[Projection],
    weight_format: FloatFormat,
    shape: Shape,
) -> ir.Value:
    emitter = build.emitter
    inputs = projections[0].inputs
    rows = sum(projection.num_rows for projection in projections)
    weight = emitter.use_initializer(
        FloatInitializer(
            f"{name}.weight",
            weight_format.dtype,
            (inputs, rows),
            tuple(projection.weight_source(build) for projection in projections),
            transpose=True,
        )
    )
    if weight_format.dtype != emitter.float_dtype:
        weight = emitter.op(
            "Cast",
            [weight],
            name=f"{name}.weight_cast",
            shape=(inputs, rows),
            attributes={"to": int(emitter.float_dtype)},
        )
    return emitter.op("MatMul", [x, weight], name=name, shape=shape)


def _use_bias(build: Build, name: str, projections: list[Projection], rows: int) -> ir.Value | None:
    if not projections[0].linear.bias:
        return None
    sources = tuple(projection.bias_source(build) for projection in projections)
    return use_float_vector(build, f"{name}.bias", sources, rows)


def _shape(value: ir.Value) -> Shape:
    assert value.shape is not None
    return tuple(dim if isinstance(dim, int) else str(dim) for dim in value.shape)


def _leading(value: ir.Value) -> Shape:
    return _shape(value)[:-1]
