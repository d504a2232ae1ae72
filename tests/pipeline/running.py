"""Reads and runs an exported graph in plain ONNX Runtime, and compares outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

__all__ = ["draw_ids", "find_rel_l2", "load_graph", "open_session", "run_logits"]

Array = np.ndarray[Any, Any]


def draw_ids(vocab_size: int, count: int = 24) -> Array:
    """Random token ids [1, count], the same every time."""
    return np.random.default_rng(7).integers(3, vocab_size, (1, count))


def load_graph(folder: Path) -> onnx.ModelProto:
    """The model without its data."""
    return onnx.load(folder / "model.onnx", load_external_data=False)


def open_session(folder: Path, *, threads: int = 1) -> onnxruntime.InferenceSession:
    """Open model.onnx on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        folder / "model.onnx", options, providers=["CPUExecutionProvider"]
    )


def run_logits(folder: Path, ids: Array) -> Array:
    """Prefill with an empty cache: logits, float32 [batch, positions, vocab]."""
    session = open_session(folder)
    batch, length = ids.shape
    given: dict[str, Array] = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "position_ids": np.broadcast_to(np.arange(length), ids.shape),
    }
    feeds = {}
    for value in session.get_inputs():
        if value.name in given:
            feeds[value.name] = given[value.name]
        else:
            shape = [batch, *(dim if isinstance(dim, int) else 0 for dim in value.shape[1:])]
            half = value.type == "tensor(float16)"
            feeds[value.name] = np.zeros(shape, np.float16 if half else np.float32)
    logits: Array = session.run(["logits"], feeds)[0]
    return logits


def find_rel_l2(candidate: Array, reference: Array) -> float:
    """||candidate - reference|| / ||reference||"""
    difference = candidate.astype(np.float64) - reference
    return float(np.linalg.norm(difference) / np.linalg.norm(reference))
