"""The doctor: from a folder and its checkpoint to causes.

Stored weights first, by value; then the graph, segment by segment: the reference reads the folder's
own stream in every layer, and the change of it under which a layer gives the folder's own numbers
is that layer's cause. Float before quantization: a quantized folder's decoded weights are put into
the reference, so that what rounding costs is never taken for a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from assay.diagnosis.alignment import Alignment
from assay.diagnosis.cache import examine_cache
from assay.diagnosis.causes import CATALOGUE
from assay.diagnosis.finding import Cause, Diagnosis, Health
from assay.diagnosis.isolation import Isolation, Streams
from assay.diagnosis.naming import name_causes
from assay.diagnosis.search import search
from assay.diagnosis.stored_weights import examine_order, examine_weights
from assay.diagnosis.vectors import describe_vectors
from assay.errors import RuntimeFolderError
from assay.verification.candidate import Candidate, open_candidate
from assay.verification.float_proof import judge_float32, measure_reference
from assay.verification.folder import ModelFolder, open_folder
from assay.verification.layers import LayerAgreement, run_layers
from assay.verification.material import gather_prompts, limit_tokens
from assay.verification.metrics import relative_l2
from assay.verification.reference import find_window, load_reference, run_logits

if TYPE_CHECKING:
    import torch

__all__ = ["diagnose_folder"]

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
_NUM_TOKENS = 96
_PAST_WINDOW = 24
_LAYER_PARTS = 30.0  # times the bound at which a layer's stream counts as parted


def diagnose_folder(
    folder: str | Path,
    reference: str | Path,
    *,
    num_tokens: int = _NUM_TOKENS,
    progress: Callable[[str], None] | None = None,
) -> Diagnosis:
    """Find out why a folder doesn't compute what its checkpoint computes.

    reference: a checkpoint folder, a .gguf file or a hub id. num_tokens: of the prompt; more where
    a sliding window needs it. Raises RuntimeFolderError where there is no decoder to look at,
    UnjudgedError where the reference can't be loaded.
    """
    tell = progress or (lambda line: None)
    opened = open_folder(folder)
    assert opened.signature.logits
    tell("loading the reference")
    model = load_reference(reference, streamed=False)
    try:
        candidate = open_candidate(opened, accuracy_level=0 if opened.is_quantized else None)
        ids_S = _choose_ids(opened, model, reference, num_tokens)
        logits_SV = candidate.prefill(ids_S)
    except RuntimeFolderError as exc:
        cause = Cause(
            id="does_not_run",
            place=exc.where,
            confidence=1.0,
            evidence=exc.found,
            fix=exc.next_step or "export the model again, or report it to its tool",
        )
        return _tell_broken(cause, str(folder), str(reference))
    original = run_layers(model, ids_S)
    error = relative_l2(logits_SV, run_logits(model, ids_S))
    tell("holding the weights against the checkpoint's")
    alignment = Alignment(candidate, model)
    causes, notes, order = examine_weights(alignment, model)
    causes += examine_order(alignment, model)
    if not alignment.streams:
        notes.append("the layers can't be told apart: the model is looked at as a whole")
    streams = Streams(ids_S, alignment.read_streams(candidate, ids_S), logits_SV)
    candidate.close()
    names = [alignment.layers[layer] for layer in alignment.order]
    isolation = Isolation(model, streams, opened.precision, names)
    result = search(isolation, (*CATALOGUE, order, describe_vectors(alignment)), tell=tell)
    everything = (*causes, *name_causes(result.explained, isolation))
    explained = not result.unexplained
    everything += tuple(examine_cache(candidate, alignment, isolation, result))
    if not everything and explained:
        everything = tuple(_examine_other_settings(opened, candidate, model, ids_S))
    layers = _compare_layers(alignment, streams, original)
    return Diagnosis(
        health=_tell_health(everything, explained),
        causes=everything,
        error=error,
        left=max((float(result.errors[k]) for k in result.unexplained), default=0.0),
        bound=float(isolation.bounds[-1]),
        first_bad_layer=_find_first_bad(layers, float(isolation.bounds.max())),
        ruled_out=tuple(result.ruled_out),
        notes=tuple(
            notes + [_tell_open(isolation, k, result.errors[k]) for k in result.unexplained]
        ),
        layers=tuple(asdict(layer) for layer in layers),
        folder=str(folder),
        reference=str(reference),
    )


def _tell_open(isolation: Isolation, segment: int, error: float) -> str:
    return (
        f"an error enters in {isolation.names[segment]} (relL2 {error:.3g}, rounding explains "
        f"{isolation.bounds[segment]:.3g}) that no known cause explains"
    )


def _compare_layers(
    alignment: Alignment, streams: Streams, original: dict[str, Array]
) -> list[LayerAgreement]:
    """The folder's stream after each layer against the checkpoint's own."""
    found = []
    for layer, separator, stream in zip(
        alignment.order, alignment.streams[1:], streams.streams_SH[1:], strict=True
    ):
        name = alignment.layers[layer]
        own = original[name]
        part = stream[: len(own)]
        corr = float(np.corrcoef(part.ravel(), own.ravel())[0, 1])
        found.append(LayerAgreement(name, separator.values[0], relative_l2(part, own), corr))
    return found


def _tell_broken(cause: Cause, folder: str, reference: str) -> Diagnosis:
    nan = float("nan")
    return Diagnosis(
        health="explained",
        folder=folder,
        reference=reference,
        causes=(cause,),
        error=nan,
        left=nan,
        bound=nan,
    )


def _tell_health(causes: tuple[Cause, ...], explained: bool) -> Health:
    if not explained:
        return "partly_explained" if causes else "unexplained"
    return "explained" if causes else "healthy"


def _choose_ids(
    folder: ModelFolder, model: torch.nn.Module, reference: str | Path, num_tokens: int
) -> Ids:
    window = find_window(model.config) or 0
    wanted = max(num_tokens, window + _PAST_WINDOW if window < 1024 else 0)
    limit = limit_tokens(model, folder, wanted)
    return gather_prompts(folder, model, reference, min(limit, wanted), None).prompts[0]


def _examine_other_settings(
    folder: ModelFolder, candidate: Candidate, model: torch.nn.Module, ids_S: Ids
) -> list[Cause]:
    """A prefill that is right says nothing of the cache and of padding."""
    if folder.precision != "float32":
        return []
    checks = {c.name: c for c in judge_float32(candidate, measure_reference(model, ids_S))}
    for name, (cause, place, fix) in _SETTINGS.items():
        check = checks.get(name)
        if check is not None and check.passed is False:
            relative = check.metrics.get("rel_l2", float("nan"))
            evidence = f"{name}: relL2 {relative:.3g} ({check.detail}), a prefill is right"
            found = Cause(id=cause, place=place, confidence=0.9, evidence=evidence, fix=fix)
            return [found]
    return []


# What fails while a prefill is right: cause, place, fix. The first that fails speaks.
_SETTINGS = {
    "decode": (
        "cache",
        "past_key_values",
        "return each layer's keys and values, and read them back in the same slot and order",
    ),
    "window": (
        "window_in_decode",
        "past_key_values",
        "apply the window to cached keys too: count from the query's own slot",
    ),
    "left_padded_batch": (
        "left_padding",
        "attention_mask",
        "mask padded slots, and count positions from each row's first token",
    ),
    "as_shipped": ("last_position", "lm_head", "gather the last position, not another one"),
}


def _find_first_bad(layers: list[LayerAgreement], bound: float) -> str:
    return next((layer.name for layer in layers if layer.rel_l2 > _LAYER_PARTS * bound), "")
