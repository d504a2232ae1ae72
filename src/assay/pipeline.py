"""The main path: checkpoint -> spec -> plan -> graph -> quantize -> write -> load once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

import assay.models  # noqa: F401  (registers every spec)
from assay.checkpoint import Checkpoint, open_checkpoint
from assay.errors import OptionError, OutputError, RuntimeFolderError
from assay.graph import DecoderGraph, ExportOptions, build_decoder_graph
from assay.runtime import load_once
from assay.spec import DecoderPlan, ResolvedModel, resolve_model
from assay.spec.weights import WeightMap
from assay.writers.folder import check_target, new_folder
from assay.writers.onnx_genai import (
    GenaiFolder,
    build_genai_config,
    estimate_size_bytes,
    write_genai_folder,
)

__all__ = [
    "ExportReport",
    "PlannedExport",
    "Progress",
    "build_export",
    "check_output",
    "export",
    "plan_export",
    "resolve_checkpoint",
    "write_export",
]

# What the manifest keeps of loading once; times and memory differ from run to run.
LOAD_OUTCOME = ("status", "reason", "runtime_version")
# What the manifest says about verification where the caller says nothing.
NOT_ASKED = "not asked for: assay.export leaves verification to assay.verify"


class Progress(Protocol):
    """Told of the stages of long work, and of the bytes done within one."""

    def start(self, stage: str, total_bytes: int = 0) -> None:
        """A stage begins."""

    def advance(self, num_bytes: int) -> None:
        """Some bytes of the stage are done."""


class _Silent:
    def start(self, stage: str, total_bytes: int = 0) -> None:
        pass

    def advance(self, num_bytes: int) -> None:
        pass


@dataclass(frozen=True)
class PlannedExport:
    """A finished graph without data, what stands beside it, and what it will cost."""

    model: ResolvedModel
    graph: DecoderGraph
    genai_config: Mapping[str, Any]
    options: ExportOptions
    weights_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return what will be written, as plain data."""
        plan = self.model.plan
        return {
            "model_type": self.model.spec.model_type,
            "num_layers": len(plan.layers),
            "hidden_size": plan.hidden_size,
            "vocab_size": plan.vocab_size,
            "nodes": self.graph.model.graph.num_nodes(),
            "weights_bytes": self.weights_bytes,
            "options": self.options.to_json(),
        }

    def to_text(self) -> str:
        """One line."""
        plan = self.model.plan
        return (
            f"{self.model.spec.model_type}, {len(plan.layers)} layers, "
            f"{self.options.precision}, {self.weights_bytes / 1e6:,.1f} MB of weights"
        )


@dataclass(frozen=True)
class ExportReport:
    """What an export wrote.

    load_once: what loading took, with what was measured (the manifest keeps the outcome alone, so
    that two exports give the same bytes). seconds: of the export itself, loading not counted.
    """

    folder: Path
    plan: PlannedExport
    manifest: Mapping[str, Any]
    load_once: Mapping[str, Any]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "folder": str(self.folder),
            "seconds": round(self.seconds, 3),
            **self.plan.to_json(),
            "load_once": dict(self.load_once),
            "files": self.manifest["files"],
        }

    def to_text(self) -> str:
        """What was written and whether the runtime took it."""
        load = self.load_once
        took = "loaded once" if load["status"] == "ok" else f"not loaded: {load['reason']}"
        return f"{self.folder}: {self.plan.to_text()}, in {self.seconds:.1f} s ({took})"


def export(
    model: str | Path,
    output: str | Path,
    options: ExportOptions | None = None,
    *,
    overwrite: bool = False,
    check_loading: bool = True,
    verification: str = "",
    progress: Progress | None = None,
    **choices: Any,
) -> ExportReport:
    """Export a checkpoint to an ONNX Runtime GenAI folder.

    model: a Hugging Face folder or a GGUF file. output: the folder to create. choices: fields of
    `ExportOptions` by name, such as precision="int4". check_loading: load the result once in the
    runtime, in a child process, before reporting success. verification: what manifest.json says
    about it; nothing is judged here.
    Raises an AssayError for whatever a user or a file can cause; then no folder is left.
    """
    progress = progress or _Silent()
    begin = time.perf_counter()
    options = choose_options(options, choices)
    with open_checkpoint(model) as checkpoint:
        check_output(checkpoint, output, overwrite=overwrite)
        progress.start("plan")
        planned = plan_export(checkpoint, options)
        return write_export(
            planned,
            checkpoint,
            output,
            overwrite=overwrite,
            check_loading=check_loading,
            verification=verification,
            progress=progress,
            begin=begin,
        )


def choose_options(options: ExportOptions | None, choices: Mapping[str, Any]) -> ExportOptions:
    """Return options with single choices replaced; OptionError for a name that isn't one."""
    known = [field.name for field in fields(ExportOptions)]
    for name in choices:
        if name not in known:
            raise OptionError(
                name, "there is no such option", expected=f"one of {', '.join(known)}"
            )
    return replace(options or ExportOptions(), **choices)


