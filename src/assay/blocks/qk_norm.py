"""Norms of queries and keys: per head, per head with own weights, or over the full width."""

from __future__ import annotations

import onnx_ir as ir

from assay.blocks.build import Build
from assay.blocks.initializers import FloatInitializer, RowSource
from assay.blocks.norm import emit_norm
from assay.spec.vocabulary import Norm

__all__ = ["emit_head_norm"]


def emit_head_norm(
    build: Build, x: ir.Value, norm: Norm, path: str, num_heads: int, head_dim: int
) -> ir.Value:
    """Emit the norm of x: [batch, sequence, heads * head_dim], as is returned."""
    width = num_heads * head_dim
    flat = ("batch", "sequence", width)
    assert norm.name is not None
    name = f"{path}.{norm.name.split('.')[0]}"
    if norm.scope == "projection":
        return emit_norm(build, x, norm, name, f"{path}.{norm.name}", width, flat)
    emitter = build.emitter
    heads = ("batch", "sequence", num_heads, head_dim)
    by_head = emitter.op(
        "Reshape",
        [x, emitter.integers(0, 0, num_heads, head_dim)],
        name=f"{name}.heads",
        shape=heads,
    )
    if norm.scope == "head":
        normed = emit_norm(build, by_head, norm, name, f"{path}.{norm.name}", head_dim, heads)
    else:
        normed = _emit_own_weights(build, by_head, norm, name, path, num_heads, head_dim)
    return emitter.op(
        "Reshape", [normed, emitter.integers(0, 0, width)], name=f"{name}.flat", shape=flat
    )


def _emit_own_weights(
    build: Build,
    by_head: ir.Value,
    norm: Norm,
    name: str,
    path: str,
    num_heads: int,
    head_dim: int,
) -> ir.Value:
    """Normalize without a weight, then multiply each head by its own."""
    emitter, assert_name = build.emitter, norm.name
    assert norm.scope == "each_head" and assert_name is not None and not norm.bias
    shape = ("batch", "sequence", num_heads, head_dim)
    plain = emit_norm(build, by_head, norm, f"{name}.normalized", None, head_dim, shape)
    paths = [f"{path}.{assert_name.format(head=head)}.weight" for head in range(num_heads)]
    sources = tuple(
        RowSource(build.weights.use(own, (head_dim,)), own, ((0, head_dim),)) for own in paths
    )
    weight = emitter.use_initializer(
        FloatInitializer(
            f"{name}.weight", emitter.float_dtype, (num_heads, head_dim), sources, norm.offset
        )
    )
    return emitter.op("Mul", [plain, weight], name=name, shape=shape)
