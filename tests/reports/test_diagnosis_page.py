"""A diagnosis as a page: causes on top, plots, nothing that a browser complains of.

proves: P8. Control beside each: a healthy folder's page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.diagnosis import diagnose_folder
from assay.pipeline import export
from assay.reports import render_diagnosis, write_report
from tests.pipeline.tiny import Tensors, write_llama
from tests.reports.browser import Page
from tests.reports.test_report import OVERFLOW, VIEWS

Diagnoses = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def diagnoses(tmp_path_factory: pytest.TempPathFactory) -> Diagnoses:
    """A healthy folder in int4, one with a wrong weight, one that holds another graph."""
    place = tmp_path_factory.mktemp("diagnosed")
    right = write_llama(place / "right", num_hidden_layers=4)

    def scale(tensors: Tensors) -> None:
        tensors["model.layers.2.mlp.down_proj.weight"] *= np.float32(1.05)

    wrong = write_llama(place / "wrong", num_hidden_layers=4, change=scale)
    found = {}
    for name, source, precision in (("healthy", right, "int4"), ("faulty", wrong, "fp32")):
        folder = export(source, place / name, precision=precision, check_loading=False).folder
        found[name] = diagnose_folder(folder, right).to_json()
    (place / "healthy" / "model.onnx").write_bytes(b"nothing")
    found["broken"] = diagnose_folder(place / "healthy", right).to_json()
    return found


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["healthy", "faulty", "broken"])
def test_a_browser_shows_it(
    name: str, view: str, page: Page, diagnoses: Diagnoses, tmp_path: Path, screenshots: Path
) -> None:
    """No console message, no request but for the file, no page wider than the screen."""
    file = tmp_path / "diagnosis.html"
    write_report(file, diagnoses[name])
    page.show(**VIEWS[view])  # type: ignore[arg-type]
    page.load(file.as_uri())
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith("data:")] == [file.as_uri()]
    assert page.ask(OVERFLOW) <= 0
    page.photograph(screenshots / f"diagnosis-{name}-{view}.png")


def test_the_cause_stands_on_top(diagnoses: Diagnoses) -> None:
    """With its place, before anything else; a healthy page says so and tells the loss."""
    pages = {name: render_diagnosis(d).replace("<wbr>", "") for name, d in diagnoses.items()}
    top = pages["faulty"][pages["faulty"].index("<main") : pages["faulty"].index("<nav")]
    assert "weight_values" in top
    assert "model.layers.2.mlp.down_proj" in top
    assert "Explained" in top
    assert "weight_values" not in pages["healthy"]
    assert "Quantization loss" in pages["healthy"]
    assert "Quantization loss" not in pages["faulty"]
    assert "graph_unreadable" in pages["broken"]
    assert pages["faulty"].count("<svg") > pages["healthy"].count("<svg") - 1


def test_names_never_become_markup(diagnoses: Diagnoses) -> None:
    """A hostile place is text. Control: the same name in the dictionary."""
    hostile = "<script>alert(1)</script>"
    cause = {**diagnoses["faulty"]["causes"][0], "place": hostile}
    html = render_diagnosis({**diagnoses["faulty"], "causes": [cause], "folder": hostile})
    assert "<script" not in html
    assert "&lt;script&gt;" in html.replace("<wbr>", "")
