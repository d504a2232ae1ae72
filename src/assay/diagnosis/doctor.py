"""The doctor: from a folder and its checkpoint to causes.

Stored weights first, by value; then the graph, segment by segment: the reference reads the folder's
own stream in every layer, and the change of it under which a layer gives the folder's own numbers
is that layer's cause. Float before quantization: a quantized folder's decoded weights are put into
the reference, so that what rounding costs is never taken for a fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from assay.diagnosis.alignment import Alignment
from assay.diagnosis.cache import examine_cache
from assay.diagnosis.causes import CATALOGUE
from assay.diagnosis.finding import Cause, Diagnosis, Entry, Health, LayerFinding, merge_causes
from assay.diagnosis.folder_causes import examine_files, examine_graph_file
from assay.diagnosis.hypothesis import Hypothesis
from assay.diagnosis.isolation import NUM_LOGITS, Isolation, Streams, run_last_logits
from assay.diagnosis.loss import measure_loss
from assay.diagnosis.naming import name_causes
from assay.diagnosis.overflow import find_overflow
from assay.diagnosis.search import SearchResult, search
from assay.diagnosis.settings import examine_settings
from assay.diagnosis.stored_weights import examine_order, examine_weights
from assay.diagnosis.unknown import describe_entry
from assay.diagnosis.vectors import describe_vectors
from assay.errors import RuntimeFolderError
from assay.runtime import release_freed_memory
from assay.verification.candidate import Candidate, open_candidate
from assay.verification.folder import ModelFolder, open_folder
from assay.verification.layers import run_layers
from assay.verification.material import gather_prompts, limit_tokens
from assay.verification.metrics import relative_l2
from assay.verification.reference import find_window, load_reference

if TYPE_CHECKING:
    import torch

__all__ = ["diagnose_folder"]

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
_NUM_TOKENS = 96
_PAST_WINDOW = 24
# With one of these there is no graph to look at.
NO_TEXT = frozenset({"tokenizer_missing", "tokenizer_unreadable"})
UNUSABLE = frozenset({"graph_missing", "graph_unreadable", "config_unreadable", "config_filename"})


def diagnose_folder(
    folder: str | Path,
    reference: str | Path,
    *,
    num_tokens: int = _NUM_TOKENS,
    save_case: str | Path | None = None,
    more_causes: Sequence[Hypothesis] = (),
    progress: Callable[[str], None] | None = None,
) -> Diagnosis:
    """Find out why a folder doesn't compute what its checkpoint computes.

    reference: a checkpoint folder, a .gguf file or a hub id. num_tokens: of the prompt; more where
    a sliding window needs it. save_case: a new folder for the smallest model that shows an error
    of unknown cause. more_causes: hypotheses beside the catalogue's. Raises RuntimeFolderError
    where there is no decoder to look at, UnjudgedError where the reference can't be loaded.
    """
    tell = progress or (lambda line: None)
    names = str(folder), str(reference)
    # Where there is no folder at all, opening it says what to give.
    broken = examine_graph_file(Path(folder)) if Path(folder).exists() else []
    if any(cause.id in UNUSABLE for cause in broken):
        return _tell_broken(broken, *names)
    opened = open_folder(folder)
    tell("loading the reference")
    model = load_reference(reference, streamed=False, own_reader=True)
    causes, notes = examine_files(opened, Path(reference), model)
    try:
        assert opened.signature.logits
    except RuntimeFolderError:
        if not causes:  # a graph that the doctor can't feed, and no cause of it
            raise
        return _tell_broken([*broken, *causes], *names)
    try:
        reads_text = not any(cause.id in NO_TEXT for cause in causes)
        ids_S = _choose_ids(opened, model, reference if reads_text else None, num_tokens)
        release_freed_memory()  # of two tokenizers
        level = 0 if opened.is_quantized else None
        candidate = open_candidate(opened, accuracy_level=level, last_positions=NUM_LOGITS)
        logits_SV = candidate.prefill(ids_S)[-NUM_LOGITS:].copy()
        candidate.close()
    except RuntimeFolderError as exc:
        precise = broken or examine_graph_file(Path(folder), refused=exc.found)
        return _tell_broken([*(precise or [_name_error(exc)]), *causes], *names)
    case = None if save_case is None else Path(save_case)
    beside = [*broken, *causes]
    examination = _Examination(
        candidate, model, ids_S, logits_SV, tell, beside, notes, tuple(more_causes)
    )
    return examination.run(case, *names)


@dataclass
class _Examination:
    """One folder, from its weights to its causes; the model changes on the way."""

    candidate: Candidate
    model: torch.nn.Module
    ids_S: Ids
    logits_SV: Array
    tell: Callable[[str], None]
    beside: list[Cause]  # of the folder's files
    notes: list[str]
    more_causes: tuple[Hypothesis, ...]
    causes: list[Cause] = field(default_factory=list)

    def run(self, save_case: Path | None, folder: str, reference: str) -> Diagnosis:
        """The whole way; the causes in the order in which they are found."""
        original = run_layers(self.model, self.ids_S)
        own_SV = run_last_logits(self.model, self.ids_S, len(self.logits_SV))
        self.tell("holding the weights against the checkpoint's")
        alignment = Alignment(self.candidate, self.model)
        loss = measure_loss(alignment, self.logits_SV, self.ids_S, own_SV)
        self.causes, notes, order = examine_weights(alignment, self.model)
        self.notes += notes
        self.causes += examine_order(alignment, self.model)
        isolation = self._isolate(alignment)
        catalogue = (*CATALOGUE, *self.more_causes, order, describe_vectors(alignment))
        result = search(isolation, catalogue, tell=self.tell)
        self.causes += name_causes(result.explained, isolation)
        self.causes += examine_cache(self.candidate, alignment, isolation, result)
        if not self.causes and not result.unexplained:
            level = self.candidate.accuracy_level
            whole = open_candidate(self.candidate.folder, accuracy_level=level)
            self.causes += examine_settings(whole, self.model, self.ids_S)
        entries = self._describe_entries(alignment, isolation, result, save_case)
        if overflow := find_overflow(self.candidate.folder.precision, isolation):
            self.causes = [overflow]
            entries = []
        causes = [*merge_causes(self.causes, alignment.layers), *self.beside]
        return Diagnosis(
            health=_tell_health(bool(causes), bool(result.unexplained)),
            causes=tuple(causes),
            error=relative_l2(self.logits_SV, own_SV),
            bound=float(isolation.bounds[-1]),
            entries=tuple(entries),
            ruled_out=tuple(result.ruled_out),
            notes=tuple(self.notes),
            layers=tuple(_list_layers(alignment, isolation, result, original)),
            loss=None if causes or result.unexplained else loss,
            folder=folder,
            reference=reference,
        )

    def _isolate(self, alignment: Alignment) -> Isolation:
        if not alignment.streams:
            self.notes.append("the layers can't be told apart: the model is looked at as a whole")
        found = alignment.read_streams(self.candidate, self.ids_S)
        self.candidate.close()
        names = [alignment.layers[layer] for layer in alignment.order]
        streams = Streams(self.ids_S, found, self.logits_SV)
        return Isolation(self.model, streams, self.candidate.folder.precision, names)

    def _describe_entries(
        self,
        alignment: Alignment,
        isolation: Isolation,
        result: SearchResult,
        save_case: Path | None,
    ) -> list[Entry]:
        entries: list[Entry] = []
        for segment in result.unexplained:
            error = float(result.errors[segment])
            saved = None if entries else save_case  # the first is enough
            entries.append(
                describe_entry(self.candidate, alignment, isolation, segment, error, saved)
            )
        return entries


def _tell_broken(causes: list[Cause], folder: str, reference: str) -> Diagnosis:
    return Diagnosis(health="explained", folder=folder, reference=reference, causes=tuple(causes))


def _name_error(error: RuntimeFolderError) -> Cause:
    """What the runtime says, at the node that it names."""
    node = re.search(r"Name:'([^']+)'|Node ?[(:]\s*\"?([^,\")]+)|node \(([^)]+)\)", error.found)
    named = next((name for name in node.groups() if name), "") if node else ""
    return Cause(
        id="does_not_run",
        place=named or error.where,
        confidence=1.0,
        evidence=error.found,
        fix=error.next_step or "export the model again, or report it to its tool",
    )


def _tell_health(has_causes: bool, has_unexplained: bool) -> Health:
    if has_unexplained:
        return "partly_explained" if has_causes else "unexplained"
    return "explained" if has_causes else "healthy"


def _list_layers(
    alignment: Alignment, isolation: Isolation, result: SearchResult, original: dict[str, Array]
) -> list[LayerFinding]:
    """Each layer's stream against the checkpoint's own, and its own error by itself."""
    found = []
    streams = isolation.streams.streams_SH[1:]
    for place, (layer, stream) in enumerate(zip(alignment.order, streams, strict=True)):
        own = original[alignment.layers[layer]]
        part = stream[: len(own)]
        found.append(
            LayerFinding(
                name=alignment.layers[layer],
                value=alignment.streams[place + 1].values[0],
                rel_l2=relative_l2(part, own),
                corr=float(np.corrcoef(part.ravel(), own.ravel())[0, 1]),
                own_rel_l2=float(result.errors[place + 1]),
                bound=float(isolation.bounds[place + 1]),
            )
        )
    return found


def _choose_ids(
    folder: ModelFolder, model: torch.nn.Module, reference: str | Path | None, num_tokens: int
) -> Ids:
    """The prompt: text where the folder can read it, else seeded ids (reference None)."""
    window = find_window(model.config) or 0
    wanted = max(num_tokens, window + _PAST_WINDOW if window < 1024 else 0)
    length = min(limit_tokens(model, folder, wanted), wanted)
    if reference is not None:
        return gather_prompts(folder, model, reference, length, None).prompts[0]
    size = model.config.get_text_config().vocab_size  # type: ignore[union-attr,operator]
    return np.random.default_rng(0).integers(min(3, size - 1), size, length)
