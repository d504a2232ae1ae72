"""Grids and layouts: float weights in, the bytes that the runtime reads out, and back."""

from __future__ import annotations

from assay.quantization._chunks import count_processors
from assay.quantization._convert import convert_rows
from assay.quantization._grid import Grid, QuantizedRows, allocate_rows
from assay.quantization._rows import dequantize_rows, quantize_rows, weight_error

__all__ = [
    "Grid",
    "QuantizedRows",
    "allocate_rows",
    "convert_rows",
    "count_processors",
    "dequantize_rows",
    "quantize_rows",
    "weight_error",
]
