"""Mixture-of-experts faults in another tool's folder: the judge fails it, the doctor names it.

proves: P3, P6, P8, P9. Control: the folder as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import numpy_helper

from assay.diagnosis import diagnose_folder
from assay.verification import verify_folder
from tests.diagnosis.planting.edits import edit_graph
from tests.diagnosis.planting.experts import unpack_experts

pytestmark = pytest.mark.twin
EXPERT = "model.layers.1.mlp.experts.{}.{}.weight_t"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny models: threads cost more than they give."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _exchange(*pairs: tuple[str, str]) -> Callable[[Any], None]:
    """Exchange stored tensors by name."""

    def edit(model: Any) -> None:
        stored = {tensor.name: tensor for tensor in model.graph.initializer}
        for first, second in pairs:
            a = numpy_helper.to_array(stored[first]).copy()
            b = numpy_helper.to_array(stored[second]).copy()
            stored[first].CopyFrom(numpy_helper.from_array(b, first))
            stored[second].CopyFrom(numpy_helper.from_array(a, second))

    return edit


def _reverse_router(model: Any) -> None:
    for tensor in model.graph.initializer:
        if tensor.name.startswith("model.layers.1.mlp.gate"):
            array = numpy_helper.to_array(tensor)
            axis = list(array.shape).index(4)
            turned = np.ascontiguousarray(np.flip(array, axis))
            tensor.CopyFrom(numpy_helper.from_array(turned, tensor.name))


EVERY = ("gate_proj", "up_proj", "down_proj")
SWAPPED = tuple((EXPERT.format(0, n), EXPERT.format(2, n)) for n in EVERY)
GATE_UP = tuple((EXPERT.format(e, "gate_proj"), EXPERT.format(e, "up_proj")) for e in range(4))
FAULTS: tuple[tuple[str, Callable[[Any], None]], ...] = (
    ("expert_order", _exchange(*SWAPPED)),
    ("expert_order", _exchange(SWAPPED[2])),
    ("expert_gate_up", _exchange(*GATE_UP)),
    ("router_order weight_permuted", _reverse_router),
)


@pytest.mark.parametrize(
    ("causes", "edit"), FAULTS, ids=["expert", "down of two experts", "gate and up", "router"]
)
def test_a_fault_among_experts(causes: str, edit: Callable[[Any], None], tmp_path: Path) -> None:
    """One expert in another's place, one of its weights, gate for up, the router's rows."""
    folder = unpack_experts(tmp_path)
    assert diagnose_folder(folder, tmp_path / "hf").causes == ()
    assert verify_folder(folder, tmp_path / "hf", num_tokens=200, use_genai=False).status == "pass"
    edit_graph(folder, edit)
    assert verify_folder(folder, tmp_path / "hf", num_tokens=200, use_genai=False).status == "fail"
    found = diagnose_folder(folder, tmp_path / "hf")
    assert [cause.id in causes.split() for cause in found.causes] == [True], found.to_text()
    assert "model.layers.1.mlp" in found.causes[0].place
