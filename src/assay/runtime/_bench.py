"""How fast a folder is on this machine: loading, first token, decode, memory."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ._folder import read_folder
from ._genai import import_genai
from ._machine import Machine, describe_machine
from ._measure import check_lengths, keep_quiet_runs, measure_child, measure_speed

__all__ = ["BenchReport", "Summary", "bench"]

_CSV_COLUMNS = (
    "folder", "prompt_tokens", "new_tokens", "runs", "quantity", "unit", "mean", "deviation",
    "median",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A quantity over the runs; deviation is the sample's, 0 for a single run."""

    name: str
    unit: str
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Arithmetic mean."""
        return statistics.fmean(self.values)

    @property
    def median(self) -> float:
        """Median."""
        return statistics.median(self.values)

    @property
    def deviation(self) -> float:
        """Sample standard deviation."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class BenchReport:
    """What a bench measured; every run is a child process of its own.

    num_disturbed: runs during which other programs kept the machine busy.
    """

    folder: str
    size_bytes: int
    session_options: dict[str, Any]
    prompt_tokens: int
    new_tokens: int
    summaries: tuple[Summary, ...]
    num_disturbed: int
    machine: Machine
    measured_at: str

    def to_json(self) -> dict[str, Any]:
        """Plain data, with mean, median and deviation beside the values."""
        data = asdict(self)
        data["summaries"] = {
            summary.name: {
                "unit": summary.unit,
                "median": summary.median,
                "mean": summary.mean,
                "deviation": summary.deviation,
                "values": list(summary.values),
            }
            for summary in self.summaries
        }
        return data

    @property
    def num_runs(self) -> int:
        """Processes that were measured."""
        return max(len(one.values) for one in self.summaries)

    def to_table(self) -> str:
        """A line for each quantity, mean and standard deviation, for a terminal."""
        rows = [
            f"{one.name:<20} {one.mean:>10.4g} ± {one.deviation:<8.2g} {one.unit}"
            for one in self.summaries
        ]
        return "\n".join([*rows, "", *self._tell_setting()])

    def to_csv(self) -> str:
        """A header and a row for each quantity; the setting stands in every row."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_CSV_COLUMNS)
        setting = (self.folder, self.prompt_tokens, self.new_tokens)
        for one in self.summaries:
            numbers = (one.mean, one.deviation, one.median)
            writer.writerow((*setting, len(one.values), one.name, one.unit, *numbers))
        return text.getvalue()

    def to_text(self) -> str:
        """A Markdown table and its setting."""
        rows = [
            f"| {one.name} | {one.unit} | {one.median:.4g} | {one.mean:.4g} | {one.deviation:.2g} |"
            for one in self.summaries
        ]
        head = ["| | unit | median | mean | deviation |", "|---|---|---|---|---|"]
        return "\n".join([*head, *rows, "", *self._tell_setting()])

    def _tell_setting(self) -> list[str]:
        lines = [
            f"{self.folder}: {self.size_bytes / 2**20:.1f} MiB, {self.prompt_tokens} prompt and "
            f"{self.new_tokens} new tokens, {self.num_runs} runs",
            f"session options: {self.session_options or 'the runtime defaults'}",
            self.machine.to_text(),
        ]
        if self.num_disturbed:
            lines.append(f"{self.num_disturbed} runs were disturbed by other programs")
        return lines


def bench(
    folder: str | Path,
    *,
    prompt_tokens: int = 512,
    new_tokens: int = 128,
    runs: int = 5,
    session_options: dict[str, Any] | None = None,
    timeout_s: float = 600.0,
) -> BenchReport:
    """Measure a folder `runs` times, each in a child process after one warm-up.

    session_options: laid over the folder's own for this measurement; nothing is written.
    Raises DependencyError without onnxruntime-genai, RuntimeFolderError where it doesn't run.
    """
    found = read_folder(folder)
    check_lengths(found, prompt_tokens, new_tokens)
    import_genai()
    rows: list[tuple[float | None, ...]] = []
    num_disturbed = 0
    for _ in range(max(1, runs)):
        result = measure_child(
            found,
            session_options=session_options,
            prompt_tokens=prompt_tokens,
            new_tokens=new_tokens,
            repeats=1,
            timeout_s=timeout_s,
        )
        speed = measure_speed(found, result)
        ttft_s = statistics.median(run.ttft_s for run in keep_quiet_runs(result.runs)[0])
        peak = None if result.peak_rss_bytes is None else result.peak_rss_bytes / 2**20
        rows.append((ttft_s, speed.prefill, speed.decode, result.load_s, peak))
        num_disturbed += speed.disturbed
    return BenchReport(
        folder=str(found.path),
        size_bytes=found.size_bytes,
        session_options={**found.session_options, **(session_options or {})},
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        summaries=_summarize(rows),
        num_disturbed=num_disturbed,
        machine=describe_machine(),
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def _summarize(rows: Sequence[tuple[float | None, ...]]) -> tuple[Summary, ...]:
    """One summary a column; a quantity that the system doesn't tell is left out."""
    names = (
        ("time to first token", "s"),
        ("prefill", "tokens/s"),
        ("decode", "tokens/s"),
        ("load", "s"),
        ("peak memory", "MiB"),
    )
    columns = zip(*rows, strict=True)
    known = [tuple(value for value in column if value is not None) for column in columns]
    return tuple(
        Summary(name=name, unit=unit, values=values)
        for (name, unit), values in zip(names, known, strict=True)
        if values
    )
