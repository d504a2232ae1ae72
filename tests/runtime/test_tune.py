"""Tuning a folder: what is written, when, and that a failure leaves the folder as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.errors import DependencyError, OutputError, RuntimeFolderError
from assay.runtime import _tune, read_folder, tune
from assay.runtime._spawn import ChildResult, Run

THREADS = "intra_op_num_threads"
SPINNING = "session.intra_op.allow_spinning"
Speeds = Callable[[dict[str, Any]], float | None]


def answer(factor: float | None) -> ChildResult:
    """A child's result at a speed; None: it crashed."""
    run = Run(prompt_tokens=256, new_tokens=64, ttft_s=1, decode_s=1, others_cpus=0.0)
    if factor is None:
        runs: tuple[Run, ...] = ()
    else:
        fields = {"prompt_tokens": 256, "new_tokens": 64, "others_cpus": 0.0}
        run = Run(ttft_s=0.6 / factor, decode_s=0.6 / factor, **fields)  # type: ignore[arg-type]
        runs = (run, run)
    return ChildResult(
        outcome="crash" if factor is None else "ok",
        stage="generate",
        message="ended by SIGSEGV",
        seconds=1,
        load_s=0.1,
        runs=runs,
        token_ids=(),
        peak_rss_bytes=1,
    )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Speeds], list[dict[str, Any]]]:
    """Replace measuring by a function from session options to a speed; returns what was asked."""

    def replace(speeds: Speeds) -> list[dict[str, Any]]:
        asked: list[dict[str, Any]] = []

        def measure_child(folder: Any, *, session_options: dict[str, Any], **_: Any) -> ChildResult:
            asked.append(session_options)
            own = read_folder(folder.path).session_options  # as it stands at that moment
            return answer(speeds({**own, **session_options}))

        monkeypatch.setattr(_tune, "measure_child", measure_child)
        monkeypatch.setattr(_tune, "wait_until_quiet", lambda limit_s: 0.0)
        monkeypatch.setattr("assay.runtime._machine._count_cpus", lambda: 4)
        return asked

    return replace


def by_threads(options: dict[str, Any]) -> float:
    """Two threads are best, spinning helps, and the default is one thread."""
    factor = {1: 1.0, 2: 1.7}.get(options.get(THREADS, 1), 1.2)
    return factor * (0.8 if options.get(SPINNING, "1") == "0" else 1.0)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_best_options_are_written(fake_folder: Path, machine) -> None:  # proves: B11
    machine(by_threads)
    before = read_folder(fake_folder)
    report = tune(fake_folder)
    after = read_folder(fake_folder)
    assert after.session_options == {**before.session_options, THREADS: 2, SPINNING: "1"}
    assert report.changed
    assert report.before == before.session_options
    assert report.after == after.session_options
    assert report.prefill_gain == pytest.approx(1.7)
    assert report.decode_gain == pytest.approx(1.7)
    kept = json.loads((fake_folder / "tune.json").read_text())
    assert kept["chosen"] == "threads=2 spinning=1"
    assert kept["machine"]["versions"]["onnxruntime-genai"]
    assert len(kept["trials"]) == len(report.trials)
    assert "threads=2" in report.to_text()


def test_everything_else_in_the_config_stays(fake_folder: Path, machine) -> None:  # proves: B11
    machine(by_threads)
    config = json.loads((fake_folder / "genai_config.json").read_text())
    tune(fake_folder)
    found = json.loads((fake_folder / "genai_config.json").read_text())
    found["model"]["decoder"]["session_options"] = config["model"]["decoder"]["session_options"]
    assert found == config


def test_a_dry_run_writes_nothing(fake_folder: Path, machine) -> None:  # proves: B12
    machine(by_threads)
    before = snapshot(fake_folder)
    report = tune(fake_folder, dry_run=True)
    assert snapshot(fake_folder) == before
    assert report.changed
    assert "Would change" in report.to_text()


def test_the_best_folder_is_left_as_it_is(fake_folder: Path, machine) -> None:  # proves: B11
    machine(lambda options: 1.0 if THREADS not in options else 0.9)
    before = (fake_folder / "genai_config.json").read_bytes()
    report = tune(fake_folder)
    assert (fake_folder / "genai_config.json").read_bytes() == before
    assert not report.changed
    assert report.chosen == "as it is"
    assert (report.prefill_gain, report.decode_gain) == (1.0, 1.0)
    assert not json.loads((fake_folder / "tune.json").read_text())["changed"]
    assert "nothing was changed" in report.to_text()


