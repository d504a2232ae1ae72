# proves: P3, P7, P10
"""Quantized folders are proved in two parts; float16 by its own noise; overflow has its name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.verification import open_candidate
from assay.verification.folder import open_folder
from assay.verification.half_proof import (
    REFERENCE_OVERFLOWS,
    judge_float16,
    measure_half_reference,
)
from assay.verification.quantized_proof import judge_quantized


def judge(tiny, ids, tmp_path, *, window=False, tied=False, **options):
    model = tiny.build_model(window=window, tied=tied)
    faults = {k: options.pop(k) for k in list(options) if k in tiny.Faults.__annotations__}
    writer = tiny.FolderWriter(model, tiny.Faults(**faults), **{"bits": 4, **options})
    checks = judge_quantized(open_folder(writer.write(tmp_path)), model, ids)
    return {check.name: check for check in checks}


def failed(checks):
    return {name for name, check in checks.items() if check.passed is False}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"symmetric": False},
        {"bits": 8},
        {"tied": True},
        {"tied": True, "symmetric": False},
        {"half": True},
        {"with_manifest": False},
        {"accuracy_level": 4},
        {"window": True, "bits": 8},
    ],
    ids=str,
)
def test_healthy_quantized_folder_passes(tiny, ids, tmp_path, options):
    checks = judge(tiny, ids, tmp_path, **options)
    assert not failed(checks)
    assert {
        "weights",
        "decoded_prefill",
        "decoded_decode",
        "decoded_left_padded_batch",
        "end_to_end_prefill",
    } <= {n for n, c in checks.items() if c.passed}
    assert 0.95 < checks["end_to_end_prefill"].metrics["corr"] < 1


def test_lost_signs_fail_as_an_encoding_fault(tiny, ids, tmp_path):
    checks = judge(tiny, ids, tmp_path, abs_scales=True)
    assert checks["weights"].outcome == "encoding_fault"
    assert failed(checks) == {"weights", "end_to_end_prefill"}  # the graph itself is right


@pytest.mark.parametrize(
    "fault", [{"window_offset": 1}, {"eps": 1e-6}, {"theta": 10001.0}], ids=str
)
def test_structure_faults_do_not_hide_behind_quantization(tiny, ids, tmp_path, fault):
    checks = judge(tiny, ids, tmp_path, window=True, **fault)
    assert checks["weights"].passed
    assert {"decoded_prefill", "decoded_decode", "decoded_window"} <= failed(checks)
    if "eps" in fault:  # control: the end result alone would have let it pass
        assert checks["end_to_end_prefill"].passed


def test_one_head_off_by_five_percent_fails_in_the_weights(tiny, ids, tmp_path):
    checks = judge(tiny, ids, tmp_path, q_head_scale=1.05)
    assert failed(checks) == {"weights"}


def test_too_few_bits_are_named_as_the_loss(tiny, ids, tmp_path, monkeypatch):
    monkeypatch.setattr("assay.verification.quantized_proof.MIN_FINAL_CORR", 0.999)
    checks = judge(tiny, ids, tmp_path)
    assert failed(checks) == set()
    assert checks["end_to_end_prefill"].passed is None
    assert checks["end_to_end_prefill"].outcome == "quantization_loss"


def test_untraceable_weights_leave_the_end_result_to_judge(tiny, ids, tmp_path):
    """Rows in an order that no checkpoint tensor has, without a manifest."""
    model = tiny.build_model()
    writer = tiny.FolderWriter(model, bits=4, with_manifest=False)
    name = "model.layers.0.mlp.gate_proj.weight"
    order = np.random.default_rng(0).permutation(len(writer.state[name]))
    for tensor in (name, name.replace("gate", "up")):
        writer.state[tensor] = writer.state[tensor][order]
    down = "model.layers.0.mlp.down_proj.weight"
    writer.state[down] = writer.state[down][:, order]
    checks = judge_quantized(open_folder(writer.write(tmp_path)), model, ids)
    found = {check.name: check for check in checks}
    assert found["weights"].passed is None
    assert not found["weights"].required
    assert set(found) == {"weights", "end_to_end_prefill", "end_to_end_decode"}
    assert found["end_to_end_prefill"].passed


def judge_half(tiny, model, ids, tmp_path, **faults):
    folder = tiny.FolderWriter(model, tiny.Faults(**faults), half=True).write(tmp_path)
    reference = measure_half_reference(model, ids)
    return {c.name: c for c in judge_float16(open_candidate(folder), reference)}


def test_healthy_float16_passes(tiny, ids, tmp_path):
    checks = judge_half(tiny, tiny.build_model(window=True), ids, tmp_path)
    assert all(check.passed for check in checks.values())
    assert checks["prefill"].metrics["corr"] > 0.99999
    assert checks["prefill"].metrics["argmax_counted"] > 400


@pytest.mark.parametrize("fault", [{"window_offset": 1}, {"q_head_scale": 1.3}], ids=str)
def test_float16_faults_fail(tiny, ids, tmp_path, fault):
    checks = judge_half(tiny, tiny.build_model(window=True), ids, tmp_path, **fault)
    assert {"prefill", "decode", "window", "left_padded_batch"} <= failed(checks)


def test_float16_scale_fault_fails_though_corr_is_one(tiny, ids, tmp_path):
    model = tiny.build_model()
    folder = tiny.FolderWriter(model, half=True).write(tmp_path)
    with torch.no_grad():
        model.lm_head.weight *= 1.02
    check = judge_float16(open_candidate(folder), measure_half_reference(model, ids))[0]
    assert check.metrics["corr"] > 0.99999
    assert check.passed is False


def test_overflow_of_the_original_has_its_own_name(tiny, ids, tmp_path):
    model = tiny.build_model()
    with torch.no_grad():
        model.get_input_embeddings().weight *= 1e6
    checks = judge_half(tiny, model, ids, tmp_path / "overflows")
    assert checks["prefill"].outcome == REFERENCE_OVERFLOWS
    assert "bf16 or fp32" in checks["prefill"].detail
    # control: NaN that the original doesn't have is a plain fault
    healthy = tiny.build_model()
    writer = tiny.FolderWriter(healthy, half=True)
    writer.state["model.norm.weight"] = writer.state["model.norm.weight"] * np.float32(np.nan)
    candidate = open_candidate(writer.write(tmp_path / "nan"))
    check = judge_float16(candidate, measure_half_reference(healthy, ids))[0]
    assert (check.passed, check.outcome) == (False, "")
