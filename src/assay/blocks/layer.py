"""A decoder layer: residual branches, with each addition fused into the norm that follows it."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from assay.blocks.attention import emit_attention
from assay.blocks.build import Build
from assay.blocks.linear import emit_add
from assay.blocks.mlp import emit_mlp
from assay.blocks.norm import emit_norm, emit_skip_norm
from assay.spec.vocabulary import Attention, Branch, Layer, Mixer, Mlp, Norm, Sum

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
    for branch in layer.branches:
        x, stream = emit_residual_norm(build, state.residual, branch.norm, path, hidden_size)
        state.residual = Residual(stream, _emit_branch(build, state, branch, x, path, hidden_size))


def emit_residual_norm(
    build: Build, residual: Residual, norm: Norm | None, path: str, hidden_size: int
) -> tuple[ir.Value, ir.Value]:
    """Emit the pending addition and the norm after it; returns the norm and the stream."""
    shape = ("batch", "sequence", hidden_size)
    stream, pending = residual.stream, residual.pending
    if norm is None:
        if pending is not None:
            stream = emit_add(build, stream, pending, f"{_name_of(pending)}.residual")
        return stream, stream
    name = _norm_name(build, norm, path)
    tensors = _join(path, norm.name) if norm.name else None
    if pending is None:
        return emit_norm(build, stream, norm, name, tensors, hidden_size, shape), stream
    return emit_skip_norm(build, stream, pending, norm, name, tensors, hidden_size, shape)


def _emit_branch(
    build: Build, state: LayerState, branch: Branch, x: ir.Value, path: str, hidden_size: int
) -> ir.Value:
    """Emit multiplier * post_norm(mixer(x)); the norm in front of the mixer stands in x."""
    shape = ("batch", "sequence", hidden_size)
    value = _emit_mixer(build, state, branch.mixer, x, path, hidden_size)
    if branch.post_norm is not None:
        norm = branch.post_norm
        assert norm.name is not None
        own = f"{path}.{norm.name}"
        value = emit_norm(build, value, norm, own, own, hidden_size, shape)
    if branch.multiplier != 1.0:
        scalar = build.emitter.scalar(float(branch.multiplier))
        value = build.emitter.op(
            "Mul", [value, scalar], name=f"{_name_of(value)}.multiplied", shape=shape
        )
    return value


def _emit_mixer(
    build: Build, state: LayerState, mixer: Mixer, x: ir.Value, path: str, hidden_size: int
) -> ir.Value:
    if isinstance(mixer, Attention):
        value = emit_attention(build, x, mixer, f"{path}.{mixer.name}", hidden_size, state.slot)
        state.slot += 1
        return value
    if isinstance(mixer, Mlp):
        return emit_mlp(build, x, mixer, f"{path}.{mixer.name}", hidden_size)
    assert isinstance(mixer, Sum), mixer
    return _emit_sum(build, state, mixer, x, path, hidden_size)


def _emit_sum(
    build: Build, state: LayerState, mixer: Sum, x: ir.Value, path: str, hidden_size: int
) -> ir.Value:
    """Emit branches that all read x, and add what they give."""
    values = []
    for branch in mixer.branches:
        own, _ = emit_residual_norm(build, Residual(x), branch.norm, path, hidden_size)
        values.append(_emit_branch(build, state, branch, own, path, hidden_size))
    total = values[0]
    for value in values[1:]:
        total = emit_add(build, total, value, f"{_name_of(value)}.summed")
    return total


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _norm_name(build: Build, norm: Norm, path: str) -> str:
    """Name the node; norms without tensors are numbered within their layer."""
    if norm.name:
        return _join(path, norm.name)
    counter = build.emitter.once(("norm count", path), lambda: [0])
    counter[0] += 1
    return _join(path, f"norm_{counter[0]}")


def _name_of(value: ir.Value) -> str:
    """Return the name of the node that gives a value."""
    return str(value.name).rsplit("/", 1)[0]
