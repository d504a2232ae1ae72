"""Adds nodes to a graph: every node under a path-like name, every value typed and shaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir

from assay.blocks.initializers import ComputedInitializer, Initializer

__all__ = ["MICROSOFT", "ONNX_OPSET", "Dim", "Emitter", "Shape"]

MICROSOFT = "com.microsoft"
ONNX_OPSET = 23

Dim = int | str
Shape = tuple[Dim, ...]
T = TypeVar("T")


class Emitter:
    """Collects the nodes and initializers of one graph.

    float_dtype: of activations and the KV cache.
    """

    def __init__(self, float_dtype: ir.DataType) -> None:
        self.float_dtype = float_dtype
        self.nodes: list[ir.Node] = []
        self.inputs: list[ir.Value] = []
        self.outputs: list[ir.Value] = []
        self.initializers: dict[str, Initializer] = {}
        self._values: dict[str, ir.Value] = {}
        self._node_names: set[str] = set()
        self._memo: dict[Any, Any] = {}

    def add_input(
        self, name: str, dtype: ir.DataType, shape: Shape, *, at: int | None = None
    ) -> ir.Value:
        """Declare a graph input, at a place among the others (the end by default)."""
        value = self._new_value(name, dtype, shape)
        self.inputs.insert(len(self.inputs) if at is None else at, value)
        return value

    def add_output(self, value: ir.Value, name: str) -> None:
        """Declare a graph output, renaming the value."""
        assert value.name is not None
        del self._values[value.name]
        value.name = name
        assert name not in self._values, name
        self._values[name] = value
        self.outputs.append(value)

    def op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        *,
        name: str,
        shape: Shape,
        dtype: ir.DataType | None = None,
        domain: str = "",
        attributes: Mapping[str, Any] | None = None,
    ) -> ir.Value:
        """Add a node with one output; dtype defaults to the graph's float type."""
        return self.ops(
            op_type,
            inputs,
            name=name,
            outputs=[(dtype or self.float_dtype, shape)],
            domain=domain,
            attributes=attributes,
        )[0]

    def ops(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        *,
        name: str,
        outputs: Sequence[tuple[ir.DataType, Shape] | None],
        domain: str = "",
        attributes: Mapping[str, Any] | None = None,
    ) -> list[ir.Value]:
        """Add a node with several outputs; None stands for an output that nobody needs."""
        assert name not in self._node_names, f"two nodes named {name}"
        self._node_names.add(name)
        values = [
            ir.Value(name="") if output is None else self._new_value(f"{name}/{index}", *output)
            for index, output in enumerate(outputs)
        ]
        node = ir.Node(
            domain,
            op_type,
            inputs=inputs,
            attributes=ir.convenience.convert_attributes(dict(attributes or {})),
            outputs=values,
            name=name,
        )
        self.nodes.append(node)
        return values

    def use_initializer(self, initializer: Initializer) -> ir.Value:
        """Return the value of a stored tensor, declaring it on first use."""
        known = self.initializers.get(initializer.name)
        if known is None:
            self.initializers[initializer.name] = initializer
            return self._new_value(initializer.name, initializer.dtype, initializer.shape)
        assert known == initializer, f"two tensors named {initializer.name}"
        return self._values[initializer.name]

    def constant(self, name: str, array: np.ndarray[Any, Any]) -> ir.Value:
        """Return the value of a small array computed here, stored once under `name`."""
        if name in self.initializers:
            return self._values[name]
        return self.use_initializer(ComputedInitializer.from_array(name, array))

    def scalar(self, value: float, dtype: ir.DataType | None = None) -> ir.Value:
        """Return a constant scalar of the graph's float type (or `dtype`), shared by value."""
        dtype = dtype or self.float_dtype
        array = np.asarray(value, dtype=dtype.numpy())
        return self.constant(f"constants.{dtype.name.lower()}.{value}", array)

    def integers(self, *values: int) -> ir.Value:
        """Return a constant int64 vector, shared by value."""
        name = "constants.int64." + "_".join(str(value) for value in values)
        return self.constant(name, np.asarray(values, dtype=np.int64))

    def once(self, key: Any, build: Callable[[], T]) -> T:
        """Build something that several layers share on its first use only."""
        if key not in self._memo:
            self._memo[key] = build()
        result: T = self._memo[key]
        return result

    def _new_value(self, name: str, dtype: ir.DataType, shape: Shape) -> ir.Value:
        assert name not in self._values, f"two values named {name}"
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype))
        self._values[name] = value
        return value
