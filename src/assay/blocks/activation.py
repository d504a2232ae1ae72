"""Activation functions, by transformers' names."""

from __future__ import annotations

import onnx_ir as ir

from assay.blocks.build import Build
from assay.blocks.emitter import MICROSOFT, Shape
from assay.errors import ConfigError

__all__ = ["ACTIVATIONS", "emit_activation"]

_Op = tuple[str, str, dict[str, str | float]]
_TANH_GELU: _Op = ("Gelu", "", {"approximate": "tanh"})
_SILU: _Op = ("QuickGelu", MICROSOFT, {"alpha": 1.0})  # x * sigmoid(alpha * x)
_ONE_OP: dict[str, _Op] = {
    "silu": _SILU,
    "swish": _SILU,
    "gelu": ("Gelu", "", {"approximate": "none"}),
    "gelu_new": _TANH_GELU,
    "gelu_pytorch_tanh": _TANH_GELU,
    "gelu_fast": _TANH_GELU,
    "gelu_accurate": _TANH_GELU,
    "quick_gelu": ("QuickGelu", MICROSOFT, {"alpha": 1.702}),
    "relu": ("Relu", "", {}),
    "sigmoid": ("Sigmoid", "", {}),
    "tanh": ("Tanh", "", {}),
}
ACTIVATIONS = (*_ONE_OP, "relu2")


def emit_activation(
    build: Build, x: ir.Value, activation: str, name: str, shape: Shape
) -> ir.Value:
    """Emit an activation; ConfigError for a name that isn't known."""
    if activation == "relu2":
        relu = build.emitter.op("Relu", [x], name=f"{name}.relu", shape=shape)
        return build.emitter.op("Mul", [relu, relu], name=name, shape=shape)
    if activation not in _ONE_OP:
        raise ConfigError(
            name,
            f"the activation {activation!r} is unknown",
            expected=f"one of {', '.join(ACTIVATIONS)}",
        )
    op_type, domain, attributes = _ONE_OP[activation]
    return build.emitter.op(
        op_type, [x], name=name, shape=shape, domain=domain, attributes=attributes
    )
