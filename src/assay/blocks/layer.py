"""A decoder layer: residual branches, with each addition fused into the norm that follows it."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from assay.blocks.attention import emit_attention
from assay.blocks.build import Build
from assay.blocks.linear import emit_add
from assay.blocks.mlp import emit_mlp
from assay.blocks.norm import emit_norm, emit_skip_norm
from assay.spec.vocabulary import Attention, Branch, Layer, Norm

__all__ = ["Residual", "emit_layer", "emit_residual_norm"]


@dataclass(frozen=True)
class Residual:
    """The residual stream as a sum that isn't carried out yet: stream + pending."""

    stream: ir.Value
    pending: ir.Value | None = None


@dataclass
class LayerState:
    """Where the next layer starts: the residual and the next free cache slot."""

    residual: Residual
    slot: int = 0


def emit_layer(build: Build, state: LayerState, layer: Layer, path: str, hidden_size: int) -> None:
    """Emit one layer, moving `state` on."""
    if layer.parallel:
        _emit_parallel(build, state, layer, path, hidden_size)
        return
    for branch in layer.branches:
        x, residual = emit_residual_norm(build, state.residual, branch.norm, path, hidden_size)
        added = _emit_branch(build, state, branch, x, path, hidden_size)
        state.residual = Residual(residual, added)


def emit_residual_norm(
    build: Build, residual: Residual, norm: Norm | None, path: str, hidden_size: int
) -> tuple[ir.Value, ir.Value]:
    """Emit the pending addition and the norm after it; returns the norm and the stream."""
    shape = ("batch", "sequence", hidden_size)
    stream, pending = residual.stream, residual.pending
    if norm is None:
        if pending is not None:
            stream = emit_add(build, stream, pending, _add_name(pending))
        return stream, stream
    name = _norm_name(build, norm, path)
    tensors = _join(path, norm.name) if norm.name else None
    if pending is None:
        return emit_norm(build, stream, norm, name, tensors, hidden_size, shape), stream
    return emit_skip_norm(build, stream, pending, norm, name, tensors, hidden_size, shape)


def _emit_parallel(
    build: Build, state: LayerState, layer: Layer, path: str, hidden_size: int
) -> None:
    """Emit branches that all read the layer's input, and add what they give."""
    x, stream = emit_residual_norm(build, state.residual, layer.shared_norm, path, hidden_size)
    added: ir.Value | None = None
    for branch in layer.branches:
        own = x
        if branch.norm is not None:
            assert layer.shared_norm is None, "a shared norm and a branch's own"
            own, _ = emit_residual_norm(build, Residual(stream), branch.norm, path, hidden_size)
        value = _emit_branch(build, state, branch, own, path, hidden_size)
        added = value if added is None else emit_add(build, added, value, f"{path}.branches")
    state.residual = Residual(stream, added)


def _emit_branch(
    build: Build, state: LayerState, branch: Branch, x: ir.Value, path: str, hidden_size: int
) -> ir.Value:
    """Emit multiplier * post_norm(mixer(x))."""
    mixer, shape = branch.mixer, ("batch", "sequence", hidden_size)
    mixer_path = f"{path}.{mixer.name}"
    if isinstance(mixer, Attention):
        value = emit_attention(build, x, mixer, mixer_path, hidden_size, state.slot)
        state.slot += 1
    else:
        value = emit_mlp(build, x, mixer, mixer_path, hidden_size)
    if branch.post_norm is not None:
        norm = branch.post_norm
        assert norm.name is not None
        own = f"{path}.{norm.name}"
        value = emit_norm(build, value, norm, own, own, hidden_size, shape)
    if branch.multiplier != 1.0:
        scalar = build.emitter.scalar(float(branch.multiplier))
        value = build.emitter.op(
            "Mul", [value, scalar], name=f"{mixer_path}.multiplied", shape=shape
        )
    return value


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _norm_name(build: Build, norm: Norm, path: str) -> str:
    """Name the node; norms without tensors are numbered within their layer."""
    if norm.name:
        return _join(path, norm.name)
    counter = build.emitter.once(("norm count", path), lambda: [0])
    counter[0] += 1
    return _join(path, f"norm_{counter[0]}")


def _add_name(pending: ir.Value) -> str:
    return f"{str(pending.name).rsplit('/', 1)[0]}.residual"