def check_output(checkpoint: Checkpoint, output: str | Path, *, overwrite: bool = False) -> None:
    """Raise OutputError where a folder can't become the output, before any work is done."""
    source, target = checkpoint.path.resolve(), Path(os.path.realpath(output))
    if target == source or target in source.parents:
        raise OutputError(
            str(output),
            f"it holds the checkpoint {checkpoint.path}",
            next_step="Choose another folder with -o.",
        )
    check_target(Path(os.path.abspath(output)), overwrite=overwrite)


def plan_export(checkpoint: Checkpoint, options: ExportOptions) -> PlannedExport:
    """Everything up to the first byte written: resolve the spec, build and check the graph."""
    return build_export(resolve_checkpoint(checkpoint, options), checkpoint, options)


def resolve_checkpoint(checkpoint: Checkpoint, options: ExportOptions) -> ResolvedModel:
    """Read a checkpoint's config through its spec."""
    path = checkpoint.path
    where = str(path / "config.json" if path.is_dir() else path)
    return resolve_model(
        checkpoint.config, where=where, ignored_config_keys=options.ignore_config_keys
    )


def build_export(
    model: ResolvedModel, checkpoint: Checkpoint, options: ExportOptions
) -> PlannedExport:
    """Build the graph of a resolved model over a checkpoint's tensors."""
    longest = model.plan.max_position_embeddings
    if options.context_length > longest:
        raise OptionError(
            f"--context-length {options.context_length}",
            f"the model's config gives it {longest:,} positions",
            expected=f"at most {longest}, or 0 for the model's own",
        )
    shapes = {name: info.shape for name, info in checkpoint.tensors.items()}
    graph = build_decoder_graph(
        model.plan,
        WeightMap(shapes, model.weights_specs, where=str(checkpoint.path)),
        options.plan_precision(),
        name=model.spec.model_type,
        attention_form=options.attention,
        all_positions=options.all_logits,
    )
    config = build_genai_config(
        model.plan,
        model_type=model.genai_model_type,
        config=model.text_config,
        generation_config=checkpoint.generation_config,
        context_length=options.context_length or _find_context_length(model.plan),
        share_buffer=graph.shares_cache_buffer,
        input_names=graph.input_names,
    )
    return PlannedExport(model, graph, config, options, estimate_size_bytes(graph))


def write_export(
    planned: PlannedExport,
    checkpoint: Checkpoint,
    output: str | Path,
    *,
    overwrite: bool = False,
    check_loading: bool = True,
    verification: str = "",
    progress: Progress | None = None,
    begin: float | None = None,
) -> ExportReport:
    """Write a planned export to a folder, and load it once in the runtime."""
    progress = progress or _Silent()
    begin = time.perf_counter() if begin is None else begin
    loading = 0.0
    loaded: Mapping[str, Any] = {}

    def load(folder: Path) -> Mapping[str, Any]:
        nonlocal loading, loaded
        start = time.perf_counter()
        progress.start("load once")
        loaded = _load(folder, check_loading, output=str(output))
        loading = time.perf_counter() - start
        return {key: loaded[key] for key in LOAD_OUTCOME if key in loaded}

    content = _describe_folder(planned, checkpoint, load, verification or NOT_ASKED)
    with new_folder(Path(output), overwrite=overwrite) as folder:
        progress.start("write", planned.weights_bytes)
        manifest = write_genai_folder(folder, content, checkpoint, progress.advance)
    seconds = time.perf_counter() - begin - loading
    return ExportReport(Path(output), planned, manifest, loaded, seconds)


def _describe_folder(
    planned: PlannedExport,
    checkpoint: Checkpoint,
    load: Callable[[Path], Mapping[str, Any]],
    verification: str,
) -> GenaiFolder:
    source = {"path": checkpoint.path.name, "model_type": planned.model.spec.model_type}
    options = planned.options.to_json()
    return GenaiFolder(planned.graph, planned.genai_config, source, options, load, verification)


def _find_context_length(plan: DecoderPlan) -> int:
    """Return the longest sequence that the runtime may reach.

    dynamic and longrope change all frequencies when a sequence passes the trained length, while
    cached keys keep the old ones; so by default a sequence ends there (docs/decisions/0005).
    """
    trained = [
        attention.rope.original_max_position_embeddings
        for attention in plan.attentions
        if attention.rope is not None and attention.rope.kind in ("dynamic", "longrope")
    ]
    return min([plan.max_position_embeddings, *(length for length in trained if length)])


def _load(folder: Path, wanted: bool, *, output: str) -> Mapping[str, Any]:
    """Load a folder once in the runtime; what isn't done is recorded with its reason.

    output: the name that it will have, for errors.
    """
    if not wanted:
        return {"status": "skipped", "reason": "switched off by the user"}
    report = load_once(folder)
    if report.status == "failed":
        raise RuntimeFolderError(
            output,
            f"onnxruntime-genai can't load what was written: {report.reason}",
            next_step="This is a fault of assay: please report it with the model's config.json. "
            "--no-load writes the folder all the same.",
        )
    return report.to_json()
