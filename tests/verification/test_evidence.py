# proves: P1, P4
"""What stands beside the checks: positions, layers, prompts."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from assay.verification import verify_folder
from assay.verification.positions import tabulate_positions

TOKENS = {"num_tokens": 90, "use_genai": False}


@pytest.fixture(scope="module")
def model(tiny):
    return tiny.build_model()


def test_columns_by_their_definitions():
    """Against plain numpy in float64; the control is a column that differs when it should."""
    generator = np.random.default_rng(3)
    b = generator.standard_normal((5, 40)).astype(np.float32)
    a = b + 0.3 * generator.standard_normal((5, 40)).astype(np.float32)
    a[2] = b[2]
    table = tabulate_positions(a, b, token_ids_P=np.arange(5))
    p, q = (np.exp(x.astype(np.float64)) for x in (b, a))
    p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
    np.testing.assert_allclose(table["kl"], (p * np.log(p / q)).sum(1), rtol=1e-3, atol=1e-12)
    corr = [np.corrcoef(x, y)[0, 1] for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(table["corr"], corr, rtol=1e-3)
    relative = np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)
    np.testing.assert_allclose(table["rel_l2"], relative, rtol=1e-3)
    top = [set(np.argsort(x)[-10:]) for x in a], [set(np.argsort(x)[-10:]) for x in b]
    overlap = [len(x & y) / 10 for x, y in zip(*top, strict=True)]
    np.testing.assert_allclose(table["top10_overlap"], overlap)
    assert table["argmax_agrees"] == [bool(x) for x in a.argmax(1) == b.argmax(1)]
    assert (table["rel_l2"][2], table["kl"][2], table["top10_overlap"][2]) == (0.0, 0.0, 1.0)
    assert table["rel_l2"][1] > 0.1


def test_a_verdict_carries_positions_layers_and_prompts(export, checkpoint, tiny):
    data = verify_folder(export(), checkpoint, **TOKENS).to_dict()
    assert len(data["positions"]["rel_l2"]) == TOKENS["num_tokens"]
    assert max(data["positions"]["rel_l2"]) < 1e-5
    assert all(data["positions"]["argmax_agrees"])
    ids = np.asarray(data["positions"]["token_ids"], "<i8")
    digest = hashlib.sha256(ids.tobytes()).hexdigest()
    assert data["prompts"] == [{"num_tokens": 90, "sha256": digest, "source": "built-in"}]
    names = [layer["name"] for layer in data["layers"]]
    assert names in ([], [f"model.layers.{i}" for i in range(tiny.LAYERS)])


def test_layers_of_an_export_are_found_by_value(tmp_path):
    """Every layer of a healthy folder agrees; one changed weight shows from its layer on."""
    from tests.pipeline.tiny import write_llama

    from assay.pipeline import export as export_folder

    right = write_llama(tmp_path / "right", num_hidden_layers=4)

    def scale(tensors):
        tensors["model.layers.2.mlp.down_proj.weight"] *= np.float32(1.5)

    wrong = write_llama(tmp_path / "wrong", num_hidden_layers=4, change=scale)
    healthy = export_folder(right, tmp_path / "healthy", check_loading=False).folder
    broken = export_folder(wrong, tmp_path / "broken", check_loading=False).folder
    found = verify_folder(healthy, right, **TOKENS).to_dict()["layers"]
    assert [layer["name"] for layer in found] == [f"model.layers.{i}" for i in range(4)]
    assert max(layer["rel_l2"] for layer in found) < 1e-5
    verdict = verify_folder(broken, right, **TOKENS)
    errors = [layer["rel_l2"] for layer in verdict.to_dict()["layers"]]
    assert verdict.status == "fail"
    assert max(errors[:2]) < 1e-5
    assert errors[2] > 1e-2


def test_layers_of_a_quantized_export_show_its_loss(tmp_path):
    """Matched by the decoded weights, measured against the original ones."""
    from tests.pipeline.tiny import write_llama

    from assay.pipeline import export as export_folder

    source = write_llama(tmp_path / "source", num_hidden_layers=3)
    folder = export_folder(source, tmp_path / "int4", precision="int4", check_loading=False).folder
    data = verify_folder(folder, source, **TOKENS).to_dict()
    assert [layer["name"] for layer in data["layers"]] == [f"model.layers.{i}" for i in range(3)]
    assert all(1e-3 < layer["rel_l2"] < 1 for layer in data["layers"])
    assert "noise_rel_l2" not in data["positions"]
