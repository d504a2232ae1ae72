"""What every block needs at hand while a graph is built."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from assay.blocks.emitter import Emitter
from assay.blocks.precision import PrecisionPlan
from assay.spec.weights import WeightMap

__all__ = ["Build", "GraphInputs"]


@dataclass(frozen=True)
class GraphInputs:
    """The graph's inputs besides the cache.

    attention_mask: int64 [batch, total], 1 where a slot holds a token. position_ids: int64
    [batch, sequence].
    """

    input_ids: ir.Value
    attention_mask: ir.Value
    position_ids: ir.Value


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
