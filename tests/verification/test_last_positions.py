"""Graphs cut for the doctor: the head of the last positions alone, and values alone. proves: P4"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.diagnosis.planting.rooms import find_folder
from tests.twins.cases import BASES

from assay.verification.candidate import open_candidate

TYPES = ("llama", "gpt2", "gemma2")


@pytest.mark.parametrize("precision", ["fp32", "int4"])
@pytest.mark.parametrize("model_type", TYPES)
def test_last_positions_are_those_of_the_whole(
    model_type: str, precision: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same logits, fewer of them. Control: the positions before them differ."""
    room = tmp_path_factory.mktemp("room")
    folder = find_folder(room, BASES[model_type], "ours", precision, 0.12)
    ids = np.random.default_rng(0).integers(3, 200, 20)
    whole = open_candidate(folder, accuracy_level=0).prefill(ids)
    last = open_candidate(folder, accuracy_level=0, last_positions=5).prefill(ids)
    assert len(whole) == 20
    assert len(last) == 5
    assert np.abs(last - whole[-5:]).max() < 1e-4 * np.abs(whole).max()
    assert np.abs(last - whole[-6:-1]).max() > 1e-2 * np.abs(whole).max()


def test_values_and_state_without_logits(tmp_path: Path) -> None:
    """feed_values computes what feed leaves behind. Control: other tokens leave another cache."""
    folder = find_folder(tmp_path, BASES["llama"], "ours", "fp32", 0.12)
    candidate = open_candidate(folder, last_positions=5)
    ids = np.random.default_rng(0).integers(3, 200, 12)
    before = [node.output[0] for node in candidate.graph.graph.node if "layers.1" in node.name]
    values, state = candidate.feed_values(candidate.start(), ids, before[:1])
    _, wanted = candidate.feed(candidate.start(), ids[None])
    for name, held in wanted.values.items():
        assert np.array_equal(state.values[name].numpy(), held.numpy())
    assert values.keys() == set(before[:1])
    _, other = candidate.feed(candidate.start(), ids[None, ::-1])
    name = next(iter(wanted.values))
    assert not np.array_equal(state.values[name].numpy(), other.values[name].numpy())
