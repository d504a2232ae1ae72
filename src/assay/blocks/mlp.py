"""Feed-forward blocks."""

from __future__ import annotations

import onnx_ir as ir

from assay.blocks.activation import emit_activation
from assay.blocks.build import Build
from assay.blocks.linear import Projection, emit_linear
from assay.spec.vocabulary import Linear, Mlp

__all__ = ["emit_mlp"]


def emit_mlp(build: Build, x: ir.Value, mlp: Mlp, path: str, hidden_size: int) -> ir.Value:
    """Emit down(act(gate(x)) * up(x)), or down(act(up(x))). x: [batch, sequence, hidden]."""
    shape = ("batch", "sequence", mlp.width)

    def project(linear: Linear, name: str, rows: tuple[int, int] | None = None) -> ir.Value:
        projection = Projection(
            f"{path}.{linear.name}",
            linear,
            hidden_size,
            mlp.width if rows is None else 2 * mlp.width,
            None if rows is None else (rows,),
        )
        return emit_linear(build, x, name, [projection])

    up: ir.Value | None
    if mlp.gate_up is not None:
        acted = project(mlp.gate_up, f"{path}.gate_proj", (0, mlp.width))
        up = project(mlp.gate_up, f"{path}.up_proj", (mlp.width, 2 * mlp.width))
    elif mlp.gate is not None:
        assert mlp.up is not None
        acted = project(mlp.gate, f"{path}.{mlp.gate.name}")
        up = project(mlp.up, f"{path}.{mlp.up.name}")
    else:
        assert mlp.up is not None
        acted, up = project(mlp.up, f"{path}.{mlp.up.name}"), None
    acted = emit_activation(build, acted, mlp.activation, f"{path}.act_fn", shape)
    if up is not None:
        acted = build.emitter.op("Mul", [acted, up], name=f"{path}.gated", shape=shape)
    down = Projection(f"{path}.{mlp.down.name}", mlp.down, mlp.width, hidden_size)
    return emit_linear(build, acted, f"{path}.{mlp.down.name}", [down])
