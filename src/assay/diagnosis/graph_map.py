"""Where a decoder graph's residual stream runs, told by the graph's shape alone.

A separator is a node that everything on the way from the ids to the logits passes: the embedding,
each sum that closes a residual branch, the final norm, the head. Names and values play no part, so
a wrong graph is cut in the same places as a right one. Between two separators lies a stretch; the
weights that its nodes read tell which layer it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["GraphMap", "Separator", "WeightUse"]

_SKIP_NORMS = frozenset({"SkipSimplifiedLayerNormalization", "SkipLayerNormalization"})
_SHAPES_ONLY = frozenset({"Shape", "Size", "ConstantOfShape"})


@dataclass(frozen=True)
class Separator:
    """A node that everything passes.

    values: names whose sum is the stream there: one value, or the two summed by a fused norm.
    position: of the node in the graph.
    """

    values: tuple[str, ...]
    position: int
    op_type: str


@dataclass(frozen=True)
class WeightUse:
    """A node that reads a stored tensor. stretch: how many separators lie before it."""

    initializer: str
    node: str
    op_type: str
    position: int
    stretch: int
    input_index: int


class GraphMap:
    """Separators and uses of weights of a graph, in the order of its nodes."""

    def __init__(self, proto: onnx.ModelProto, input_ids: str, logits: str) -> None:
        self.nodes = list(proto.graph.node)
        self.initializers = {tensor.name for tensor in proto.graph.initializer}
        self.input_ids, self.logits = input_ids, logits
        self._inputs = [list(_list_inputs(node)) for node in self.nodes]

    @cached_property
    def relevant(self) -> set[int]:
        """Positions of nodes on a way from the ids' values to the logits."""
        derived, forward = {self.input_ids}, set()
        for position, node in enumerate(self.nodes):
            if node.op_type not in _SHAPES_ONLY and derived.intersection(self._inputs[position]):
                forward.add(position)
                derived.update(node.output)
        wanted, found = {self.logits}, set()
        for position in range(len(self.nodes) - 1, -1, -1):
            if wanted.intersection(self.nodes[position].output):
                wanted.update(self._inputs[position])
                if position in forward:
                    found.add(position)
        return found

    @cached_property
    def separators(self) -> list[Separator]:
        """Every node whose outputs are, when it has run, all that later nodes read."""
        consumers: dict[str, int] = {}
        for position in self.relevant:
            for name in set(self._inputs[position]):
                consumers[name] = consumers.get(name, 0) + 1
        live: dict[str, int] = {}
        found = []
        for position in sorted(self.relevant):
            node = self.nodes[position]
            for name in set(self._inputs[position]) & live.keys():
                live[name] -= 1
                if not live[name]:
                    del live[name]
            own = [name for name in node.output if name in consumers or name == self.logits]
            live |= {name: consumers.get(name, 1) for name in own}
            if live and live.keys() <= set(own):
                found.append(Separator(_stream_of(node, own), position, node.op_type))
        return found

    @cached_property
    def weight_uses(self) -> list[WeightUse]:
        """Stored tensors behind each node on the way, also through Transpose, Dequantize..."""
        behind = {
            name: position
            for position, node in enumerate(self.nodes)
            if position not in self.relevant
            for name in node.output
        }
        cuts = [separator.position for separator in self.separators]
        uses, stretch = [], 0
        for position in sorted(self.relevant):
            while stretch < len(cuts) and cuts[stretch] < position:
                stretch += 1
            node = self.nodes[position]
            # A fused norm sums first: its weight belongs to what follows.
            later = position in cuts and node.op_type in _SKIP_NORMS
            for index, name in enumerate(node.input):
                uses += [
                    WeightUse(stored, node.name, node.op_type, position, stretch + later, index)
                    for stored in self._trace(name, behind)
                ]
        return uses

    def _trace(self, name: str, behind: dict[str, int], depth: int = 4) -> Iterator[str]:
        if name in self.initializers:
            yield name
        elif name in behind and depth:
            for source in self._inputs[behind[name]]:
                yield from self._trace(source, behind, depth - 1)


def _stream_of(node: onnx.NodeProto, own: list[str]) -> tuple[str, ...]:
    if node.op_type in _SKIP_NORMS:
        bias = 3 if node.op_type == "SkipSimplifiedLayerNormalization" else 4
        summed = [*node.input[:2], *(node.input[bias : bias + 1])]
        return tuple(name for name in summed if name)
    return (own[0],)


def _list_inputs(node: onnx.NodeProto) -> Iterator[str]:
    """A node's inputs, and what its subgraphs read from outside."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _list_inputs(inner)
