"""What every block needs at hand while a graph is built."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from assay.blocks.emitter import Emitter
from assay.blocks.precision import PrecisionPlan
from assay.spec.weights import WeightMap

__all__ = ["Build", "GraphInputs"]

_INT64 = ir.DataType.INT64


class GraphInputs:
    """The graph's inputs besides the cache.

    input_ids: int64 [batch, sequence]. attention_mask: int64 [batch, total], 1 where a slot
    holds a token.
    """

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self.input_ids = emitter.add_input("input_ids", _INT64, ("batch", "sequence"))
        self.attention_mask = emitter.add_input("attention_mask", _INT64, ("batch", "total"))

    @property
    def position_ids(self) -> ir.Value:
        """int64 [batch, sequence], counted without padding; declared only where it is used."""
        return self._emitter.once(
            "position_ids",
            lambda: self._emitter.add_input("position_ids", _INT64, ("batch", "sequence"), at=2),
        )


@dataclass(frozen=True)
class Build:
    """The emitter, the weights, their formats, and the choices of the target.

    attention_form: `gqa` where GroupQueryAttention is exact, else `decomposed`; `decomposed`
    asks for plain ONNX operators throughout.
    """

    emitter: Emitter
    weights: WeightMap
    precision: PrecisionPlan
    inputs: GraphInputs
    attention_form: str
    linear_paths: list[str] = field(default_factory=list)
