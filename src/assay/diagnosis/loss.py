"""What quantization costs: not a fault, and yet to be known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from assay.diagnosis.alignment import Alignment
from assay.diagnosis.finding import Loss
from assay.verification.candidate import open_candidate
from assay.verification.metrics import relative_l2

__all__ = ["measure_loss"]

_NUM_TENSORS = 5


def measure_loss(
    alignment: Alignment,
    exact_SV: npt.NDArray[np.float32],
    ids_S: npt.NDArray[np.int64],
    original_SV: npt.NDArray[np.float32],
) -> Loss | None:
    """Logits and weights of a quantized folder against the checkpoint's; None for a float one.

    exact_SV: the folder's last logits, its packed products computed as floats.

    Needs the checkpoint's own weights in the parameters yet.
    """
    folder = alignment.folder
    if not folder.is_quantized:
        return None
    ranked = []
    for matrix in alignment.matrices:
        if matrix.packed is None or not matrix.matched:
            continue
        error_M, norm_M = alignment.measure_matched(matrix)
        ranked.append((matrix.name, float(error_M.sum() / max(norm_M.sum(), 1e-30)) ** 0.5))
    count = len(original_SV)
    shipped = open_candidate(folder, last_positions=count)
    as_shipped = relative_l2(shipped.prefill(ids_S)[-count:], original_SV)
    shipped.close()
    return Loss(
        rel_l2=relative_l2(exact_SV, original_SV),
        corr=float(np.corrcoef(exact_SV.ravel(), original_SV.ravel())[0, 1]),
        as_shipped=as_shipped,
        tensors=tuple(sorted(ranked, key=lambda pair: -pair[1])[:_NUM_TENSORS]),
    )
