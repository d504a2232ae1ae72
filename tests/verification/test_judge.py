# proves: B11, P2, P3, P9, P10
"""The whole judge: checkpoint folder, exported folder, verdict, and the runtime's own text."""

from __future__ import annotations

import json

import numpy as np
import pytest

from assay.errors import OptionError, RuntimeFolderError, UnjudgedError
from assay.verification import Check, verify_folder
from assay.verification import genai as genai_room
from assay.verification.genai import generate_in_genai, judge_generation
from assay.verification.prompts import build_prompts, load_tokenizer, random_ids
from assay.verification.reference import run_with_noise
from assay.verification.verdict import reach_verdict

TOKENS = {"num_tokens": 200, "num_greedy_tokens": 12}


@pytest.fixture(scope="module")
def model(tiny):
    return tiny.build_model(window=True)


def named(verdict):
    return {check.name: check for check in verdict.checks}


def test_right_folder_passes_and_says_with_what(export, checkpoint):
    told = []
    verdict = verify_folder(export(), checkpoint, progress=told.append, **TOKENS)
    assert (verdict.status, verdict.exit_code) == ("pass", 0)
    assert set(named(verdict)) == {
        "genai",
        "end_tokens",
        "tokenizer",
        "prefill",
        "decode",
        "window",
        "left_padded_batch",
        "as_shipped",
    }
    assert named(verdict)["genai"].metrics["num_agreeing"] == 12
    assert {"torch", "transformers", "onnxruntime", "python"} <= set(verdict.environment)
    assert told[0] == "loading the reference"


def test_json_and_text_carry_the_verdict(export, checkpoint):
    verdict = verify_folder(export(), checkpoint, use_genai=False, **TOKENS)
    parsed = json.loads(verdict.to_json())
    assert (parsed["verdict"], parsed["exit_code"]) == ("pass", 0)
    found = {check["name"]: check for check in parsed["checks"]}
    assert found["prefill"]["metrics"]["rel_l2"] < 1e-5
    assert verdict.to_text().startswith("PASS  ")


@pytest.mark.parametrize(
    "fault",
    [
        {"eps": 1e-6},
        {"q_head_scale": 1.01},
        {"window_offset": 1},
        {"theta": 10001.0},
    ],
    ids=str,
)
def test_faulty_folder_fails(export, checkpoint, fault):
    verdict = verify_folder(export(**fault), checkpoint, use_genai=False, num_tokens=800)
    assert (verdict.status, verdict.exit_code) == ("fail", 1)
    assert verdict.to_text().startswith("FAIL  ")


def test_quantized_folder_passes_and_another_models_weights_fail(
    tiny, export, checkpoint, tmp_path
):
    verdict = verify_folder(export(bits=8, symmetric=False), checkpoint, **TOKENS)
    assert verdict.status == "pass"
    assert verdict.precision == "float32 with packed weights"
    tiny.build_model(window=True, seed=1).save_pretrained(tmp_path / "other")
    swapped = verify_folder(tmp_path / "out", tmp_path / "other", use_genai=False, **TOKENS)
    assert named(swapped)["weights"].outcome == "encoding_fault"
    assert swapped.exit_code == 1


def test_truncated_weights_fail_to_load(export, checkpoint):
    folder = export()
    (folder / "model.onnx.data").write_bytes(b"cut")
    verdict = verify_folder(folder, checkpoint, **TOKENS)
    assert named(verdict)["loads"].passed is False
    assert named(verdict)["genai"].passed is False
    assert verdict.exit_code == 1


def test_no_reference_is_unjudged_and_no_folder_an_error(export, checkpoint, tmp_path):
    with pytest.raises(UnjudgedError):
        verify_folder(export(), tmp_path / "nothing", **TOKENS)
    with pytest.raises(RuntimeFolderError):
        verify_folder(tmp_path / "nothing", checkpoint, **TOKENS)


def test_own_prompts_are_judged_each(export, checkpoint):
    verdict = verify_folder(
        export(), checkpoint, use_genai=False, prompts=[list(range(3, 60)), list(range(90, 130))]
    )
    assert {"prefill", "prefill (prompt 2)"} <= set(named(verdict))
    with pytest.raises(OptionError, match=r"no tokenizer\.json"):
        verify_folder(export(), checkpoint, use_genai=False, prompts=["text"])
    with pytest.raises(OptionError, match="from 0 to 255"):
        verify_folder(export(), checkpoint, use_genai=False, prompts=[[256]])


