"""Real verdicts of tiny folders, and a browser."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.pipeline import export
from assay.verification import verify_folder
from tests.pipeline.tiny import Tensors, write_llama
from tests.reports.browser import Browser, Page, find_chromium

Verdicts = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """A healthy folder, a faulty one, a quantized one, and one that nobody could judge."""
    place = tmp_path_factory.mktemp("reported")
    right = write_llama(place / "right", num_hidden_layers=4)

    def scale(tensors: Tensors) -> None:
        tensors["model.layers.2.mlp.down_proj.weight"] *= np.float32(1.05)

    wrong = write_llama(place / "wrong", num_hidden_layers=4, change=scale)
    found = {}
    for name, source, precision in (
        ("healthy", right, "fp32"),
        ("faulty", wrong, "fp32"),
        ("int4", right, "int4"),
    ):
        folder = export(source, place / name, precision=precision, check_loading=False).folder
        verdict = verify_folder(folder, right, num_tokens=120, use_genai=False)
        found[name] = verdict.to_dict()
    unjudged = json.loads(json.dumps(found["healthy"]))
    unjudged |= {"verdict": "unjudged", "exit_code": 2, "layers": [], "positions": None}
    unjudged["checks"] = [
        {**unjudged["checks"][0], "name": "reference", "passed": None, "detail": "no reference"}
    ]
    del unjudged["positions"]
    return {**found, "unjudged": unjudged}


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A tab of headless Chromium; where there is none it is asked for, in CI it is a failure."""
    program = find_chromium()
    if program is None:
        if os.environ.get("ASSAY_NEED_CHROMIUM"):
            pytest.fail("Chromium isn't installed: apt-get install chromium")
        pytest.skip("Chromium isn't installed; CI has it")
    with Browser(program, tmp_path_factory.mktemp("chromium") / "profile") as browser:
        yield browser.open_page()


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Where pictures are kept for people to look at."""
    return Path(__file__).parents[2] / "build" / "report-screenshots"
