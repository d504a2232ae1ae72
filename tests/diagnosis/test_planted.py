"""Faults planted in exports of ours are named; healthy exports are not accused.

proves: P4, P6, P8, P9
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.diagnosis import diagnose_folder
from assay.graph import ExportOptions
from assay.spec.vocabulary import DecoderPlan
from tests.diagnosis.faults import FAULTS, Fault
from tests.twins.cases import BASES, TwinCase
from tests.twins.twin import build_twin, export_twin

pytestmark = pytest.mark.twin
CASES = list(BASES.values())
FEW = [BASES[name] for name in ("llama", "gemma2", "phi")]


class NothingError(Exception):
    """The fault changes nothing in this model."""


def export_with(
    case: TwinCase, fault: Fault, room: Path, options: ExportOptions | None = None
) -> Path:
    """Export with a fault; raise NothingError where the model hasn't what it changes."""
    build_twin(case, fault.std, room / "hf")

    def change(plan: DecoderPlan) -> DecoderPlan:
        changed = fault.change(plan)
        if changed == plan:
            raise NothingError
        return changed

    return export_twin(room / "hf", room / "out", change_plan=change, options=options)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny models: threads cost more than they give."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model_type)
def test_every_fault_of_a_type_is_named(case: TwinCase, tmp_path: Path) -> None:
    """All faults that the model can have; the control is the healthy export."""
    build_twin(case, 0.12, tmp_path / "hf")
    healthy = diagnose_folder(export_twin(tmp_path / "hf", tmp_path / "healthy"), tmp_path / "hf")
    assert (healthy.health, healthy.causes) == ("healthy", ())
    named = 0
    for number, fault in enumerate(FAULTS):
        try:
            folder = export_with(case, fault, tmp_path / str(number))
        except NothingError:
            continue
        found = diagnose_folder(folder, tmp_path / str(number) / "hf")
        assert {cause.id for cause in found.causes} == {fault.cause}, (fault.name, found.to_text())
        assert found.health == "explained", found.to_text()
        named += 1
    assert named >= 4


@pytest.mark.parametrize("precision", ["int4", "int8"])
@pytest.mark.parametrize("case", FEW, ids=lambda case: case.model_type)
def test_under_quantization(case: TwinCase, precision: str, tmp_path: Path) -> None:
    """Rounding alone is no fault, and hides none."""
    options = ExportOptions(precision=precision)
    build_twin(case, 0.12, tmp_path / "hf")
    healthy = export_twin(tmp_path / "hf", tmp_path / "healthy", options=options)
    assert diagnose_folder(healthy, tmp_path / "hf").health == "healthy"
    for fault in (f for f in FAULTS if f.name in ("theta", "scale", "activation")):
        folder = export_with(case, fault, tmp_path / fault.name, options)
        found = diagnose_folder(folder, tmp_path / fault.name / "hf")
        assert [cause.id for cause in found.causes] == [fault.cause], found.to_text()


PAIRS = [("theta", "activation"), ("scale", "gate and up"), ("offset", "theta")]


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_two_faults_are_both_named(pair: tuple[str, str], tmp_path: Path) -> None:
    """One after the other is granted."""
    first, second = (next(f for f in FAULTS if f.name == name) for name in pair)
    both = Fault("both", "", lambda plan: second.change(first.change(plan)))
    folder = export_with(BASES["llama"], both, tmp_path)
    found = diagnose_folder(folder, tmp_path / "hf")
    assert {cause.id for cause in found.causes} == {first.cause, second.cause}, found.to_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w * np.float32(1.01), "1.01 times"),
        (lambda w: -w, "-1 times"),
        (lambda w: w[::-1].copy(), "differ"),
    ],
    ids=["scaled", "negated", "rows turned round"],
)
def test_wrong_values_are_placed(change, said: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """The weight is named by its module path."""
    build_twin(BASES["llama"], 0.12, tmp_path / "hf")
    name = "model.layers.1.mlp.down_proj"

    def change_rows(tensor: str, rows: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return change(rows) if tensor == f"{name}.weight" else rows  # type: ignore[no-any-return]

    folder = export_twin(tmp_path / "hf", tmp_path / "out", change_rows=change_rows)
    found = diagnose_folder(folder, tmp_path / "hf")
    if said == "differ":  # values that fit no weight are found by their absence
        assert found.health != "healthy"
        return
    assert [(cause.id, cause.place) for cause in found.causes] == [("weight_values", name)]
    assert said in found.causes[0].evidence
    assert found.health == "explained"
