"""What an export costs beside the peers: wall time and peak memory, in interleaved pairs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from checkpoints import CACHE, largest_tensor_bytes
from processes import Measured, measure_command, name_load
from results import make_table, median_of, ratio_of_pairs, spread_of
from tools import Tool, make_environment

from assay.runtime import wait_until_quiet

MIB = 2**20
# Requirement: wall time and peak memory of the int4 export over the builder's, at most.
WALL_LIMIT, MEMORY_LIMIT = 0.1, 0.2
# Requirement: growth of the peak beyond twice the largest tensor, at most.
GROWTH_LIMIT_BYTES = 150 * MIB
# How long to wait before a run for others to leave the machine alone.
QUIET_WAIT_S = 20.0


def compare_exports(
    model: Path, pairs: list[tuple[Tool, Tool]], num_pairs: int
) -> tuple[dict[str, Any], str]:
    """Run each pair once uncounted (caches), then num_pairs times, alternating who goes first.

    Returns data and text; the folders that were written last stay in the cache for the speed
    comparison.
    """
    data: dict[str, Any] = {"model": model.name, "comparisons": []}
    rows = []
    for ours, theirs in pairs:
        runs: dict[str, list[Measured]] = {ours.name: [], theirs.name: []}
        for number in range(num_pairs + 1):
            for tool in (ours, theirs) if number % 2 else (theirs, ours):
                measured = export_once(tool, model)
                if number:
                    runs[tool.name].append(measured)
                print(f"  {tool.name} {tool.what}: {_short(measured)}", flush=True)
        rows += [_row(tool, runs[tool.name]) for tool in (ours, theirs)]
        wall = ratio_of_pairs(*([run.wall_s for run in runs[t.name]] for t in (ours, theirs)))
        peak = ratio_of_pairs(
            *([float(run.peak_rss_bytes) for run in runs[t.name]] for t in (ours, theirs))
        )
        rows.append(
            [f"**{ours.name} / {theirs.name}**", "", f"**{wall:.3f}**", "", f"**{peak:.3f}**"]
        )
        data["comparisons"].append(
            {
                "wall_ratio": wall,
                "peak_ratio": peak,
                "runs": {
                    tool.name: _plain(tool, model, runs[tool.name]) for tool in (ours, theirs)
                },
            }
        )
    first = data["comparisons"][0]
    text = make_table(["exporter", "writes", "wall s", "range", "peak MiB"], rows)
    text += (
        f"\n\nRequired of the int4 export: wall at most {WALL_LIMIT} of the builder's "
        f"({_verdict(first['wall_ratio'] <= WALL_LIMIT)}), peak at most {MEMORY_LIMIT} "
        f"({_verdict(first['peak_ratio'] <= MEMORY_LIMIT)}). Medians of {num_pairs} interleaved "
        "pairs; the ratios are medians of the pairs' ratios. Wall is the whole process, start to "
        "exit, files in the page cache, kernels compiled before; peak is its resident set."
    )
    return {**data, **name_load()}, text


def compare_sizes(
    small: Path, large: Path, tool: Tool, num_runs: int
) -> tuple[dict[str, Any], str]:
    """Peak memory of one exporter on a small and a large checkpoint."""
    peaks: dict[str, list[float]] = {small.name: [], large.name: []}
    walls: dict[str, list[float]] = {small.name: [], large.name: []}
    export_once(tool, small)
    for _ in range(num_runs):
        for model in (small, large):
            measured = export_once(tool, model, keep=False)
            peaks[model.name].append(float(measured.peak_rss_bytes))
            walls[model.name].append(measured.wall_s)
            print(f"  {model.name}: {_short(measured)}", flush=True)
    growth = median_of(peaks[large.name]) - median_of(peaks[small.name])
    allowed = GROWTH_LIMIT_BYTES + 2 * largest_tensor_bytes(large)
    rows = [
        [name, f"{median_of(walls[name]):.2f}", f"{median_of(peaks[name]) / MIB:.0f}"]
        for name in (small.name, large.name)
    ]
    text = make_table(["checkpoint", "wall s", "peak MiB"], rows) + (
        f"\n\nThe peak grows by {growth / MIB:.0f} MiB. Allowed: 150 MiB and twice the largest "
        f"tensor, {allowed / MIB:.0f} MiB ({_verdict(growth <= allowed)}). "
        f"{tool.name} {tool.what}, medians of {num_runs} runs."
    )
    data = {
        "command": tool.command,
        "peak_bytes": peaks,
        "wall_s": walls,
        "growth_bytes": growth,
        "allowed_bytes": allowed,
    }
    return {**data, **name_load()}, text


def export_once(tool: Tool, model: Path, *, keep: bool = True) -> Measured:
    """One export into a fresh folder of the cache."""
    output = folder_of(tool, model)
    shutil.rmtree(output, ignore_errors=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    log = output.with_name(f"{output.name}.log")
    wait_until_quiet(QUIET_WAIT_S)
    measured = measure_command(tool.fill(model, output), env=make_environment(), log=log)
    if not (output / "genai_config.json").is_file():
        raise SystemExit(f"{tool.name} wrote no folder: see {log}")
    if not keep:
        shutil.rmtree(output)
    return measured


def folder_of(tool: Tool, model: Path) -> Path:
    """Where a tool's export of a model lies."""
    name = "-".join([tool.name, tool.what, model.name]).replace(" ", "-")
    return CACHE / "work" / "".join(c for c in name if c.isalnum() or c in "-._")


def _plain(tool: Tool, model: Path, runs: list[Measured]) -> dict[str, Any]:
    return {
        "command": " ".join(tool.fill(Path(model.name), Path("OUT"))),
        "wall_s": [run.wall_s for run in runs],
        "peak_rss_bytes": [run.peak_rss_bytes for run in runs],
        "cpu_s": [run.cpu_s for run in runs],
        "others_cpus": [run.others_cpus for run in runs],
        "own_report": _own_report(runs[-1].stdout),
    }


def _own_report(stdout: str) -> dict[str, Any]:
    """The seconds that assay itself counted, from its --json; {} for the others."""
    start = stdout.find("{")
    try:
        report = json.loads(stdout[start:]) if start >= 0 else {}
    except json.JSONDecodeError:
        return {}
    return {key: report[key] for key in ("seconds", "weights_bytes") if key in report}


def _row(tool: Tool, runs: list[Measured]) -> list[str]:
    walls = [run.wall_s for run in runs]
    peak = median_of([float(run.peak_rss_bytes) for run in runs]) / MIB
    return [tool.name, tool.what, f"{median_of(walls):.2f}", spread_of(walls), f"{peak:.0f}"]


def _short(measured: Measured) -> str:
    others = measured.others_cpus
    note = f" (others kept {others:.1f} cpus busy)" if others and others > 0.25 else ""
    return f"{measured.wall_s:.2f} s, {measured.peak_rss_bytes / MIB:.0f} MiB{note}"


def _verdict(holds: bool) -> str:
    return "holds" if holds else "FAILS"