def test_a_short_context_limits_the_prompt(export, checkpoint):
    folder = export()
    config = json.loads((folder / "genai_config.json").read_text())
    config["model"]["context_length"] = 64
    (folder / "genai_config.json").write_text(json.dumps(config))
    verdict = verify_folder(folder, checkpoint, use_genai=False, **TOKENS)
    assert named(verdict)["prefill"].metrics["num_positions"] == 64


def test_a_prompt_reaches_past_the_window_or_the_folder_is_unjudged(
    export, checkpoint, monkeypatch
):
    folder = export()
    verdict = verify_folder(folder, checkpoint, use_genai=False, num_tokens=10)
    assert verdict.status == "pass"
    assert named(verdict)["window"].passed
    assert named(verdict)["prefill"].metrics["num_positions"] == 16 + 32
    monkeypatch.setattr("assay.verification.material._MAX_SCORE_BYTES", 0)
    verdict = verify_folder(folder, checkpoint, use_genai=False, num_tokens=10)
    assert (verdict.status, verdict.exit_code) == ("unjudged", 2)
    assert named(verdict)["window"].passed is None


def test_absent_genai_is_not_held_against_the_folder(export, checkpoint, monkeypatch):
    monkeypatch.setattr("assay.verification.judge.has_genai", lambda: False)
    verdict = verify_folder(export(), checkpoint, **TOKENS)
    assert named(verdict)["genai"].passed is None
    assert verdict.status == "pass"


def test_a_text_that_parts_beyond_the_noise_fails(export, model, ids):
    generation = generate_in_genai(export(), ids[:10], 6)
    run = run_with_noise(model, np.concatenate([ids[:10], generation.tokens_N]))
    assert judge_generation(generation, run, must_agree=True).passed
    generation.tokens_N[3] = (generation.tokens_N[3] + 1) % 256
    run = run_with_noise(model, np.concatenate([ids[:10], generation.tokens_N]))
    found = judge_generation(generation, run, must_agree=True)
    assert found.passed is False
    assert "parts from the reference at token 3" in found.detail
    assert judge_generation(generation, run, must_agree=False).passed


def test_a_crash_of_the_runtime_is_the_childs(export, ids, monkeypatch, tmp_path):
    child = tmp_path / "child.py"
    child.write_text(
        "import os, sys\nsys.stderr.write('last words')\nsys.stderr.flush()\nos.abort()\n"
    )
    monkeypatch.setattr(genai_room, "_CHILD", child)
    with pytest.raises(RuntimeFolderError, match=r"code -6: last words"):
        generate_in_genai(export(), ids[:4], 2)


def test_a_type_that_genai_does_not_know_fails(export, checkpoint):
    folder = export()
    config = json.loads((folder / "genai_config.json").read_text())
    config["model"]["type"] = "unheard_of"
    (folder / "genai_config.json").write_text(json.dumps(config))
    check = named(verify_folder(folder, checkpoint, **TOKENS))["genai"]
    assert check.passed is False
    assert "Unsupported model_type" in check.detail


def test_status_follows_the_checks():
    def status(*checks):
        return reach_verdict(checks, folder="f", reference="r", precision="p").status

    good, bad = Check("a", True), Check("b", False)
    assert status(good) == "pass"
    assert status(good, bad, Check("c", None)) == "fail"
    assert status(good, Check("c", None)) == "unjudged"
    assert status(good, Check("c", None, required=False)) == "pass"
    assert status() == "unjudged"


def test_prompts_are_fixed_and_avoid_special_ids(tmp_path):
    assert np.array_equal(random_ids(100, 50), random_ids(100, 50))
    assert not set(random_ids(100, 5000, avoid=[0, 1, 2])) & {0, 1, 2}
    (prompt,) = build_prompts(64, vocab_size=300)
    assert prompt.shape == (64,)
    assert load_tokenizer(tmp_path) is None
    from tokenizers import Tokenizer, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.save(str(tmp_path / "tokenizer.json"))
    (text,) = build_prompts(3000, vocab_size=256, tokenizer=load_tokenizer(tmp_path))
    assert len(text) == 3000
    assert len(set(text[:2000])) > 90  # several scripts, in bytes