def test_a_second_tuning_changes_nothing(fake_folder: Path, machine) -> None:  # proves: B11
    machine(by_threads)
    assert tune(fake_folder).changed
    assert not tune(fake_folder).changed


def test_an_older_choice_does_not_linger(fake_folder, edit_config, machine) -> None:  # proves: B11
    machine(lambda options: by_threads(options) * (0.5 if block_base(options) != "0" else 1))
    options = {THREADS: 1, "session.dynamic_block_base": "8", "log_id": "kept"}
    edit_config(fake_folder, **{"model.decoder.session_options": options})
    tune(fake_folder)
    expected = {"log_id": "kept", THREADS: 2, SPINNING: "1"}
    assert read_folder(fake_folder).session_options == expected


def block_base(options: dict[str, Any]) -> str:
    return str(options.get("session.dynamic_block_base", "0"))


def test_a_crashing_candidate_is_reported_and_passed_over(
    fake_folder, machine
) -> None:  # proves: B11
    machine(lambda options: None if options.get(THREADS) == 2 else by_threads(options))
    report = tune(fake_folder)
    assert report.after[THREADS] != 2
    failed = [trial for trial in report.trials if trial.failed]
    assert [trial.options[THREADS] for trial in failed] == [2]
    assert "SIGSEGV" in failed[0].failed
    assert "failed" in report.to_text()


def test_where_every_candidate_fails_nothing_changes(fake_folder, machine) -> None:  # proves: B11
    machine(lambda options: None if THREADS in options else 1.0)
    assert not tune(fake_folder).changed


def test_a_folder_that_does_not_run_is_an_error(fake_folder: Path, machine) -> None:  # proves: B11
    machine(lambda options: None)
    before = snapshot(fake_folder)
    with pytest.raises(RuntimeFolderError, match="SIGSEGV"):
        tune(fake_folder)
    assert snapshot(fake_folder) == before


@pytest.mark.parametrize("with_old_report", [False, True])
def test_a_config_that_does_not_load_is_put_back(fake_folder, machine, with_old_report) -> None:
    """The last measurement is of the file as written; if that fails, all is as it was."""
    # proves: B11
    machine(by_threads)
    if with_old_report:
        (fake_folder / "tune.json").write_text("{}")
    before = snapshot(fake_folder)

    def fail_once_written(options: dict[str, Any]) -> float | None:
        written = THREADS in read_folder(fake_folder).session_options
        return None if written else by_threads(options)

    machine(fail_once_written)
    with pytest.raises(RuntimeFolderError, match="SIGSEGV"):
        tune(fake_folder)
    assert snapshot(fake_folder) == before


def test_a_full_disk_puts_all_back(fake_folder, machine, monkeypatch) -> None:  # proves: B11
    machine(by_threads)
    before = snapshot(fake_folder)

    def fail(folder: Path, names: tuple[str, ...]) -> None:
        raise OutputError("manifest.json", "the disk is full")

    monkeypatch.setattr(_tune, "refresh_manifest", fail)
    with pytest.raises(OutputError):
        tune(fake_folder)
    assert snapshot(fake_folder) == before


def test_progress_ends_at_what_it_expected(fake_folder: Path, machine) -> None:  # proves: B12
    machine(by_threads)
    told: list[tuple[int, int, str]] = []
    tune(fake_folder, progress=lambda *event: told.append(event))
    counts = [done for done, _, _ in told[:-1]]
    assert counts == sorted(counts)
    assert all(done <= expected for done, expected, _ in told)
    assert told[0][0] == 0


def test_lengths_that_do_not_fit_are_refused(
    fake_folder, edit_config, machine
) -> None:  # proves: B12
    machine(by_threads)
    edit_config(fake_folder, **{"model.context_length": 100})
    tune(fake_folder, dry_run=True)  # the prompt is shortened
    with pytest.raises(RuntimeFolderError, match="can't be measured"):
        tune(fake_folder, new_tokens=100, dry_run=True)


def test_without_the_runtime(fake_folder: Path, monkeypatch) -> None:  # proves: B11
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime_genai", None)
    with pytest.raises(DependencyError):
        tune(fake_folder)


def test_a_real_folder_still_loads_afterwards(folder: Path, monkeypatch) -> None:  # proves: B11
    """End to end on the runtime itself: whatever it chooses, the folder is whole."""
    monkeypatch.setattr(_tune, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(_tune, "wait_until_quiet", lambda limit_s: 0.0)
    report = tune(folder, prompt_tokens=8, new_tokens=4, rounds=1, pairs=1, repeats=1)
    assert read_folder(folder).session_options == report.after
    manifest = json.loads((folder / "manifest.json").read_text())
    assert "tune.json" in manifest["files"]
