"""Runs the matrix of planted faults, one JSON line each, and prints the table."""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from assay.diagnosis import diagnose_folder
from assay.errors import AssayError
from assay.verification import load_reference
from assay.verification.reference import run_logits
from tests.diagnosis.planting.fault import Fault, NothingError, is_named
from tests.diagnosis.planting.measure import compute, differs, parts
from tests.diagnosis.planting.rooms import TOOLS, find_folder, plant
from tests.diagnosis.planting.sample import ALL
from tests.twins.cases import BASES, CASES, TwinCase


def main() -> None:
    """Run what isn't in the results yet."""
    args = _parse()
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = _read(args.results)
    cases = list(CASES) if args.faults == ["healthy"] else [*BASES.values(), *_variants()]
    for case in [c for c in cases if not args.types or c.id in args.types]:
        for tool in args.tools:
            for precision in args.precisions:
                for fault in (None, *ALL):
                    key = [case.id, tool, precision, fault.name if fault else "healthy"]
                    if tuple(key) in done or (args.faults and key[3] not in args.faults):
                        continue
                    record = _run(args.room, case, tool, precision, fault)
                    if record is not None:
                        done[tuple(key)] = record
                        with args.results.open("a") as file:
                            file.write(json.dumps([*key, record]) + "\n")
                        if not record["named"]:
                            print(*key, record["said"], flush=True)
    print(make_table(done))


def _variants() -> list[TwinCase]:
    """Cases with rope scaling, which no base has."""
    wanted = ("linear", "yarn", "llama3", "longrope", "clip_qkv", "parallel", "untied")
    return [c for c in CASES if c.name != "base" and any(w in c.name for w in wanted)]


def _run(room: Path, case: TwinCase, tool: str, precision: str, fault: Fault | None) -> Any:
    """None where there is nothing to plant, or nothing to be seen of it."""
    try:
        healthy = find_folder(room, case, tool, precision, fault.std if fault else 0.12)
        if not _is_healthy(healthy):  # a tool's own fault: neither a control nor a place to plant
            return None
        folder = plant(fault, room, case, tool, precision) if fault else healthy
    except NothingError:
        return None
    except AssayError:  # a plan that can't be built is no folder
        return None
    if fault is not None and not differs(healthy, folder):
        return None
    found = diagnose_folder(folder, folder.parent / "hf")
    said = [f"{cause.id} at {cause.place}" for cause in found.causes]
    said += [f"unknown in {entry.place}" for entry in found.entries]
    named = found.health == "healthy" if fault is None else is_named(fault, found)
    return {"named": named, "said": said}


@cache
def _is_healthy(folder: Path) -> bool:
    """Whether a folder computes what PyTorch does, by a plain comparison of logits.

    A float folder against the checkpoint; of a quantized one, its float twin by the same tool.
    """
    precise = folder.parent / folder.name.replace("int4", "fp32")
    computed = compute(precise) if list(precise.rglob("*.onnx")) else None
    if computed is None:
        return False
    ids = np.random.default_rng(1).integers(3, 250, 96)
    truth = run_logits(load_reference(folder.parent / "hf", streamed=False), ids)
    whole, decoded, padded = computed
    right = not parts(whole, truth, 1e-4) and not parts(decoded, truth[80:], 1e-4)
    return right and (padded.any() or "builder" in folder.name)


def _read(path: Path) -> dict[tuple[str, ...], Any]:
    if not path.is_file():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {tuple(line[:4]): line[4] for line in lines}


def make_table(done: dict[tuple[str, ...], Any]) -> str:
    """One row a kind: planted and named rightly by tool and precision."""
    columns = sorted({(tool, precision) for _, tool, precision, _ in done})
    rows: dict[str, dict[Any, list[bool]]] = defaultdict(lambda: defaultdict(list))
    types: dict[str, set[str]] = defaultdict(set)
    for (case, tool, precision, kind), record in done.items():
        rows[kind][tool, precision].append(record["named"])
        types[kind].add(case.split("-")[0])
    lines = ["| kind | types | " + " | ".join(f"{t} {p}" for t, p in columns) + " |"]
    lines.append("|---|---|" + "---|" * len(columns))
    for kind, cells in rows.items():
        shown = [f"{sum(cells[c])} of {len(cells[c])}" if cells[c] else "" for c in columns]
        lines.append(f"| {kind} | {len(types[kind])} | " + " | ".join(shown) + " |")
    planted = [r["named"] for key, r in done.items() if key[3] != "healthy"]
    healthy = [r["named"] for key, r in done.items() if key[3] == "healthy"]
    lines.append("")
    lines.append(
        f"{sum(planted)} of {len(planted)} planted faults named rightly, {len(rows) - 1} kinds; "
        f"{len(healthy) - sum(healthy)} of {len(healthy)} healthy folders accused."
    )
    return "\n".join(lines)


def _parse() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", nargs="+", default=list(TOOLS))
    parser.add_argument("--precisions", nargs="+", default=["fp32", "int4"])
    parser.add_argument("--types", nargs="+")
    parser.add_argument("--faults", nargs="+")
    parser.add_argument("--room", type=Path, default=Path(".cache/planted"))
    parser.add_argument("--results", type=Path, default=Path(".cache/planted/results.jsonl"))
    args = parser.parse_args()
    args.room.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return args


if __name__ == "__main__":
    main()
