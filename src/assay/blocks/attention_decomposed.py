"""Attention in plain ONNX operators, for what GroupQueryAttention can't do exactly."""

from __future__ import annotations

import onnx_ir as ir

from assay.blocks.build import Build
from assay.blocks.emitter import Shape
from assay.blocks.masks import emit_full_mask
from assay.spec.vocabulary import Attention

__all__ = ["emit_decomposed"]


def emit_decomposed(
    build: Build,
    qkv: list[ir.Value],
    past: tuple[ir.Value, ir.Value],
    attention: Attention,
    name: str,
    rotate_inside: bool,
) -> tuple[ir.Value, tuple[ir.Value, ir.Value]]:
    """Emit softmax(softcap(scale * q k^T) + mask) v.

    q, k, v: [batch, sequence, heads * head_dim], rotated already. Query heads of one kv head
    lie side by side, so that k and v need no copies: [batch, kv, group * sequence, head_dim].
    """
    assert not rotate_inside
    emitter = build.emitter
    q, k, v = qkv
    kv_heads, size = attention.num_kv_heads, attention.head_dim
    group = attention.num_heads // kv_heads

    def op(
        op_type: str, inputs: list[ir.Value], suffix: str, shape: Shape, **attributes: object
    ) -> ir.Value:
        return emitter.op(
            op_type, inputs, name=f"{name}.{suffix}", shape=shape, attributes=attributes
        )

    def split_heads(value: ir.Value, suffix: str) -> ir.Value:
        heads = op(
            "Reshape",
            [value, emitter.integers(0, 0, kv_heads, size)],
            f"{suffix}_heads",
            ("batch", "sequence", kv_heads, size),
        )
        return op(
            "Transpose", [heads], suffix, ("batch", kv_heads, "sequence", size), perm=[0, 2, 1, 3]
        )

    total = ("batch", kv_heads, "total", size)
    keys = op("Concat", [past[0], split_heads(k, "k")], "present_key", total, axis=2)
    values = op("Concat", [past[1], split_heads(v, "v")], "present_value", total, axis=2)
    q = op(
        "Reshape",
        [q, emitter.integers(0, 0, kv_heads, group, size)],
        "q_heads",
        ("batch", "sequence", kv_heads, group, size),
    )
    q = op(
        "Transpose", [q], "q", ("batch", kv_heads, group, "sequence", size), perm=[0, 2, 3, 1, 4]
    )
    q = op(
        "Mul",
        [q, emitter.scalar(float(attention.scale))],
        "q_scaled",
        ("batch", kv_heads, group, "sequence", size),
    )
    wide = ("batch", kv_heads, group, "sequence", "total")
    axis2 = emitter.integers(2)
    keys_t = op(
        "Transpose", [keys], "k_transposed", ("batch", kv_heads, size, "total"), perm=[0, 1, 3, 2]
    )
    keys_t = op("Unsqueeze", [keys_t, axis2], "k_shared", ("batch", kv_heads, 1, size, "total"))
    scores = op("MatMul", [q, keys_t], "scores", wide)
    if attention.softcap is not None:
        cap = float(attention.softcap)
        scores = op("Mul", [scores, emitter.scalar(1.0 / cap)], "scores_by_cap", wide)
        scores = op("Tanh", [scores], "scores_tanh", wide)
        scores = op("Mul", [scores, emitter.scalar(cap)], "scores_capped", wide)
    mask = emit_full_mask(build, attention.window)
    mask = op("Unsqueeze", [mask, axis2], "mask", ("batch", 1, 1, "sequence", "total"))
    scores = op("Add", [scores, mask], "scores_masked", wide)
    weights = op("Softmax", [scores], "weights", wide, axis=-1)
    shared = op("Unsqueeze", [values, axis2], "v_shared", ("batch", kv_heads, 1, "total", size))
    mixed = op("MatMul", [weights, shared], "mixed", ("batch", kv_heads, group, "sequence", size))
    mixed = op(
        "Transpose",
        [mixed],
        "mixed_heads",
        ("batch", "sequence", kv_heads, group, size),
        perm=[0, 3, 1, 2, 4],
    )
    width = attention.num_heads * size
    flat = op(
        "Reshape", [mixed, emitter.integers(0, 0, width)], "output", ("batch", "sequence", width)
    )
    return flat, (keys, values)
