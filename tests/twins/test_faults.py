"""Negative controls of the harness: small faults cost at least five times the bound, and fail.

proves: P3. The faults are those that a loose tolerance lets pass: a norm's eps of 1e-5 for 1e-6,
a rope theta of 10001 for 10000, a window one token too wide, one head scaled by 1 %.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.blocks.attention import list_qkv
from assay.checkpoint import open_checkpoint
from assay.graph import ExportOptions
from assay.pipeline import resolve_checkpoint
from assay.spec.vocabulary import LAYER, Attention, DecoderPlan, Norm, Rope
from assay.verification import FloatReference, judge_float32, measure_reference
from tests.twins.cases import BASES, TwinCase
from tests.twins.plan_change import change_parts
from tests.twins.twin import STDS, build_twin, draw_prompt, export_twin

pytestmark = pytest.mark.twin
SMALL, LARGE = STDS
TIMES_BOUND = 5.0

NO_ROPE = {"gpt2"}
WINDOWED = [case for case in BASES.values() if "sliding_window" in case.facts]


@pytest.mark.parametrize("case", BASES.values(), ids=lambda case: case.id)
def test_eps_of_all_norms(case: TwinCase, tmp_path: Path) -> None:
    """eps off by a factor of ten shows where activations are small."""

    def fault(norm: Norm) -> Norm:
        return replace(norm, eps=1e-5 if norm.eps < 3e-6 else 1e-6)

    _check_caught(case, SMALL, tmp_path, change_plan=lambda plan: change_parts(plan, Norm, fault))


@pytest.mark.parametrize(
    "case",
    [case for case in BASES.values() if case.model_type not in NO_ROPE],
    ids=lambda case: case.id,
)
def test_theta(case: TwinCase, tmp_path: Path) -> None:
    """theta off by one in ten thousand."""

    def fault(rope: Rope) -> Rope:
        return replace(rope, theta=rope.theta * 1.0001)

    _check_caught(case, LARGE, tmp_path, change_plan=lambda plan: change_parts(plan, Rope, fault))


@pytest.mark.parametrize("case", WINDOWED, ids=lambda case: case.id)
def test_window(case: TwinCase, tmp_path: Path) -> None:
    """A window one token too wide."""

    def fault(attention: Attention) -> Attention:
        window = attention.window
        return attention if window is None else replace(attention, window=window + 1)

    _check_caught(
        case, LARGE, tmp_path, change_plan=lambda plan: change_parts(plan, Attention, fault)
    )


@pytest.mark.parametrize("case", BASES.values(), ids=lambda case: case.id)
def test_one_head(case: TwinCase, tmp_path: Path) -> None:
    """One value head of the first layer scaled by 1.01 (a query norm would undo it in q)."""
    _check_caught(case, LARGE, tmp_path, scale_head=(2, 1.01))


@pytest.mark.parametrize("case", BASES.values(), ids=lambda case: case.id)
def test_one_query_head(case: TwinCase, tmp_path: Path) -> None:
    """One query head of the first layer scaled by 1.01, or turned round where a norm follows."""
    _check_caught(case, LARGE, tmp_path, scale_head=(0, None))


def _check_caught(
    case: TwinCase,
    std: float,
    tmp_path: Path,
    *,
    change_plan: Callable[[DecoderPlan], DecoderPlan] | None = None,
    scale_head: tuple[int, float | None] | None = None,
) -> None:
    model = build_twin(case, std, tmp_path / "hf")
    reference = measure_reference(model, draw_prompt(), settings=("prefill",))
    healthy = export_twin(tmp_path / "hf", tmp_path / "healthy")
    assert _excess(healthy, reference) <= 1.0, "the healthy export must pass first"
    change_rows = None
    if scale_head is not None:
        change_rows = _scale_one_head(tmp_path / "hf", *scale_head)
    broken = export_twin(
        tmp_path / "hf", tmp_path / "broken", change_plan=change_plan, change_rows=change_rows
    )
    assert _excess(broken, reference) >= TIMES_BOUND


def _excess(folder: Path, reference: FloatReference) -> float:
    """relL2 in prefill over its bound; a passing check is at most 1."""
    check = next(
        check
        for check in judge_float32(folder, reference, settings=("prefill",))
        if check.name == "prefill"
    )
    excess = float(check.metrics["rel_l2"] / check.bound["rel_l2"])
    assert check.passed == (excess <= 1.0)
    return excess


def _scale_one_head(
    source: Path, which: int, factor: float | None
) -> Callable[[str, np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """Return a change of the first head's rows in q (0), k (1) or v (2) of layer 0."""
    with open_checkpoint(source) as checkpoint:
        plan = resolve_checkpoint(checkpoint, ExportOptions()).plan
    attention = plan.attentions[0]
    path = f"{plan.layers_name.replace(LAYER, '0')}.{attention.name}"
    projection = list_qkv(attention, path, plan.hidden_size)[which]
    start = projection.rows[0][0] if projection.rows else 0
    rows = slice(start, start + attention.head_dim)
    if factor is None:
        factor = 1.01 if attention.q_norm is None else -1.0

    def change(name: str, tensor: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if name.endswith(f"{projection.path}.weight"):
            target = tensor.T if projection.linear.transposed else tensor
            target[rows] *= factor
        return tensor

    return change
