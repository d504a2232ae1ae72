"""Which format each weight is stored in."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from assay.quantization import Grid

__all__ = ["FloatFormat", "PrecisionPlan", "WeightFormat", "WeightKind"]


@dataclass(frozen=True)
class FloatFormat:
    """A weight kept in float; a dtype other than the activations' is cast in the graph."""

    dtype: ir.DataType


WeightFormat = Grid | FloatFormat
WeightKind = Literal["projection", "head", "embedding"]


@dataclass(frozen=True, kw_only=True)
class PrecisionPlan:
    """Formats by module path.

    float_dtype: activations, norms, biases, KV cache. default: every projection. head: the head,
    and the embedding where the two are tied. embedding: of a table of its own.
    keep: (pattern over module paths, format), the
    first match wins over everything. accuracy_level: of MatMulNBits (0 computes in float, 4 with
    int8 activations).
    """

    float_dtype: ir.DataType
    default: WeightFormat
    head: WeightFormat
    embedding: WeightFormat
    keep: tuple[tuple[str, WeightFormat], ...] = ()
    accuracy_level: int = 0

    def find_format(self, path: str, kind: WeightKind = "projection") -> WeightFormat:
        """Return the format of the weight at a module path."""
        for pattern, weight_format in self.keep:
            if fnmatch.fnmatchcase(path, pattern):
                return weight_format
        if kind == "projection":
            return self.default
        return self.head if kind == "head" else self.embedding

    def find_table_format(self, embedding: str, head: str | None) -> WeightFormat:
        """Return the format of the embedding's table, which a tied head shares.

        head: the tied head's module path; None where the head has a weight of its own. A shared
        table may be kept under either name.
        """
        if head is None:
            return self.find_format(embedding, "embedding")
        for path in (head, embedding):
            kept = self.find_format(path, "head")
            if kept != self.head:
                return kept
        return self.head

    def list_unmatched(self, paths: list[str]) -> list[str]:
        """Return the keep patterns that match no module path."""
        return [
            pattern
            for pattern, _ in self.keep
            if not any(fnmatch.fnmatchcase(path, pattern) for path in paths)
        ]
