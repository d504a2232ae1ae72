"""Healthy folders of every tool, and copies of them with a fault."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

from assay.graph import ExportOptions
from assay.spec.weights import WeightMap
from tests.diagnosis.planting.fault import Fault, NothingError
from tests.twins.cases import TwinCase
from tests.twins.twin import build_twin, export_twin

__all__ = ["TOOLS", "find_folder", "plant", "write_tokenizer"]

TOOLS = ("ours", "builder", "mobius")
PRECISIONS = {"fp32": "fp32", "int4": "int4"}


def find_folder(room: Path, case: TwinCase, tool: str, precision: str, std: float) -> Path:
    """The healthy export of a twin, made where it isn't there; its checkpoint is beside it as hf.

    Raises NothingError where the tool can't build it.
    """
    place = room / f"{case.id}-{std:g}"
    if not (place / "hf" / "config.json").is_file():
        build_twin(case, std, place / "hf")
        write_tokenizer(place / "hf")
    folder = place / f"{tool}-{precision}"
    if not (place / f"{folder.name}.tried").exists():
        (place / f"{folder.name}.tried").touch()
        if tool == "ours":
            export_twin(place / "hf", folder, options=ExportOptions(precision=precision))
        else:
            _export_with_peer(tool, precision, place / "hf", folder)
    if not list(folder.rglob("*.onnx")):
        raise NothingError
    return folder


def plant(fault: Fault, room: Path, case: TwinCase, tool: str, precision: str) -> Path:
    """A folder with the fault, its checkpoint beside it as hf."""
    healthy = find_folder(room, case, tool, precision, fault.std)
    faulty = healthy.parent / f"{healthy.name}-faulty"
    shutil.rmtree(faulty, ignore_errors=True)
    if fault.plant is not None:
        shutil.copytree(healthy, faulty)
        fault.plant(faulty)
        return faulty
    if tool != "ours":
        raise NothingError
    options = ExportOptions(precision=precision)
    try:
        # Our exporter refuses to drop a tensor silently; the faults are those of one that does.
        with mock.patch.object(WeightMap, "check_all_used"):
            return export_twin(
                healthy.parent / "hf",
                faulty,
                options=options,
                change_plan=fault.plan,
                change_rows=fault.rows,
            )
    except AssertionError as exc:  # a plan that our own graph can't be made of
        raise NothingError from exc


def _export_with_peer(tool: str, precision: str, source: Path, folder: Path) -> None:
    python = os.environ.get("ASSAY_PEERS_PYTHON", ".venv-peers/bin/python")
    if tool == "builder":
        command = [python, "-m", "onnxruntime_genai.models.builder", "-m", str(source)]
        command += ["-o", str(folder), "-p", precision, "-e", "cpu", "-c", str(folder) + "-cache"]
    elif precision == "fp32":
        sys.path.append("benchmarks")
        from tools import mobius_tool

        command = mobius_tool(python).fill(source, folder)
    else:
        raise NothingError
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, capture_output=True, check=False, env=environment, timeout=600)


def write_tokenizer(folder: Path) -> None:
    """A tiny tokenizer, so that the peers have one to copy."""
    sys.path.append("benchmarks")
    from checkpoints import _write_tokenizer as write

    write(folder, 251)
