"""The catalogue, its page, and the encodings. proves: P6, P8"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from assay.diagnosis import Hypothesis, Variant, diagnose_folder
from assay.diagnosis.causes import CATALOGUE
from assay.diagnosis.folder_causes import FOLDER_CAUSES
from assay.graph import ExportOptions
from assay.verification.folder import open_folder
from assay.verification.weights import read_initializer
from tests.diagnosis.planting.edits import edit_graph
from tests.diagnosis.planting.sample import ALL
from tests.twins.cases import BASES
from tests.twins.twin import build_twin, export_twin

PAGE = Path(__file__).parents[2] / "docs" / "causes.md"
NAME = "model.layers.1.mlp.down_proj"


def test_every_cause_has_its_row() -> None:
    """Also those of files, and those that planted faults name. Control: an id that nobody has."""
    text = PAGE.read_text(encoding="utf-8")
    ids = [hypothesis.id for hypothesis in CATALOGUE]
    assert len(set(ids)) == len(ids)
    for cause in {*ids, *FOLDER_CAUSES, *(cause for fault in ALL for cause in fault.causes)}:
        assert f"| `{cause}` |" in text, cause
    assert "| `no_such_cause` |" not in text


def test_a_cause_of_ones_own(tmp_path: Path) -> None:
    """A fault that the catalogue hasn't is named by a hypothesis of the caller's."""
    build_twin(BASES["llama"], 0.12, tmp_path / "hf")
    folder = export_twin(tmp_path / "hf", tmp_path / "out")
    edit_graph(folder, _put_sine)
    alone = diagnose_folder(folder, tmp_path / "hf", save_case=tmp_path / "case")
    assert (alone.health, alone.causes) == ("unexplained", ())
    assert [entry.place for entry in alone.entries] == ["model.layers.1.mlp"]
    assert _run_case(tmp_path / "case") > 1e-3  # the model that was cut out shows the error

    def variants(model: torch.nn.Module) -> Iterator[Variant]:
        mlp: Any = model.get_submodule("model.layers.1.mlp")
        own = mlp.forward

        @contextlib.contextmanager
        def change() -> Iterator[None]:
            mlp.forward = lambda x: own(x).sin()
            yield
            del mlp.forward

        yield Variant("model.layers.1.mlp", "a sine behind it", change)

    own = Hypothesis("sine", "an odd layer", "remove the sine", variants)
    found = diagnose_folder(folder, tmp_path / "hf", more_causes=[own])
    assert [(c.id, c.place) for c in found.causes] == [("sine", "model.layers.1.mlp")]


def _put_sine(graph: Any) -> None:
    """A node that no model has, behind layer 1's MLP."""
    for place, node in enumerate(graph.graph.node):
        if any("layers.1.mlp.down_proj" in name for name in node.input):
            name = node.output[0]
            node.output[0] = f"{name}/before"
            added = onnx.helper.make_node("Sin", [f"{name}/before"], [name], name="odd")
            graph.graph.node.insert(place + 1, added)
            return


def _run_case(folder: Path) -> float:
    """relL2 of a minimal case's output against what it should be."""
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    outputs = session.run(None, dict(np.load(folder / "inputs.npz")))
    expected = np.load(folder / "expected.npz")["stream"]
    return float(np.linalg.norm(sum(outputs)[0] - expected) / np.linalg.norm(expected))


def rewrite(folder: Path, part: str, change) -> None:  # type: ignore[no-untyped-def]
    """Change one stored tensor of the packed weight in place."""
    opened = open_folder(folder)
    name = f"{NAME}.weight.{part}"
    proto = opened.initializers[name]
    facts = {entry.key: entry.value for entry in proto.external_data}
    values = np.array(read_initializer(opened, name))
    data = folder / facts["location"]
    content = bytearray(data.read_bytes())
    start = int(facts["offset"])
    changed = np.ascontiguousarray(change(values).astype(values.dtype)).tobytes()
    content[start : start + len(changed)] = changed
    data.write_bytes(bytes(content))


def exchange_nibbles(packed):  # type: ignore[no-untyped-def]
    """Low for high."""
    return (packed >> 4) | ((packed & 15) << 4)


@pytest.mark.parametrize(
    ("cause", "part", "change"),
    [
        ("abs_scales", "scales", np.abs),
        ("nibble_order", "packed", exchange_nibbles),
        ("scale_factor", "scales", lambda scales: scales * 1.7),
        ("signed_codes", "packed", lambda packed: packed ^ 0x88),
    ],
)
def test_encodings_are_named(cause, part, change, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Against the original weights. Control: untouched, the folder is healthy."""
    build_twin(BASES["llama"], 0.12, tmp_path / "hf")
    options = ExportOptions(precision="int4")
    folder = export_twin(tmp_path / "hf", tmp_path / "out", options=options)
    assert diagnose_folder(folder, tmp_path / "hf").health == "healthy"
    rewrite(folder, part, change)
    found = diagnose_folder(folder, tmp_path / "hf")
    assert [(c.id, c.place) for c in found.causes] == [(cause, NAME)], found.to_text()
