"""Feed-forward blocks."""

from __future__ import annotations

import onnx_ir as ir

from assay.blocks.activation import emit_activation
from assay.blocks.build import Build
from assay.blocks.linear import Projection, emit_linear, emit_packed_linear
from assay.spec.vocabulary import Linear, Mlp

__all__ = ["emit_mlp"]


def emit_mlp(build: Build, x: ir.Value, mlp: Mlp, path: str, hidden_size: int) -> ir.Value:
    """Emit down(act(gate(x)) * up(x)), or down(act(up(x))). x: [batch, sequence, hidden]."""
    shape = ("batch", "sequence", mlp.width)
    if mlp.gate is None and mlp.gate_up is None:
        assert mlp.up is not None
        up = _project(mlp.up, path, hidden_size, mlp.width)
        acted = emit_linear(build, x, up.path, [up])
        acted = emit_activation(build, acted, mlp.activation, f"{path}.act_fn", shape)
    else:
        gated, linear = _emit_gate_and_up(build, x, mlp, path, hidden_size)
        acted = emit_activation(build, gated, mlp.activation, f"{path}.act_fn", shape)
        acted = build.emitter.op("Mul", [acted, linear], name=f"{path}.gated", shape=shape)
    down = _project(mlp.down, path, mlp.width, hidden_size)
    return emit_linear(build, acted, down.path, [down])


def _emit_gate_and_up(
    build: Build, x: ir.Value, mlp: Mlp, path: str, hidden_size: int
) -> tuple[ir.Value, ir.Value]:
    """Emit gate(x) and up(x): one product and a split where both have one format.

    One product reads and rounds the activations once: int4 SmolLM2-135M decodes 3 % faster.
    """
    width = mlp.width
    if mlp.gate_up is not None:
        whole = [_project(mlp.gate_up, path, hidden_size, 2 * width)]
        name, names = whole[0].path, [whole[0].path]
    else:
        assert mlp.gate is not None
        assert mlp.up is not None
        whole = [_project(part, path, hidden_size, width) for part in (mlp.gate, mlp.up)]
        name, names = f"{path}.gate_up_proj", [part.path for part in whole]
    values = emit_packed_linear(build, x, name, whole, names)
    if len(values) == 1:
        out = (build.emitter.float_dtype, ("batch", "sequence", width))
        values = build.emitter.ops(
            "Split",
            [values[0]],
            name=f"{name}.split",
            outputs=[out, out],
            attributes={"axis": -1, "num_outputs": 2},
        )
    gate, up = values
    return gate, up


def _project(linear: Linear, path: str, inputs: int, rows: int) -> Projection:
    return Projection(f"{path}.{linear.name}", linear, inputs, rows)
