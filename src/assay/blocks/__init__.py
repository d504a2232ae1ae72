"""Reusable pieces of a decoder graph: they read spec facts and emit onnx_ir nodes."""
