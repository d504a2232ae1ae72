# proves: P3
"""The float32 proof passes what is right in all four settings, and fails each planted fault."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from assay.verification import (
    SETTINGS,
    bound_float32,
    judge_float32,
    measure_reference,
    open_candidate,
)
from assay.verification.float_proof import MAX_REL_L2, NOISE_FACTOR, NOISE_FLOOR

# By fault: what is planted, and by how many bounds it must fail. theta shows with distance, so
# little inside a window of 16.
FAULTS = {
    False: {
        "eps": ({"eps": 1e-6}, 5),
        "theta": ({"theta": 10001.0}, 5),
        "one head": ({"q_head_scale": 1.01}, 5),
        "bias": ({"drop_bias": True}, 1000),
    },
    True: {
        "eps": ({"eps": 1e-6}, 5),
        "theta": ({"theta": 10001.0}, 2),
        "one head": ({"q_head_scale": 1.01}, 5),
        "sign": ({"q_head_scale": -1.0}, 1000),
    },
}


@pytest.fixture(scope="module", params=[False, True], ids=["llama", "mistral"])
def judged(request, tiny, ids):
    model = tiny.build_model(window=request.param)
    return model, measure_reference(model, ids), request.param


@pytest.fixture
def judge(judged, tiny, tmp_path):
    model, reference, _ = judged

    def run(settings=SETTINGS, reference=reference, **options):
        faults = {k: options.pop(k) for k in list(options) if k in tiny.Faults.__annotations__}
        writer = tiny.FolderWriter(model, tiny.Faults(**faults), **options)
        checks = judge_float32(writer.write(tmp_path), reference, settings=settings)
        return {check.name: check for check in checks}

    return run


def failed(checks):
    return {name for name, check in checks.items() if check.passed is False}


def test_a_right_graph_passes_every_setting(judge, judged):
    checks = judge()
    assert set(checks) == {*SETTINGS, "as_shipped"}
    assert {n for n, c in checks.items() if c.passed} == set(checks) - (
        set() if judged[2] else {"window"}
    )
    assert all(
        c.metrics["rel_l2"] < 3 * max(c.metrics["noise"], NOISE_FLOOR)
        for c in checks.values()
        if c.passed
    )


def test_a_graph_with_every_position_needs_no_edit(judge):
    checks = judge(last_position=False)
    assert not failed(checks)
    assert "as_shipped" not in checks


@pytest.mark.parametrize("index", range(4))
def test_planted_fault_fails_by_far(judge, judged, index):
    planted, margin = list(FAULTS[judged[2]].values())[index]
    checks = judge(**planted)
    assert {"prefill", "decode"} <= failed(checks)
    prefill = checks["prefill"]
    assert prefill.metrics["rel_l2"] > margin * prefill.bound["rel_l2"]


def test_small_weights_show_eps(tiny, ids, tmp_path):
    model = tiny.build_model(std=0.02)
    reference = measure_reference(model, ids)
    for eps, passed in ((1e-5, True), (1e-6, False)):
        folder = tiny.FolderWriter(model, tiny.Faults(eps=eps)).write(tmp_path / str(eps))
        assert judge_float32(folder, reference, settings=["prefill"])[0].passed is passed


def test_window_off_by_one_fails_past_the_window_only(tiny, ids, tmp_path):
    model = tiny.build_model(window=True)
    reference = measure_reference(model, ids)
    short = measure_reference(model, ids[: tiny.WINDOW], settings=["prefill"])
    for offset in (-1, 1):
        folder = tiny.FolderWriter(model, tiny.Faults(window_offset=offset)).write(tmp_path)
        checks = judge_float32(folder, reference)
        assert failed({c.name: c for c in checks}) == {*SETTINGS, "as_shipped"}
    # control: a window one too wide can't be seen by a prompt that fits into it
    assert judge_float32(folder, short, settings=["prefill"])[0].passed


def test_decode_alone_sees_what_a_prefill_hides(judge, judged, tiny, ids, tmp_path):
    """A cache that is fed back in the wrong slot leaves the prefill right."""
    import onnx

    model, reference, _ = judged
    folder = tiny.FolderWriter(model).write(tmp_path / "swapped")
    proto = onnx.load(folder / "model.onnx", load_external_data=False)
    names = {
        "past_key_values.0.key": "past_key_values.1.key",
        "past_key_values.1.key": "past_key_values.0.key",
    }
    for node in proto.graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = names.get(name, name)
    onnx.save(proto, folder / "model.onnx")
    checks = {c.name: c for c in judge_float32(folder, reference)}
    assert checks["prefill"].passed
    assert checks["decode"].passed is False


def test_padding_that_is_not_masked_fails_in_the_batch_only(judge):
    assert failed(judge(ignore_padding=True)) == {"left_padded_batch"}


def test_wrong_last_position_fails_as_shipped_only(judge):
    assert failed(judge(first_position=True)) == {"as_shipped"}


def test_foreign_graph_made_for_right_padding_is_told_so(judge):
    """Lengths from the mask, no position ids: what the onnxruntime-genai builder writes."""
    foreign = judge(with_position_ids=False, with_manifest=False)["left_padded_batch"]
    assert foreign.passed is None
    assert foreign.outcome == "right_padding_only"
    ours = judge(with_position_ids=False)["left_padded_batch"]  # control: ours must be exact
    assert ours.passed is False


def test_a_setting_the_prompt_cannot_show_is_not_passed(tiny, ids, tmp_path):
    model = tiny.build_model(window=True)
    reference = measure_reference(model, ids[:12])
    folder = tiny.FolderWriter(model).write(tmp_path)
    checks = {c.name: c for c in judge_float32(folder, reference)}
    assert checks["window"].passed is None
    assert "doesn't pass the window of 16" in checks["window"].detail


def test_more_words_than_the_reference_fail(judge, judged):
    _, reference, _ = judged
    narrow = replace(reference.prompt, logits_SV=reference.prompt.logits_SV[:, :-1])
    checks = judge(settings=["prefill"], reference=replace(reference, prompt=narrow))
    assert checks["prefill"].passed is False
    assert "256 logits, the reference has 255" in checks["prefill"].detail


def test_bound_follows_the_noise_between_floor_and_cap():
    assert bound_float32(0.0) == NOISE_FACTOR * NOISE_FLOOR
    assert bound_float32(1e-6) == NOISE_FACTOR * 1e-6
    assert bound_float32(1e-3) == MAX_REL_L2 == 1e-4


def test_all_threads_and_forms_of_candidate_give_the_same(judged, tiny, tmp_path):
    """A candidate opened beforehand is judged like its folder."""
    model, reference, _ = judged
    candidate = open_candidate(tiny.FolderWriter(model).write(tmp_path), num_threads=1)
    assert all(c.passed is not False for c in judge_float32(candidate, reference))
    assert np.isfinite(candidate.prefill(reference.prompt.ids_S)).all()
