"""The judge: one folder, one reference, one verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.errors import RuntimeFolderError, UnjudgedError
from assay.verification.candidate import open_candidate
from assay.verification.float_proof import judge_float32, measure_reference
from assay.verification.folder import ModelFolder, open_folder
from assay.verification.genai import generate_in_genai, has_genai, judge_generation
from assay.verification.half_proof import judge_float16, measure_half_reference
from assay.verification.prompts import build_opening, build_prompts, load_tokenizer
from assay.verification.quantized_proof import judge_quantized
from assay.verification.reference import (
    ReferenceRun,
    find_window,
    load_reference,
    run_with_noise,
)
from assay.verification.verdict import Check, Verdict, reach_verdict

if TYPE_CHECKING:
    import torch

__all__ = ["verify_folder"]

Ids = npt.NDArray[np.int64]
Progress = Callable[[str], None]

_PAST_WINDOW = 32  # tokens beyond a sliding window that make it show
_MAX_SCORE_BYTES = 4 << 30


def verify_folder(
    folder: str | Path,
    reference: str | Path,
    *,
    num_tokens: int = 800,
    num_greedy_tokens: int = 64,
    prompts: Sequence[str | Sequence[int]] | None = None,
    use_genai: bool = True,
    progress: Progress | None = None,
) -> Verdict:
    """Judge an ONNX decoder folder against a checkpoint run in PyTorch.

    reference: a checkpoint folder, a .gguf file or a hub id. prompts: texts or ids instead of
    the built-in prompt. progress: called with a line before each stage.
    Raises RuntimeFolderError when the folder holds no decoder, DependencyError without torch,
    UnjudgedError when the reference can't be loaded.
    """
    tell = progress or (lambda line: None)
    opened = open_folder(folder)
    signature = opened.signature  # raises before the slow part
    assert signature.logits
    tell("loading the reference")
    model = load_reference(reference)
    limit = _limit_tokens(model, opened, num_tokens)
    material = _gather_prompts(opened, model, reference, limit, prompts)
    checks: list[Check] = []
    if use_genai:
        tell("generating in onnxruntime-genai")
        checks.append(_check_genai(opened, model, material.opening, num_greedy_tokens))
    for index, ids_S in enumerate(material.prompts):
        tell(f"judging {len(ids_S)} tokens")
        if index and opened.is_quantized:
            model = load_reference(reference)  # the first prompt put decoded weights in place
        found = [_demand_window(c, model) for c in _judge_prompt(opened, model, ids_S)]
        suffix = f" (prompt {index + 1})" if index else ""
        checks += [replace(check, name=check.name + suffix) for check in found]
    precision = opened.precision + (" with packed weights" if opened.is_quantized else "")
    return reach_verdict(checks, folder=str(folder), reference=str(reference), precision=precision)


@dataclass(frozen=True)
class _Material:
    prompts: list[Ids]
    opening: Ids


def _gather_prompts(
    folder: ModelFolder,
    model: torch.nn.Module,
    reference: str | Path,
    num_tokens: int,
    prompts: Sequence[str | Sequence[int]] | None,
) -> _Material:
    tokenizer = load_tokenizer(folder.path) or load_tokenizer(Path(reference))
    config: Any = model.config
    vocab_size = config.get_text_config().vocab_size
    special = _special_ids(folder, config)
    options: dict[str, Any] = {"vocab_size": vocab_size, "tokenizer": tokenizer, "avoid": special}
    if tokenizer is not None and tokenizer.get_vocab_size() > vocab_size:
        options["tokenizer"] = None  # it belongs to another model, or the words don't fit
    return _Material(
        build_prompts(num_tokens, prompts=prompts, **options), build_opening(**options)
    )


def _special_ids(folder: ModelFolder, config: Any) -> list[int]:
    """bos, eos and pad of the folder and the reference."""
    found: list[int] = []
    for source in (folder.config.get("model", {}), config.get_text_config().to_dict()):
        for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
            value = source.get(key)
            found += value if isinstance(value, list) else [value]
    return [i for i in found if isinstance(i, int)]


def _limit_tokens(model: torch.nn.Module, folder: ModelFolder, num_tokens: int) -> int:
    """The prompt's length: past the window if that can be, within what model and folder hold.

    dynamic and longrope scaling change their frequencies past the original length, so a cached
    decode that crosses it equals no full forward; the judge stays below.
    """
    config: Any = model.config
    text = config.get_text_config()
    limits = [
        getattr(text, "max_position_embeddings", None),
        getattr(text, "n_positions", None),
        folder.config.get("model", {}).get("context_length"),
    ]
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    kind = rope.get("rope_type", rope.get("type"))
    if kind in ("dynamic", "longrope", "su"):
        original = rope.get("original_max_position_embeddings") or getattr(
            text, "original_max_position_embeddings", None
        )
        limits.append(original or getattr(text, "max_position_embeddings", None))
    most = min(
        (value for value in limits if isinstance(value, int) and value > 0), default=num_tokens
    )
    window = find_window(config) or 0
    wanted = num_tokens
    if num_tokens < window + _PAST_WINDOW <= most:
        scores = 3 * 8 * text.num_attention_heads * (window + _PAST_WINDOW) ** 2  # float64, eager
        wanted = window + _PAST_WINDOW if scores <= _MAX_SCORE_BYTES else num_tokens
    limit = min(most, wanted)
    if limit < 8:
        raise UnjudgedError(
            "num_tokens", f"{limit} tokens are too few to judge on", expected="at least 8"
        )
    return limit


def _demand_window(check: Check, model: torch.nn.Module) -> Check:
    """A window that a context reaches but the prompt didn't leaves the folder unjudged."""
    config: Any = model.config
    window = find_window(config)
    most = getattr(config.get_text_config(), "max_position_embeddings", 0)
    if not check.name.endswith("window") or check.passed is not None or not window:
        return check
    return replace(check, required=window < most)


def _check_genai(
    folder: ModelFolder, model: torch.nn.Module, opening_S: Ids, num_tokens: int
) -> Check:
    """Load and generate in a child process, then ask the reference about each token."""
    if not has_genai():
        return Check("genai", None, required=False, detail="onnxruntime-genai isn't installed")
    try:
        generation = generate_in_genai(folder.path, opening_S, num_tokens)
    except RuntimeFolderError as exc:
        return Check("genai", False, detail=str(exc), outcome="runtime_error")
    ids_S = np.concatenate([opening_S, generation.tokens_N])
    must_agree = not folder.is_quantized
    run = _run_reference(folder, model, ids_S)
    return judge_generation(generation, run, must_agree=must_agree)


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
        return judge_float32(candidate, measure_reference(model, ids_S))
    return judge_float16(candidate, measure_half_reference(model, ids_S))
