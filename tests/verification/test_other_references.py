# proves: P2, P9
"""Saved logits and another folder as the reference; graphs without a genai_config."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from assay.errors import RuntimeFolderError, UnjudgedError
from assay.verification import verify_folder
from assay.verification.other_references import is_model_folder, load_saved_logits

TOKENS = {"num_tokens": 120, "use_genai": False}


@pytest.fixture(scope="module")
def model(tiny):
    return tiny.build_model(window=True)


def statuses(verdict):
    return {check.name: check.passed for check in verdict.checks}


def test_saved_logits_judge_as_the_checkpoint_did(export, checkpoint, tmp_path):
    """Noise is saved with them, so the bound is the same; a fault fails against both."""
    saved = tmp_path / "reference.npz"
    first = verify_folder(export(), checkpoint, save_to=saved, **TOKENS)
    again = verify_folder(export(), saved)
    assert (first.status, again.status) == ("pass", "pass")
    bounds = [next(c for c in v.checks if c.name == "prefill").bound for v in (first, again)]
    assert bounds[0] == bounds[1]
    assert statuses(again)["left_padded_batch"] is True
    broken = verify_folder(export("broken", theta=10001.0), saved)
    assert broken.status == "fail"
    assert not list(tmp_path.glob(".*part"))


def test_logits_of_others_are_held_to_the_cap(export, checkpoint, tmp_path):
    """Without noise the bound is 1e-4."""
    saved, bare = tmp_path / "reference.npz", tmp_path / "bare.npz"
    verify_folder(export(), checkpoint, save_to=saved, **TOKENS)
    with np.load(saved) as arrays:
        np.savez(bare, input_ids=arrays["input_ids"], logits=arrays["logits"])
    verdict = verify_folder(export(), bare)
    assert verdict.status == "pass"
    assert next(c for c in verdict.checks if c.name == "prefill").bound["rel_l2"] == 1e-4
    assert verify_folder(export("broken", q_head_scale=1.3), bare).status == "fail"


@pytest.mark.parametrize("kind", ["truncated", "pickle", "names", "shapes", "nan"])
def test_files_of_another_kind_are_refused(kind, export, tmp_path):
    """One clear error; nothing pickled is loaded."""
    file = tmp_path / "reference.npz"
    ids, logits = np.arange(4), np.ones((4, 256), np.float32)
    np.savez(file, input_ids=ids, logits=logits)
    load_saved_logits(file)  # control
    if kind == "truncated":
        file.write_bytes(file.read_bytes()[:200])
    elif kind == "pickle":
        file.write_bytes(pickle.dumps({"input_ids": [1]}))
    elif kind == "names":
        np.savez(file, tokens=ids)
    elif kind == "shapes":
        np.savez(file, input_ids=ids, logits=logits[:2])
    else:
        np.savez(file, input_ids=ids, logits=logits * np.nan)
    with pytest.raises(UnjudgedError) as caught:
        verify_folder(export(), file)
    assert str(file) in caught.value.where


def test_another_folder_is_the_reference(export, tmp_path):
    """proves: P9. A right folder passes against a right one; a faulty one doesn't."""
    assert is_model_folder(export("a"))
    assert verify_folder(export("b"), export("a"), **TOKENS).status == "pass"
    broken = verify_folder(export("c", theta=10100.0), export("a"), **TOKENS)
    assert broken.status == "fail"


def test_a_quantized_folder_against_logits_says_what_it_could_not_judge(
    export, checkpoint, tmp_path
):
    saved = tmp_path / "reference.npz"
    verify_folder(export(), checkpoint, save_to=saved, **TOKENS)
    verdict = verify_folder(export("int8", bits=8), saved)
    found = {check.name: check for check in verdict.checks}
    assert verdict.status == "pass"
    assert found["weights"].passed is None
    assert "no checkpoint" in found["weights"].detail
    assert found["end_to_end_prefill"].passed


def test_a_graph_alone_and_one_in_an_onnx_folder(export, checkpoint, tmp_path):
    """No genai_config.json, another file name, a folder below: as other tools lay it out."""
    source = export()
    place = tmp_path / "optimum" / "onnx"
    place.mkdir(parents=True)
    (source / "model.onnx").rename(place / "decoder.onnx")
    for file in source.glob("*.data"):
        file.rename(place / file.name)
    config = json.loads((checkpoint / "config.json").read_text())
    (tmp_path / "optimum" / "config.json").write_text(json.dumps(config))
    for given in (tmp_path / "optimum", place / "decoder.onnx"):
        assert verify_folder(given, checkpoint, **TOKENS).status == "pass"
    (place / "second.onnx").write_bytes((place / "decoder.onnx").read_bytes())
    with pytest.raises(RuntimeFolderError, match="isn't there"):
        verify_folder(tmp_path / "optimum", checkpoint, **TOKENS)
