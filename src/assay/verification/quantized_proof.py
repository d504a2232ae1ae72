"""The two-part proof of a quantized folder, and what quantization costs end to end.

Part one: packed weights decode to the checkpoint's (weight_proof). Part two: the graph, computing
as exactly as it can (accuracy_level 0), equals PyTorch run with the decoded weights, at the
tolerance of its float type. Without the second, quantization noise would hide a dropped window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from assay.verification.candidate import Candidate, open_candidate
from assay.verification.float_proof import (
    NOISE_FLOOR,
    FloatReference,
    judge_float32,
    judge_settings,
    measure_reference,
)
from assay.verification.folder import ModelFolder
from assay.verification.half_proof import judge_float16, measure_half_reference
from assay.verification.layers import compare_layers, match_layers, report_layers, run_layers
from assay.verification.metrics import Agreement, Noise
from assay.verification.packed_nodes import find_packed_tensors
from assay.verification.reference import ReferenceRun, run_logits
from assay.verification.settings import SETTINGS
from assay.verification.verdict import Check
from assay.verification.weight_proof import TensorFidelity, prove_weights

if TYPE_CHECKING:
    import torch

__all__ = ["MIN_FINAL_CORR", "judge_end_to_end", "judge_quantized"]

MIN_FINAL_CORR = 0.95
_PACKED_OPS = frozenset({"QMoE", "MatMulBnb4", "DequantizeLinear"})
_NUM_SHOWN = 5

Ids = npt.NDArray[np.int64]


def judge_quantized(
    folder: ModelFolder,
    model: torch.nn.Module,
    input_ids: Ids,
    *,
    settings: Sequence[str] = SETTINGS,
) -> list[Check]:
    """Judge a folder with packed weights.

    The model's weights are replaced by the decoded ones on the way; load it afresh for more.
    """
    ids_S = np.asarray(input_ids, np.int64).reshape(-1)
    original_SV = run_logits(model, ids_S)
    streams = run_layers(model, ids_S)
    fidelities = prove_weights(folder, model)
    weights = _report_weights(folder, fidelities)
    if weights.passed is None:
        return [weights, *judge_end_to_end(folder, ids_S, original_SV, ("prefill", "decode"))]
    graph = [
        replace(check, name=f"decoded_{check.name}")
        for check in _judge_graph(folder, model, ids_S, settings)
    ]
    matched = match_layers(
        open_candidate(folder, accuracy_level=0), ids_S, run_layers(model, ids_S)
    )
    end = judge_end_to_end(folder, ids_S, original_SV, ("prefill",))
    layers = compare_layers(open_candidate(folder), ids_S, streams, matched)
    if not any(check.passed is False for check in (weights, *graph)):
        end = [_name_loss(check) for check in end]
    return [weights, *graph, *end, report_layers(layers)]


def _name_loss(check: Check) -> Check:
    """Weights and graph are proved, so what is lost end to end is what quantization costs.

    That is a property of the model and the grid, no fault of the folder: it is reported under
    its own name and left out of the verdict.
    """
    if check.passed is not False or not check.metrics.get("finite"):
        return check
    detail = (
        f"heavy quantization loss (corr below {MIN_FINAL_CORR}): weights and graph are right, "
        "but this model needs more bits, smaller groups or zero points"
    )
    return replace(check, passed=None, required=False, outcome="quantization_loss", detail=detail)


def _report_weights(folder: ModelFolder, fidelities: list[TensorFidelity]) -> Check:
    """Part one as a Check, the tensors ranked by relL2."""
    ranked = sorted(fidelities, key=lambda f: f.rel_l2, reverse=True)
    unmatched = [f.packed for f in fidelities if not f.tensors]
    undecoded = _list_undecoded(folder)
    if unmatched or undecoded or not fidelities:
        what = ", ".join(unmatched[:_NUM_SHOWN] + undecoded) or "no packed tensor"
        return Check(
            "weights",
            None,
            required=any(f.strict for f in fidelities),
            metrics={"num_tensors": len(fidelities), "num_unmatched": len(unmatched)},
            detail=f"can't be traced to the checkpoint: {what}; only the end result is judged",
        )
    failed = [f for f in ranked if not f.passed]
    faults = [f for f in failed if f.encoding_fault]
    lines = [
        f"{f.packed}: relL2 {f.rel_l2:.3g}, {f.off_grid:.2%} off its grid, "
        f"{f.wide_groups:.2%} in too wide steps"
        + (" (an encoding fault)" if f.encoding_fault else "")
        for f in failed[:_NUM_SHOWN]
    ]
    return Check(
        "weights",
        not failed,
        metrics={
            "num_tensors": len(fidelities),
            "num_failed": len(failed),
            "worst_rel_l2": ranked[0].rel_l2,
            "median_rel_l2": float(np.median([f.rel_l2 for f in ranked])),
            "worst_off_grid": max(f.off_grid for f in ranked),
            "tensors": [asdict(f) for f in ranked],
        },
        detail="\n".join(lines),
        outcome="encoding_fault" if faults else "",
    )


def _list_undecoded(folder: ModelFolder) -> list[str]:
    """Nodes that compute with stored codes which nothing here can decode."""
    decoded = {node for tensor in find_packed_tensors(folder) for node in tensor.nodes}
    return [
        f"{node.op_type} {node.name}"
        for node in folder.proto.graph.node
        if node.op_type in _PACKED_OPS
        and node.name not in decoded
        and any(name in folder.initializers for name in node.input[:1] + node.input[2:3])
    ][:_NUM_SHOWN]


def _judge_graph(
    folder: ModelFolder, model: torch.nn.Module, ids_S: Ids, settings: Sequence[str]
) -> list[Check]:
    """Part two: the graph at accuracy_level 0 against PyTorch with the decoded weights."""
    candidate = open_candidate(folder, accuracy_level=0)
    if folder.precision == "float32":
        reference = measure_reference(model, ids_S, settings=settings)
        return judge_float32(candidate, reference, settings=settings)
    half = measure_half_reference(model, ids_S, settings=settings)
    return judge_float16(candidate, half, settings=settings)


def judge_end_to_end(
    folder: ModelFolder,
    ids_S: Ids,
    original_SV: npt.NDArray[np.float32],
    settings: Sequence[str],
) -> list[Check]:
    """The folder as it will be run, against the original weights."""
    candidate: Candidate = open_candidate(folder)
    norm_S = np.square(original_SV, dtype=np.float64).sum(1)
    noise = Noise(norm_S * NOISE_FLOOR**2, norm_S, np.full(len(norm_S), np.inf))
    truth = FloatReference(ReferenceRun(ids_S, original_SV, noise), (), None)
    checks = judge_settings(candidate, truth, settings, _grade_end_to_end, shipped_too=False)
    return [replace(check, name=f"end_to_end_{check.name}") for check in checks]


def _grade_end_to_end(agreement: Agreement, noise: float) -> tuple[bool, dict[str, float]]:
    passed = agreement.finite and agreement.corr >= MIN_FINAL_CORR
    return passed, {"min_corr": MIN_FINAL_CORR}
