# proves: P1
"""The metrics' definitions, against plain numpy and against faults of known effect."""

from __future__ import annotations

import numpy as np
import pytest

from assay.verification import metrics
from assay.verification.metrics import compare_logits, measure_noise, relative_l2


@pytest.fixture
def reference() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(37, 50)).astype(np.float32)


def test_equal_logits_agree_in_everything(reference):
    same = compare_logits(reference, reference)
    assert same.corr == pytest.approx(1)
    assert same.rel_l2 == same.max_abs == same.kl_nats_per_token == 0
    assert same.scale == pytest.approx(1)
    assert (same.argmax_counted, same.argmax_mismatches) == (37, 0)


def test_metrics_are_those_of_plain_numpy(reference):
    candidate = reference + np.random.default_rng(1).normal(size=reference.shape) * 0.3
    found = compare_logits(candidate, reference)
    a, b = candidate.astype(np.float64), reference.astype(np.float64)
    assert found.corr == pytest.approx(np.corrcoef(a.ravel(), b.ravel())[0, 1])
    assert found.rel_l2 == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(b))
    assert relative_l2(candidate, reference) == pytest.approx(found.rel_l2)
    p = np.exp(b) / np.exp(b).sum(1, keepdims=True)
    q = np.exp(a) / np.exp(a).sum(1, keepdims=True)
    assert found.kl_nats_per_token == pytest.approx((p * np.log(p / q)).sum(1).mean())
    worst = (np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)).argmax()
    assert found.worst_position == worst
    assert found.argmax_share == pytest.approx((a.argmax(1) == b.argmax(1)).mean())


def test_blocks_add_up(reference, monkeypatch):
    candidate = reference * np.float32(1.1)
    whole = compare_logits(candidate, reference)
    monkeypatch.setattr(metrics, "_BLOCK_ELEMENTS", 3 * reference.shape[1])
    assert compare_logits(candidate, reference).rel_l2 == pytest.approx(whole.rel_l2)


def test_scale_fault_keeps_corr_and_shows_in_rel_l2(reference):
    found = compare_logits(reference * np.float32(1.5), reference)
    assert found.corr == pytest.approx(1)
    assert found.rel_l2 == pytest.approx(0.5)
    assert found.scale == pytest.approx(1.5)


def test_scrambled_values_lose_corr(reference):
    assert abs(compare_logits(reference[:, ::-1].copy(), reference).corr) < 0.2


def test_argmax_counts_only_beyond_the_noise():
    reference = np.array([[1.0, 0.99, 0.0], [1.0, 0.0, 0.0]], np.float32)
    flipped = np.array([[0.99, 1.0, 0.0], [1.0, 0.0, 0.0]], np.float32)
    assert compare_logits(flipped, reference).argmax_mismatches == 1
    noise = np.array([0.01, 0.01])
    within = compare_logits(flipped, reference, margin_noise_P=noise)
    assert (within.argmax_counted, within.argmax_mismatches) == (1, 0)
    clear = np.array([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]], np.float32)  # control: beyond the noise
    found = compare_logits(clear, reference, margin_noise_P=noise)
    assert (found.argmax_mismatches, found.first_mismatch) == (1, 1)


def test_nan_is_not_finite(reference):
    broken = reference.copy()
    broken[5, 3] = np.nan
    found = compare_logits(broken, reference)
    assert not found.finite
    assert found.worst_position == 5


def test_noise_of_some_positions(reference):
    wide = reference.astype(np.float64) * 1.001
    wide[:10] = reference[:10]
    noise = measure_noise(reference, wide)
    assert noise.rel_l2(slice(0, 10)) == 0
    assert noise.rel_l2(np.arange(10, 37)) == pytest.approx(0.001 / 1.001)
