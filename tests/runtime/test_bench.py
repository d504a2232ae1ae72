"""Benching a folder: structure and arithmetic, no speeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.errors import RuntimeFolderError
from assay.runtime import bench
from assay.runtime._bench import Summary
from assay.runtime._measure import keep_quiet_runs
from assay.runtime._spawn import Run


def test_measures_a_real_folder(exported: Path) -> None:  # proves: P10
    report = bench(exported, prompt_tokens=8, new_tokens=4, runs=2)
    data = json.loads(json.dumps(report.to_json()))
    names = ["time to first token", "prefill", "decode", "load", "peak memory"]
    assert list(data["summaries"]) == names
    for summary in data["summaries"].values():
        assert len(summary["values"]) == 2
        assert summary["median"] > 0
    assert "| decode | tokens/s |" in report.to_text()
    assert not (exported / "tune.json").exists()


def test_options_are_laid_over_and_nothing_is_written(exported: Path) -> None:  # proves: P10
    before = (exported / "genai_config.json").read_bytes()
    options = {"intra_op_num_threads": 1}
    report = bench(exported, prompt_tokens=4, new_tokens=2, runs=1, session_options=options)
    assert report.session_options["intra_op_num_threads"] == 1
    assert (exported / "genai_config.json").read_bytes() == before


def test_an_option_that_the_runtime_refuses_fails(exported: Path) -> None:  # proves: P10
    with pytest.raises(RuntimeFolderError, match="Expected a number"):
        bench(
            exported,
            prompt_tokens=4,
            new_tokens=2,
            runs=1,
            session_options={"intra_op_num_threads": "x"},
        )


@pytest.mark.parametrize("lengths", [(0, 4), (4, 1), (95, 2)])
def test_impossible_lengths_are_refused(exported: Path, lengths) -> None:  # proves: P10
    with pytest.raises(RuntimeFolderError, match="can't be measured"):
        bench(exported, prompt_tokens=lengths[0], new_tokens=lengths[1])


def test_a_folder_that_does_not_load_fails(folder: Path) -> None:  # proves: P10
    (folder / "model.onnx.data").unlink()
    with pytest.raises(RuntimeFolderError, match=r"model\.onnx\.data isn't there"):
        bench(folder, prompt_tokens=4, new_tokens=2, runs=1)


def test_summaries_of_known_numbers() -> None:  # proves: P10
    summary = Summary(name="x", unit="s", values=(1.0, 2.0, 6.0))
    assert (summary.mean, summary.median) == (3.0, 2.0)
    assert summary.deviation == pytest.approx(7**0.5)
    assert Summary(name="x", unit="s", values=(1.0,)).deviation == 0.0


def run_with(others_cpus: float | None) -> Run:
    return Run(prompt_tokens=10, new_tokens=5, ttft_s=2.0, decode_s=0.5, others_cpus=others_cpus)


def test_speeds_of_a_known_run() -> None:  # proves: P10
    run = run_with(None)
    assert run.prefill_tokens_per_s == 5.0
    assert run.decode_tokens_per_s == 8.0  # four tokens after the first


def test_the_warm_up_and_disturbed_runs_are_dropped() -> None:  # proves: P10
    warm_up, quiet, busy, unknown = map(run_with, (0.0, 0.1, 1.5, None))
    assert keep_quiet_runs([warm_up, quiet, busy, unknown]) == ((quiet, unknown), False)
    assert keep_quiet_runs([warm_up, busy]) == ((busy,), True)
    assert keep_quiet_runs([warm_up]) == ((warm_up,), False)
