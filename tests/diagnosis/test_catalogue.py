"""The catalogue, its page, and the encodings. proves: P6, P8"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from assay.diagnosis import diagnose_folder
from assay.diagnosis.causes import CATALOGUE
from assay.graph import ExportOptions
from assay.verification.folder import open_folder
from assay.verification.weights import read_initializer
from tests.twins.cases import BASES
from tests.twins.twin import build_twin, export_twin

PAGE = Path(__file__).parents[2] / "docs" / "causes.md"
NAME = "model.layers.1.mlp.down_proj"


def test_every_cause_has_its_row() -> None:
    """Control: an id that doesn't exist has none."""
    text = PAGE.read_text(encoding="utf-8")
    ids = [hypothesis.id for hypothesis in CATALOGUE]
    assert len(set(ids)) == len(ids)
    for cause in ids:
        assert f"| `{cause}` |" in text
    assert "| `no_such_cause` |" not in text


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
