"""Whether a fault can be seen at all: plain ONNX Runtime, the doctor isn't asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import RuntimeFolderError
from assay.verification import open_candidate

__all__ = ["compute", "differs", "parts"]

MEASURABLE = 2e-6  # relL2 that a fault has to make at least


def differs(healthy: Path, faulty: Path) -> bool:
    """Whether plain ONNX Runtime sees the fault: in a prefill, in a decode, or beside padding."""
    right = compute(healthy)
    wrong = compute(faulty)
    if right is None or wrong is None:
        return right is not None
    return any(parts(a, b) for a, b in zip(wrong, right, strict=True))


def compute(folder: Path) -> list[Any] | None:
    """Logits of a prefill, a decode, and where it takes padding at all, of a padded row."""
    ids = np.random.default_rng(1).integers(3, 250, 96)
    try:
        candidate = open_candidate(folder, accuracy_level=0)
        whole = candidate.prefill(ids)
        _, state = candidate.feed(candidate.start(), ids[None, :80])
        decoded, _ = candidate.decode(state, ids[80:])
        mask = np.ones((1, 96), np.int64)
        mask[:, :9] = 0
        padded, _ = candidate.feed(candidate.start(), ids[None], mask)
        alone = candidate.prefill(ids[9:])
    except RuntimeFolderError:
        return None
    takes_padding = not parts(padded[0, -1], alone[-1], 1e-4)
    return [whole, decoded, padded[0, -1] if takes_padding else alone[-1] * 0]


def parts(a: Any, b: Any, limit: float = MEASURABLE) -> bool:
    return not np.linalg.norm(a - b) <= limit * np.linalg.norm(b)
