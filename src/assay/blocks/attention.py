"""Self-attention: projections, q/k norms, rotation, cache, and the product itself."""

from __future__ import annotations

import onnx_ir as ir

from assay.blocks.attention_decomposed import emit_decomposed
from assay.blocks.attention_gqa import can_rotate_inside, emit_gqa, is_gqa_exact
from assay.blocks.build import Build
from assay.blocks.cache import add_cache_inputs, add_cache_outputs
from assay.blocks.linear import Projection, emit_linear, emit_packed_linear
from assay.blocks.qk_norm import emit_head_norm
from assay.blocks.rope import emit_rotation
from assay.spec.vocabulary import Attention, FusedQkv, Linear, Norm

__all__ = ["emit_attention"]


def emit_attention(
    build: Build, x: ir.Value, attention: Attention, path: str, hidden_size: int, slot: int
) -> ir.Value:
    """Emit attention over x and the cache slot. x: [batch, sequence, hidden], as is returned."""
    width = attention.num_heads * attention.head_dim
    past = add_cache_inputs(build, slot, attention.num_kv_heads, attention.head_dim)
    use_gqa = build.attention_form == "gqa" and is_gqa_exact(attention)
    rotate_inside = use_gqa and can_rotate_inside(attention)
    qkv = _emit_qkv(build, x, attention, path, hidden_size)
    if len(qkv) == 1 and not (use_gqa and _passes_packed(attention, rotate_inside)):
        qkv = _emit_split(build, qkv[0], attention, path)
    if len(qkv) == 3:
        qkv = _emit_between(build, qkv, attention, path, rotate_inside)
    emit = emit_gqa if use_gqa else emit_decomposed
    mixed, present = emit(build, qkv, past, attention, f"{path}.attention", rotate_inside)
    add_cache_outputs(build, slot, present)
    projection = Projection(f"{path}.{attention.o_proj.name}", attention.o_proj, width, hidden_size)
    return emit_linear(build, mixed, projection.path, [projection])


def _passes_packed(attention: Attention, rotate_inside: bool) -> bool:
    """Whether q, k and v can stay one tensor: nothing happens between projection and product."""
    return (
        attention.q_norm is None
        and attention.k_norm is None
        and (attention.rope is None or rotate_inside)
    )


def list_qkv(attention: Attention, path: str, hidden_size: int) -> list[Projection]:
    """Return the q, k and v projections, wherever their rows lie."""
    head_dim, heads, kv_heads = attention.head_dim, attention.num_heads, attention.num_kv_heads
    counts = (heads * head_dim, kv_heads * head_dim, kv_heads * head_dim)
    if not isinstance(attention.qkv, FusedQkv):
        parts: tuple[Linear, ...] = (attention.qkv.q, attention.qkv.k, attention.qkv.v)
        return [
            Projection(f"{path}.{linear.name}", linear, hidden_size, count)
            for linear, count in zip(parts, counts, strict=True)
        ]
    linear = attention.qkv.linear
    return [
        Projection(f"{path}.{linear.name}", linear, hidden_size, sum(counts), rows)
        for rows in _fused_rows(attention)
    ]


def _fused_rows(attention: Attention) -> list[tuple[tuple[int, int], ...]]:
    """Return the row ranges of q, k and v inside a fused tensor."""
    assert isinstance(attention.qkv, FusedQkv)
    size, heads, kv_heads = attention.head_dim, attention.num_heads, attention.num_kv_heads
    if attention.qkv.rows == "q|k|v":
        q, kv = heads * size, kv_heads * size
        return [((0, q),), ((q, q + kv),), ((q + kv, q + 2 * kv),)]
    per_group = heads // kv_heads
    stride = (per_group + 2) * size
    starts = range(0, kv_heads * stride, stride)
    q_rows = tuple((start, start + per_group * size) for start in starts)
    k_rows = tuple((stop, stop + size) for _, stop in q_rows)
    v_rows = tuple((stop, stop + size) for _, stop in k_rows)
    return [q_rows, k_rows, v_rows]


def _emit_qkv(
    build: Build, x: ir.Value, attention: Attention, path: str, hidden_size: int
) -> list[ir.Value]:
    """Emit q, k, v as one product where their formats agree; clamp them where asked."""
    projections = list_qkv(attention, path, hidden_size)
    names = [f"{path}.{name}" for name in ("q_proj", "k_proj", "v_proj")]
    values = emit_packed_linear(build, x, f"{path}.qkv_proj", projections, names)
    clip = attention.clip_qkv
    if clip is None or attention.q_norm is not None:
        return values
    return [_emit_clip(build, value, clip) for value in values]


def _emit_clip(build: Build, value: ir.Value, clip: float) -> ir.Value:
    assert value.shape is not None
    low, high = build.emitter.scalar(-float(clip)), build.emitter.scalar(float(clip))
    shape = ("batch", "sequence", int(value.shape[-1]))  # type: ignore[arg-type]
    name = f"{str(value.name).rsplit('/', 1)[0]}.clip"
    return build.emitter.op("Clip", [value, low, high], name=name, shape=shape)


def _emit_split(build: Build, packed: ir.Value, attention: Attention, path: str) -> list[ir.Value]:
    sizes = [
        heads * attention.head_dim
        for heads in (attention.num_heads, attention.num_kv_heads, attention.num_kv_heads)
    ]
    dtype = build.emitter.float_dtype
    return build.emitter.ops(
        "Split",
        [packed, build.emitter.integers(*sizes)],
        name=f"{path}.qkv_split",
        outputs=[(dtype, ("batch", "sequence", size)) for size in sizes],
        attributes={"axis": -1},
    )


def _emit_between(
    build: Build, qkv: list[ir.Value], attention: Attention, path: str, rotate_inside: bool
) -> list[ir.Value]:
    """Emit what stands between the projections and the product: norms, clamp, rotation."""
    q, k, v = qkv

    def normalize(q: ir.Value, k: ir.Value) -> tuple[ir.Value, ir.Value]:
        return (
            _emit_norm(build, q, attention.q_norm, attention, attention.num_heads, path),
            _emit_norm(build, k, attention.k_norm, attention, attention.num_kv_heads, path),
        )

    if attention.qk_norm_before_rope:
        q, k = normalize(q, k)
    if attention.clip_qkv is not None and attention.q_norm is not None:
        q, k, v = (_emit_clip(build, value, attention.clip_qkv) for value in (q, k, v))
    if attention.rope is not None and not rotate_inside:
        q = emit_rotation(build, q, attention.rope, attention.num_heads, f"{path}.q_rope")
        k = emit_rotation(build, k, attention.rope, attention.num_kv_heads, f"{path}.k_rope")
    if not attention.qk_norm_before_rope:
        q, k = normalize(q, k)
    return [q, k, v]


def _emit_norm(
    build: Build, x: ir.Value, norm: Norm | None, attention: Attention, heads: int, path: str
) -> ir.Value:
    if norm is None:
        return x
    return emit_head_norm(build, x, norm, path, heads, attention.head_dim)
