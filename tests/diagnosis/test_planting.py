"""Every kind of planted fault is named in its place; healthy folders are not accused.

proves: P4, P5, P6, P8, P9. The whole matrix: `python -m tests.diagnosis.planting`, whose table
stands in docs/causes.md. A fault counts where plain ONNX Runtime sees it, not where the doctor
says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from assay.diagnosis import Diagnosis, diagnose_folder
from tests.diagnosis.planting.fault import Fault, NothingError, is_named
from tests.diagnosis.planting.measure import differs
from tests.diagnosis.planting.rooms import find_folder, plant
from tests.diagnosis.planting.sample import ALL, PEERS, list_cases, unpack_peer
from tests.diagnosis.planting.weights import WEIGHT_FAULTS
from tests.twins.cases import CASES, TwinCase

pytestmark = pytest.mark.twin


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny models: threads cost more than they give."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _plant_somewhere(number: int, fault: Fault, precision: str, room: Path) -> Path | None:
    """The first case in turn that has what the fault changes, and in which it shows."""
    for case in list_cases(number):
        try:
            healthy = find_folder(room, case, "ours", precision, fault.std)
            folder = plant(fault, room, case, "ours", precision)
        except NothingError:
            continue
        if differs(healthy, folder):
            return folder
        shutil.rmtree(folder)
    return None


def _describe(fault: Fault, found: Diagnosis) -> str:
    return f"{fault.name}: {fault.causes} at {fault.place!r}\n{found.to_text()}"


@pytest.mark.parametrize("number", range(len(ALL)), ids=[fault.name for fault in ALL])
def test_a_kind_is_named(number: int, tmp_path: Path) -> None:
    """In float32 and int4 by turns, in the other where it can't be; the controls are below."""
    fault = ALL[number]
    for precision in ("fp32", "int4") if number % 2 else ("int4", "fp32"):
        folder = _plant_somewhere(number, fault, precision, tmp_path / precision)
        if folder is not None:
            found = diagnose_folder(folder, folder.parent / "hf")
            assert is_named(fault, found), _describe(fault, found)
            return
    raise AssertionError(f"{fault.name} changes nothing anywhere")


@pytest.mark.parametrize("name", PEERS)
def test_peers_folders(name: str, tmp_path: Path) -> None:
    """Healthy as they came, then with faults of graph and weights, each named."""
    healthy = unpack_peer(name, tmp_path)
    assert diagnose_folder(healthy, tmp_path / "hf").causes == ()
    planted = 0
    for fault in ALL:
        if fault.plant is None:
            continue
        faulty = tmp_path / "faulty"
        shutil.rmtree(faulty, ignore_errors=True)
        shutil.copytree(healthy, faulty)
        try:
            fault.plant(faulty)
        except NothingError:
            continue
        if not differs(healthy, faulty):
            continue
        found = diagnose_folder(faulty, tmp_path / "hf")
        assert is_named(fault, found), _describe(fault, found)
        planted += 1
    assert planted >= (15 if "int4" in name else len(WEIGHT_FAULTS) // 2)


@pytest.mark.parametrize("case", CASES[::8], ids=lambda case: case.id)
def test_healthy_exports_are_not_accused(case: TwinCase, tmp_path: Path) -> None:
    """An eighth of all cases, each in float32 and one other precision. Control: the kinds above."""
    other = ("int4", "fp16", "int8")[CASES.index(case) // 8 % 3]
    for precision in ("fp32", other):
        folder = find_folder(tmp_path, case, "ours", precision, 0.12)
        found = diagnose_folder(folder, folder.parent / "hf")
        assert found.health == "healthy", found.to_text()
