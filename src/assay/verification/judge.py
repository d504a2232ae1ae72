"""The judge: one folder, one reference, one verdict."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.errors import RuntimeFolderError
from assay.verification.candidate import open_candidate
from assay.verification.cost import measure_cost
from assay.verification.float_proof import judge_float32, measure_reference
from assay.verification.folder import ModelFolder, open_folder
from assay.verification.genai import generate_in_genai, has_genai, judge_generation
from assay.verification.half_proof import judge_float16, measure_half_reference
from assay.verification.layers import match_layers, report_layers, run_layers
from assay.verification.material import gather_prompts, limit_tokens
from assay.verification.other_references import (
    is_model_folder,
    load_saved_logits,
    run_folder,
    save_logits,
)
from assay.verification.prompts import build_prompts, load_tokenizer
from assay.verification.quantized_proof import judge_quantized
from assay.verification.reference import (
    ReferenceRun,
    find_window,
    load_reference,
    run_with_noise,
)
from assay.verification.text import find_end_ids, judge_text, load_reference_tokenizer
from assay.verification.verdict import Check, Verdict, reach_verdict
from assay.verification.without_weights import judge_without_weights

if TYPE_CHECKING:
    import torch

__all__ = ["verify_folder"]

Ids = npt.NDArray[np.int64]
Progress = Callable[[str], None]


def verify_folder(
    folder: str | Path,
    reference: str | Path,
    *,
    num_tokens: int = 800,
    num_greedy_tokens: int = 64,
    prompts: Sequence[str | Sequence[int]] | None = None,
    use_genai: bool = True,
    streamed: bool | None = None,
    device: str = "cpu",
    cost_runs: int = 0,
    save_to: str | Path | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Judge an ONNX decoder folder against a checkpoint run in PyTorch.

    reference: a checkpoint folder, a .gguf file or a hub id; or an .npz file of saved logits, or
    another ONNX folder. prompts: texts or ids instead of the built-in prompt. streamed: read the
    checkpoint a decoder layer at a time; None does so where memory demands it. device: where
    PyTorch computes. cost_runs: how often to measure speed and memory in onnxruntime-genai,
    each run a process; not judged. save_to: a file for the reference's logits. progress: called
    with a line before each stage.
    Raises RuntimeFolderError when the folder holds no decoder, DependencyError without torch,
    UnjudgedError when the reference can't be loaded.
    """
    tell = progress or (lambda line: None)
    opened = open_folder(folder)
    signature = opened.signature  # raises before the slow part
    assert signature.logits
    if Path(reference).suffix == ".npz" or is_model_folder(Path(reference)):
        return _verify_without_weights(opened, Path(reference), num_tokens, prompts, tell)
    tell("loading the reference")
    model = load_reference(reference, streamed=streamed, device=device)
    limit = limit_tokens(model, opened, num_tokens)
    material = gather_prompts(opened, model, reference, limit, prompts)
    checks: list[Check] = []
    if use_genai:
        tell("generating in onnxruntime-genai")
    checks += _check_runtime(
        opened, model, reference, material.opening, num_greedy_tokens if use_genai else 0
    )
    if save_to is not None:
        save_logits(save_to, run_with_noise(model, material.prompts[0]))
    for index, ids_S in enumerate(material.prompts):
        tell(f"judging {len(ids_S)} tokens")
        if index and opened.is_quantized:
            model = load_reference(
                reference, streamed=streamed
            )  # the first prompt put decoded weights in place
        found = [_demand_window(c, model) for c in _judge_prompt(opened, model, ids_S)]
        suffix = f" (prompt {index + 1})" if index else ""
        checks += [replace(check, name=check.name + suffix) for check in found]
    verdict = _conclude(opened, reference, checks, material.prompts, prompts)
    if cost_runs and use_genai and has_genai():
        tell("measuring speed and memory")
        verdict.evidence["cost"] = measure_cost(opened, cost_runs)
    return verdict


def _verify_without_weights(
    folder: ModelFolder,
    reference: Path,
    num_tokens: int,
    prompts: Sequence[str | Sequence[int]] | None,
    tell: Progress,
) -> Verdict:
    """Judge against saved logits or another folder's graph."""
    tell("reading the reference")
    if reference.suffix == ".npz":
        truths = [load_saved_logits(reference)]
    else:
        options: dict[str, Any] = {
            "vocab_size": _count_words(reference),
            "tokenizer": load_tokenizer(folder.path) or load_tokenizer(reference),
        }
        limit = folder.config.get("model", {}).get("context_length")
        most = min(num_tokens, limit) if isinstance(limit, int) and limit > 0 else num_tokens
        given = build_prompts(most, prompts=prompts, **options)
        truths = [run_folder(reference, ids_S) for ids_S in given]
    checks: list[Check] = []
    for index, truth in enumerate(truths):
        tell(f"judging {len(truth.prompt.ids_S)} tokens")
        suffix = f" (prompt {index + 1})" if index else ""
        try:
            found = judge_without_weights(folder, truth)
        except RuntimeFolderError as exc:
            found = [Check("loads", False, detail=str(exc), outcome="runtime_error")]
        checks += [replace(check, name=check.name + suffix) for check in found]
    return _conclude(folder, reference, checks, [t.prompt.ids_S for t in truths], prompts)


