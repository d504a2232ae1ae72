"""Every registered type in int4, int8 and fp16: the two-part proof, and float16's bounds.

proves: P3, P7, B10
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assay.graph import ExportOptions
from assay.spec.vocabulary import Attention
from assay.verification.candidate import open_candidate
from assay.verification.folder import open_folder
from assay.verification.half_proof import judge_float16, measure_half_reference
from assay.verification.quantized_proof import judge_quantized
from tests.twins.cases import BASES, TwinCase
from tests.twins.plan_change import change_parts
from tests.twins.twin import STDS, build_twin, draw_prompt, export_twin

pytestmark = pytest.mark.twin
NUM_TOKENS = 160
STD = STDS[1]
GRIDS = {
    "int4": ExportOptions(precision="int4", group_size=32),
    "int8_asymmetric": ExportOptions(precision="int8", group_size=16, symmetric=False),
}
# The proof of weights and graph; what rounding costs end to end is no fault of an export.
LOSS = "end_to_end_prefill"


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("case", BASES.values(), ids=lambda case: case.id)
def test_two_part_proof(case: TwinCase, grid: str, tmp_path: Path) -> None:
    """Weights decode to the originals; the graph equals PyTorch with the decoded weights."""
    model = build_twin(case, STD, tmp_path / "hf")
    folder = export_twin(tmp_path / "hf", tmp_path / "onnx", options=GRIDS[grid])
    checks = judge_quantized(open_folder(folder), model, draw_prompt(NUM_TOKENS))
    judged = {check.name: check for check in checks if check.name != LOSS}
    assert judged["weights"].passed, judged["weights"].detail
    assert judged["decoded_decode"].passed is True
    assert judged["decoded_left_padded_batch"].passed is True
    failed = [check for check in judged.values() if check.passed is False]
    assert not failed, failed


@pytest.mark.parametrize("case", BASES.values(), ids=lambda case: case.id)
def test_float16(case: TwinCase, tmp_path: Path) -> None:
    """corr, scale and counted argmaxes of the float16 folder."""
    model = build_twin(case, STD, tmp_path / "hf")
    options = ExportOptions(precision="fp16")
    folder = export_twin(tmp_path / "hf", tmp_path / "onnx", options=options)
    ids = draw_prompt(NUM_TOKENS)
    checks = judge_float16(open_candidate(folder), measure_half_reference(model, ids))
    assert np.all([check.passed is not False for check in checks]), checks
    assert {check.name for check in checks if check.passed} >= {"prefill", "decode"}


def test_a_dropped_window_fails_under_int4(tmp_path: Path) -> None:
    """Negative control: rounding noise doesn't hide a structural fault."""
    case = BASES["mistral"]
    model = build_twin(case, STD, tmp_path / "hf")

    def drop(attention: Attention) -> Attention:
        return replace(attention, window=None)

    folder = export_twin(
        tmp_path / "hf",
        tmp_path / "onnx",
        options=GRIDS["int4"],
        change_plan=lambda plan: change_parts(plan, Attention, drop),
    )
    checks = {
        c.name: c for c in judge_quantized(open_folder(folder), model, draw_prompt(NUM_TOKENS))
    }
    assert checks["weights"].passed
    assert checks["decoded_window"].passed is False
    assert checks["decoded_prefill"].passed is False
