"""Speed of rounding a weight: assay's kernels beside onnxruntime's own quantizer.

    python benchmarks/quantize.py [--rounds 5] [--threads N] [--json FILE]

Prints G weights a second, best of the rounds, for each shape, source type and grid. onnxruntime's
quantizer takes float32 [inputs, outputs]; its column counts the kernel alone, without the
conversion and the transposition that it needs before. It uses one thread per core; assay's
columns are one thread and --threads. The first call of each kernel is made before the clock runs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from onnxruntime.capi import _pybind_state as ort

from assay.quantization import Grid, allocate_rows, dequantize_rows, quantize_rows

SHAPES = ((4096, 4096), (49152, 576))
SOURCES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
GRIDS = (
    Grid(bits=4, group_size=32, symmetric=True),
    Grid(bits=4, group_size=32, symmetric=False),
    Grid(bits=4, group_size=128, symmetric=True),
    Grid(bits=8, group_size=32, symmetric=True),
    Grid(bits=8, group_size=32, symmetric=False),
)


def measure_seconds(call: Callable[[], Any], rounds: int) -> float:
    """Least wall time of `rounds` calls, after one that isn't counted."""
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def measure_onnxruntime(weight_IO: np.ndarray, grid: Grid, rounds: int) -> float:
    """Seconds that onnxruntime's quantizer takes for float32 [inputs, outputs]."""
    inputs, rows = weight_IO.shape
    packed, scales, _ = allocate_rows(rows, inputs, grid)
    groups = scales.shape[1]
    zero_points = np.zeros((rows, -(-groups * grid.bits // 8)), np.uint8)
    quantize = ort.quantize_matmul_4bits if grid.bits == 4 else ort.quantize_matmul_8bits
    size, symmetric = grid.group_size, grid.symmetric
    return measure_seconds(
        lambda: quantize(packed, weight_IO, scales, zero_points, size, rows, inputs, symmetric),
        rounds,
    )


def measure_rows(rounds: int, threads: int) -> Iterator[dict[str, Any]]:
    """One result per shape, grid and source type; G weights a second."""
    rng = np.random.default_rng(0)
    for rows, inputs in SHAPES:
        weight_OI = rng.standard_normal((rows, inputs), dtype=np.float32)
        weight_IO = np.ascontiguousarray(weight_OI.T)
        billions = weight_OI.size / 1e9
        for grid in GRIDS:
            theirs = billions / measure_onnxruntime(weight_IO, grid, max(1, rounds // 3))
            for name, dtype in SOURCES.items():
                source_OI = weight_OI.astype(dtype)
                out = allocate_rows(rows, inputs, grid)
                yield {
                    "shape": f"{rows} x {inputs}",
                    "source": name,
                    "grid": f"int{grid.bits} g{grid.group_size} "
                    + ("symmetric" if grid.symmetric else "asymmetric"),
                    "one_thread": billions
                    / measure_seconds(
                        lambda s=source_OI, g=grid, o=out: quantize_rows(
                            s, g, out=o, num_threads=1
                        ),
                        rounds,
                    ),
                    "all_threads": billions
                    / measure_seconds(
                        lambda s=source_OI, g=grid, o=out: quantize_rows(
                            s, g, out=o, num_threads=threads
                        ),
                        rounds,
                    ),
                    "decode": billions
                    / measure_seconds(
                        lambda i=inputs, g=grid, o=out: dequantize_rows(
                            o, i, g, num_threads=threads
                        ),
                        rounds,
                    ),
                    "onnxruntime": theirs,
                }


def main() -> None:
    """Measure, print the table, and keep it as JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    setting = {
        "processor": read_processor(),
        "threads": options.threads,
        "load": f"{os.getloadavg()[0]:.1f} before the start",
        "python": platform.python_version(),
        **{name: version(name) for name in ("numba", "numpy", "onnxruntime")},
    }
    print("; ".join(f"{key} {value}" for key, value in setting.items()))
    print(f"G weights a second, best of {options.rounds}\n")
    head = ("shape", "source", "grid", "1 thread", f"{options.threads} threads", "decode", "ort")
    layout = "{:<13} {:<6} {:<20} {:>9} {:>10} {:>7} {:>6}"
    print(layout.format(*head))
    results = []
    for row in measure_rows(options.rounds, options.threads):
        results.append(row)
        numbers = (row[key] for key in ("one_thread", "all_threads", "decode", "onnxruntime"))
        print(
            layout.format(
                row["shape"], row["source"], row["grid"], *(f"{number:.2f}" for number in numbers)
            ),
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps({"setting": setting, "results": results}, indent=1))


def read_processor() -> str:
    """The processor's model name, as Linux tells it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main()
