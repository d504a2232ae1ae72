"""A checkpoint on disk: raw config, lazy tensors, tokenizer files; its files count as hostile."""

from __future__ import annotations

from assay.checkpoint._interface import Checkpoint, TensorInfo
from assay.checkpoint._open import open_checkpoint

__all__ = ["Checkpoint", "TensorInfo", "open_checkpoint"]
