"""assay bench: defaults, formats, and what is left out where nobody knows it."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.pipeline import export
from assay.runtime import _bench
from assay.runtime._spawn import ChildResult, Run
from tests.cli.test_errors import parse_strictly
from tests.conftest import Outcome
from tests.pipeline.tiny import write_llama

Command = Callable[..., Outcome]
TTFT_S = (0.5, 0.7, 0.6)  # one process after the other


class Children:
    """Instead of measuring (tests/runtime does): known times, and the jobs that were asked for."""

    def __init__(self, *, load_s: float | None = 0.25, peak: int | None = 64 << 20) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.load_s, self.peak = load_s, peak

    def __call__(self, folder: Any, **job: Any) -> ChildResult:
        ttft_s = TTFT_S[len(self.jobs) % len(TTFT_S)]
        self.jobs.append(job)
        tokens = job["prompt_tokens"], job["new_tokens"]
        runs = [
            Run(
                prompt_tokens=tokens[0],
                new_tokens=tokens[1],
                ttft_s=seconds,
                decode_s=1.0,
                others_cpus=0.0,
            )
            for seconds in (99.0, ttft_s)
        ]
        return ChildResult(
            outcome="ok", stage="exit", message="", seconds=1, load_s=self.load_s,
            runs=tuple(runs), token_ids=(), peak_rss_bytes=self.peak,
        )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose context holds the defaults; leave it as it is."""
    place = tmp_path_factory.mktemp("bench")
    source = write_llama(place / "llama", max_position_embeddings=1024)
    return export(source, place / "out", check_loading=False).folder


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Children:
    """Stand in for the child processes."""
    fake = Children()
    monkeypatch.setattr(_bench, "measure_child", fake)
    return fake


def test_defaults(folder: Path, children: Children, assay_command: Command) -> None:
    """proves: P10, B12. Control: flags change them."""
    assert assay_command("bench", folder).code == 0
    asked = [(job["prompt_tokens"], job["new_tokens"]) for job in children.jobs]
    assert asked == [(512, 128)] * 5
    children.jobs.clear()
    assert assay_command("bench", folder, "-p", 8, "-n", 4, "-r", 2).code == 0
    assert [(job["prompt_tokens"], job["new_tokens"]) for job in children.jobs] == [(8, 4)] * 2


def read_rows(text: str) -> dict[str, dict[str, str]]:
    """The rows of a CSV by quantity."""
    return {row["quantity"]: row for row in csv.DictReader(io.StringIO(text))}


def test_means_and_deviations(folder: Path, children: Children, assay_command: Command) -> None:
    """Over processes, the warm-up left out. proves: P10. Control: the median differs from them."""
    rows = read_rows(assay_command("bench", folder, "-r", 3, "--format", "csv").out)
    first = rows["time to first token"]
    assert float(first["mean"]) == pytest.approx(statistics.mean(TTFT_S))
    assert float(first["deviation"]) == pytest.approx(statistics.stdev(TTFT_S))
    speeds = [512 / seconds for seconds in TTFT_S]
    assert float(rows["prefill"]["mean"]) == pytest.approx(statistics.mean(speeds))
    assert float(rows["prefill"]["median"]) == pytest.approx(512 / 0.6)
    assert float(rows["prefill"]["median"]) != pytest.approx(statistics.mean(speeds))
    assert float(rows["decode"]["mean"]) == 127.0
    assert float(rows["peak memory"]["mean"]) == 64.0
    setting = (first["folder"], first["prompt_tokens"], first["new_tokens"], first["runs"])
    assert setting == (str(folder), "512", "128", "3")


def test_formats(folder: Path, children: Children, assay_command: Command) -> None:
    """The same numbers in each. proves: B12. Control: an unknown format is refused."""
    call = ("bench", folder, "-r", 3, "--format")
    table = assay_command("bench", folder, "-r", 3).out
    assert "time to first token         0.6 ± 0.1      s" in table
    assert table == assay_command(*call, "table").out
    assert "| time to first token | s | 0.6 | 0.6 | 0.1 |" in assay_command(*call, "md").out
    told = parse_strictly(assay_command(*call, "json").out)
    assert told["summaries"]["time to first token"]["values"] == list(TTFT_S)
    same = parse_strictly(assay_command("bench", folder, "-r", 3, "--json").out)
    assert same["summaries"] == told["summaries"]
    assert assay_command(*call, "xml").code == 2


def test_what_nobody_knows_is_left_out(
    folder: Path, assay_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zero isn't unknown. proves: P10. Control: where it is known, it is there."""
    call = ("bench", folder, "-r", 1, "--format", "csv")
    monkeypatch.setattr(_bench, "measure_child", Children(load_s=None, peak=None))
    assert set(read_rows(assay_command(*call).out)) == {"time to first token", "prefill", "decode"}
    monkeypatch.setattr(_bench, "measure_child", Children())
    assert {"load", "peak memory"} <= set(read_rows(assay_command(*call).out))