def _count_words(reference: Path) -> int:
    """The width of a folder's logits, told by a run."""
    logits = open_candidate(reference).prefill(np.asarray([1]))
    return int(logits.shape[-1])


def _conclude(
    folder: ModelFolder,
    reference: str | Path,
    checks: list[Check],
    ids: Sequence[Ids],
    given: Any,
) -> Verdict:
    checks, evidence = _gather_evidence(checks)
    evidence["prompts"] = [_describe_prompt(ids_S, given) for ids_S in ids]
    return reach_verdict(
        checks,
        folder=str(folder.path),
        reference=str(reference),
        precision=folder.precision + (" with packed weights" if folder.is_quantized else ""),
        evidence=evidence,
    )


def _gather_evidence(checks: list[Check]) -> tuple[list[Check], dict[str, Any]]:
    """Move tables out of the checks: positions of the folder as it is run, and layers."""
    evidence: dict[str, Any] = {}
    kept = []
    for check in checks:
        if "layers" in check.metrics:
            evidence.setdefault("layers", check.metrics["layers"])
            continue
        metrics = dict(check.metrics)
        table = metrics.pop("positions", None)
        if table is not None and check.name in ("prefill", "end_to_end_prefill"):
            limit = check.bound.get("rel_l2")
            if limit is None:
                table.pop("noise_rel_l2", None)  # of no meaning beside quantization
            evidence["positions"] = {"setting": check.name, "bound_rel_l2": limit, **table}
        kept.append(replace(check, metrics=metrics))
    return kept, evidence


def _describe_prompt(ids_S: Ids, given: Any) -> dict[str, Any]:
    digest = hashlib.sha256(ids_S.astype("<i8").tobytes()).hexdigest()
    return {
        "num_tokens": len(ids_S),
        "sha256": digest,
        "source": "user" if given else "built-in",
    }


def _demand_window(check: Check, model: torch.nn.Module) -> Check:
    """A window that a context reaches but the prompt didn't leaves the folder unjudged."""
    config: Any = model.config
    window = find_window(config)
    most = getattr(config.get_text_config(), "max_position_embeddings", 0)
    if not check.name.endswith("window") or check.passed is not None or not window:
        return check
    return replace(check, required=window < most)


def _check_runtime(
    folder: ModelFolder,
    model: torch.nn.Module,
    reference: str | Path,
    opening_S: Ids,
    num_tokens: int,
) -> list[Check]:
    """Generate in a child process and ask the reference about each token; then the text checks.

    num_tokens: 0 leaves the runtime out.
    """
    generation, checks = None, []
    if num_tokens and not has_genai():
        detail = "onnxruntime-genai isn't installed"
        checks.append(Check("genai", None, required=False, detail=detail))
    elif num_tokens:
        try:
            generation = generate_in_genai(folder.path, opening_S, num_tokens)
        except RuntimeFolderError as exc:
            checks.append(Check("genai", False, detail=str(exc), outcome="runtime_error"))
    if generation is not None:
        ids_S = np.concatenate([opening_S, generation.tokens_N])
        run = _run_reference(folder, model, ids_S)
        checks.append(judge_generation(generation, run, must_agree=not folder.is_quantized))
    tokenizer = load_reference_tokenizer(reference)
    spoken = generation.text if generation is not None else None
    rebuilt = Path(reference).suffix == ".gguf"
    found = judge_text(folder, tokenizer, find_end_ids(model), spoken, is_rebuilt=rebuilt)
    return [*checks, *found]


def _run_reference(folder: ModelFolder, model: torch.nn.Module, ids_S: Ids) -> ReferenceRun:
    """The reference on one sequence, with the noise of the folder's float type."""
    if folder.precision == "float32":
        return run_with_noise(model, ids_S)
    return measure_half_reference(model, ids_S, settings=()).truth.prompt


def _judge_prompt(folder: ModelFolder, model: torch.nn.Module, ids_S: Ids) -> list[Check]:
    """The proof that fits the folder's precision, and that its own graph ends as it should."""
    try:
        candidate = open_candidate(folder)
    except RuntimeFolderError as exc:
        return [Check("loads", False, detail=str(exc), outcome="runtime_error")]
    candidate.close()  # not in memory together with the reference's float64 run
    if folder.is_quantized:
        return judge_quantized(folder, model, ids_S)
    if folder.precision == "float32":
        checks = judge_float32(candidate, measure_reference(model, ids_S))
    else:
        checks = judge_float16(candidate, measure_half_reference(model, ids_S))
    layers = match_layers(candidate, ids_S, run_layers(model, ids_S))
    return [*checks, report_layers(layers)]
