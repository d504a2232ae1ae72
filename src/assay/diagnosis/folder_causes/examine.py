"""The way through a folder's files: the graph alone, then everything beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.diagnosis.finding import Cause
from assay.diagnosis.folder_causes.graph_file import (
    examine_data,
    examine_structure,
    examine_types,
)
from assay.diagnosis.folder_causes.runtime_config import examine_config, note_config
from assay.diagnosis.folder_causes.table import make_cause
from assay.diagnosis.folder_causes.text_files import examine_text
from assay.verification.folder import ModelFolder

__all__ = ["examine_files", "examine_graph_file"]


def examine_graph_file(path: Path, *, refused: str = "") -> list[Cause]:
    """Causes in a graph's file and its weights' file; no weight is read.

    path: the folder, or its .onnx file. refused: what the runtime says of a graph that doesn't
    run; types are looked at only then.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    folder = path.parent if path.suffix == ".onnx" else path
    config, broken = _read_config(folder)
    if broken is not None:
        return [broken]
    named = ((config.get("model") or {}).get("decoder") or {}).get("filename")
    graphs = sorted(folder.glob("*.onnx")) or sorted(folder.glob("onnx/*.onnx"))
    if isinstance(named, str) and path.suffix != ".onnx" and not (folder / named).is_file():
        if graphs:
            place = "genai_config.json: model.decoder.filename"
            return [make_cause("config_filename", place, f"{named!r} isn't there")]
        return [make_cause("graph_missing", str(named), "no .onnx file is in the folder")]
    if not graphs:
        return [make_cause("graph_missing", str(folder), "no .onnx file is in the folder")]
    file = path if path.suffix == ".onnx" else folder / named if named else graphs[0]
    try:
        graph = onnx.load(str(file), load_external_data=False)
    except (DecodeError, OSError, ValueError) as exc:
        return [make_cause("graph_unreadable", file.name, str(exc).splitlines()[0][:200])]
    found = [*examine_structure(graph), *examine_data(file.parent, graph)]
    return found if found or not refused else list(examine_types(graph, refused))


def _read_config(folder: Path) -> tuple[dict[str, Any], Cause | None]:
    file = folder / "genai_config.json"
    if not file.is_file():
        return {}, None
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        return {}, make_cause("config_unreadable", file.name, str(exc)[:200])
    if not isinstance(config, dict):
        return {}, make_cause("config_unreadable", file.name, "it holds no JSON object")
    return config, None


def examine_files(
    folder: ModelFolder, reference: Path, model: Any
) -> tuple[list[Cause], list[str]]:
    """Causes and notes of what stands beside a graph: the runtime's config, tokenizer, template."""
    causes: list[Cause] = []
    files: Iterator[Cause] = examine_text(folder.path, reference)
    causes += examine_config(folder, model)
    causes += files if folder.config else ()
    return causes, list(note_config(folder, model))
