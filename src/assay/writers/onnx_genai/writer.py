"""Writes a complete folder that ONNX Runtime GenAI loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from assay.checkpoint import Checkpoint
from assay.graph import DecoderGraph
from assay.writers.folder import check_free_space
from assay.writers.onnx_genai.data_writer import write_external_data
from assay.writers.onnx_genai.external_data import DATA_FILE, attach_initializers, lay_out
from assay.writers.onnx_genai.genai_config import MODEL_FILE
from assay.writers.onnx_genai.manifest import MANIFEST_FILE, build_manifest, write_json

__all__ = ["GenaiFolder", "estimate_size_bytes", "write_genai_folder"]

CONFIG_FILE = "genai_config.json"


@dataclass(frozen=True)
class GenaiFolder:
    """What goes into a folder besides the weights' bytes.

    source, options and verification: recorded in the manifest. load: called on the finished
    folder, returns what the manifest says about loading it.
    """

    graph: DecoderGraph
    genai_config: Mapping[str, Any]
    source: Mapping[str, Any]
    options: Mapping[str, Any]
    load: Callable[[Path], Mapping[str, Any]]
    verification: str


def estimate_size_bytes(graph: DecoderGraph) -> int:
    """Return how many bytes of weights a folder will hold."""
    return lay_out(graph.initializers).size_bytes


def write_genai_folder(
    folder: Path,
    content: GenaiFolder,
    checkpoint: Checkpoint,
    report: Callable[[int], None],
) -> Mapping[str, Any]:
    """Write everything into an existing empty folder; returns the manifest.

    report: called with bytes of weights as they are written. Raises OutputError where the disk
    can't hold the model, WeightError where a weight doesn't fit its format.
    """
    graph = content.graph
    layout = lay_out(graph.initializers)
    check_free_space(folder, layout.size_bytes)
    attach_initializers(graph.model, graph.initializers, layout)
    proto = ir.to_proto(graph.model)
    (folder / MODEL_FILE).write_bytes(proto.SerializeToString())
    write_external_data(folder / DATA_FILE, graph.initializers, layout, checkpoint, report)
    checkpoint.write_tokenizer(folder)
    write_json(folder / CONFIG_FILE, content.genai_config)
    load_once = content.load(folder)
    manifest = build_manifest(
        folder,
        graph.initializers,
        source=content.source,
        options=content.options,
        load_once=load_once,
        verification=content.verification,
    )
    write_json(folder / MANIFEST_FILE, manifest)
    return manifest
