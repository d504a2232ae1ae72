"""Normalizations, alone or fused with the residual addition before them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from assay.blocks.build import Build
from assay.blocks.emitter import MICROSOFT, Shape
from assay.blocks.initializers import RowSource
from assay.blocks.linear import use_float_vector
from assay.spec.vocabulary import Norm

__all__ = ["emit_norm", "emit_skip_norm"]


def emit_norm(
    build: Build, x: ir.Value, norm: Norm, name: str, path: str | None, size: int, shape: Shape
) -> ir.Value:
    """Emit a norm over the last `size` channels of x. path: module path of its tensors."""
    gamma, beta = _use_tensors(build, norm, path, size)
    op_type = "RMSNormalization" if norm.kind == "rms" else "LayerNormalization"
    return build.emitter.op(
        op_type,
        [x, gamma] if beta is None else [x, gamma, beta],
        name=name,
        shape=shape,
        attributes={"axis": -1, "epsilon": float(norm.eps), "stash_type": 1},
    )


def emit_skip_norm(
    build: Build,
    x: ir.Value,
    skip: ir.Value,
    norm: Norm,
    name: str,
    path: str | None,
    size: int,
    shape: Shape,
) -> tuple[ir.Value, ir.Value]:
    """Emit norm(x + skip) as one operator; returns the norm and the sum."""
    gamma, beta = _use_tensors(build, norm, path, size)
    rms = norm.kind == "rms"
    dtype = build.emitter.float_dtype
    normed, total = (
        value
        for value in build.emitter.ops(
            "SkipSimplifiedLayerNormalization" if rms else "SkipLayerNormalization",
            [x, skip, gamma] if beta is None else [x, skip, gamma, beta],
            name=name,
            outputs=[(dtype, shape), None, None, (dtype, shape)],
            domain=MICROSOFT,
            attributes={"epsilon": float(norm.eps)},
        )
        if value.name
    )
    return normed, total


def _use_tensors(
    build: Build, norm: Norm, path: str | None, size: int
) -> tuple[ir.Value, ir.Value | None]:
    """Return weight and bias; where the file has no weight, a vector of ones."""
    if path is None or not norm.weight:
        ones = np.ones(size, dtype=build.emitter.float_dtype.numpy())
        gamma = build.emitter.constant(f"constants.ones.{size}", ones)
    else:
        gamma = _use_vector(build, f"{path}.weight", size, norm.offset)
    if path is None or not norm.bias:
        return gamma, None
    return gamma, _use_vector(build, f"{path}.bias", size, 0.0)


def _use_vector(build: Build, path: str, size: int, offset: float) -> ir.Value:
    source = RowSource(build.weights.use(path, (size,)), path, ((0, size),))
    return use_float_vector(build, path, (source,), size, offset)
