"""References other than a checkpoint: saved logits, or another folder's graph.

Neither has weights to run in float64, so their noise isn't known unless it was saved with them;
then a float32 folder is held to the cap of the bound, and a quantized one to its end result.
Shapes: S tokens, V vocabulary.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.errors import RuntimeFolderError, UnjudgedError
from assay.verification.candidate import Candidate, open_candidate
from assay.verification.float_proof import MAX_REL_L2, NOISE_FACTOR, FloatReference
from assay.verification.folder import open_folder
from assay.verification.metrics import Noise
from assay.verification.reference import ReferenceRun
from assay.verification.settings import plan_rows

__all__ = ["is_model_folder", "load_saved_logits", "run_folder", "save_logits"]

Ids = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]

_MAX_ELEMENTS = 1 << 33


def is_model_folder(path: Path) -> bool:
    """Whether a path is a folder with an ONNX graph and without a checkpoint's weights."""
    if not path.is_dir() or any(path.glob("*.safetensors")):
        return False
    return (path / "genai_config.json").is_file() or any(path.glob("*.onnx"))


def save_logits(path: str | Path, run: ReferenceRun) -> None:
    """Write a reference run as .npz: input_ids [S], logits [S, V], and its noise.

    The file appears whole or not at all.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.part")
    try:
        with temporary.open("wb") as file:
            np.savez(
                file,
                input_ids=run.ids_S,
                logits=run.logits_SV,
                noise_error=run.noise.error_P,
                noise_norm=run.noise.norm_P,
                noise_max_abs=run.noise.max_abs_P,
            )
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def load_saved_logits(path: str | Path) -> FloatReference:
    """Read what `save_logits` wrote, or any .npz with input_ids [S] and logits [S, V].

    Batch rows are beginnings of the prompt: what follows doesn't change their logits.
    Raises UnjudgedError for a file of another kind; nothing pickled is read.
    """
    try:
        if not zipfile.is_zipfile(path):
            raise _refuse(str(path), "isn't an .npz archive")
        with np.load(path, allow_pickle=False) as arrays:
            _check_sizes(str(path), arrays)
            found = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as exc:
        raise _refuse(str(path), f"can't be read: {exc}") from exc
    ids, logits = found.get("input_ids"), found.get("logits")
    if ids is None or logits is None:
        raise _refuse(str(path), f"holds {', '.join(sorted(found)) or 'nothing'}")
    if (
        ids.ndim != 1
        or ids.dtype.kind != "i"
        or logits.ndim != 2
        or logits.dtype.kind != "f"
        or len(ids) != len(logits)
        or not np.isfinite(logits).all()
    ):
        raise _refuse(
            str(path), f"input_ids {ids.shape} {ids.dtype}, logits {logits.shape} {logits.dtype}"
        )
    logits_SV = np.asarray(logits, np.float32)
    keys = ("noise_error", "noise_norm", "noise_max_abs")
    noise = assume_noise(logits_SV)
    if all(key in found and found[key].shape == ids.shape for key in keys):
        noise = Noise(*(np.asarray(found[key], np.float64) for key in keys))
    whole = ReferenceRun(np.asarray(ids, np.int64), logits_SV, noise)
    count = len(ids)
    lengths = [n for n in (min(54, count), min(36, count), 8) if n <= count]
    rows = tuple(_cut(whole, n) for n in lengths) if count >= 16 else ()
    return FloatReference(whole, rows, None)


def run_folder(path: Path, ids_S: Ids) -> FloatReference:
    """Take another folder's graph as the reference: the prompt, and the rows of a batch.

    Raises UnjudgedError when it can't be run, or computes in less than float32.
    """
    folder = open_folder(path)
    if folder.precision != "float32":
        raise UnjudgedError(
            str(path),
            f"this folder computes in {folder.precision}",
            expected="a float32 folder as the reference",
        )
    candidate = open_candidate(folder)
    try:
        runs = [_run(candidate, ids) for ids in (ids_S, *plan_rows(ids_S, None))]
    except RuntimeFolderError as exc:
        raise UnjudgedError(str(path), f"the reference folder doesn't run: {exc.found}") from exc
    candidate.close()
    return FloatReference(runs[0], tuple(runs[1:]), None)


def assume_noise(logits_SV: Logits) -> Noise:
    """The noise for which the bound is its cap."""
    norm_S = np.square(logits_SV, dtype=np.float64).sum(1)
    relative = MAX_REL_L2 / NOISE_FACTOR
    largest = np.full(len(norm_S), relative * float(np.abs(logits_SV).max()))
    return Noise(norm_S * relative**2, norm_S, largest)


def _run(candidate: Candidate, ids_S: Ids) -> ReferenceRun:
    logits_SV = candidate.prefill(ids_S)
    return ReferenceRun(ids_S, logits_SV, assume_noise(logits_SV))


def _cut(run: ReferenceRun, length: int) -> ReferenceRun:
    noise = run.noise
    return ReferenceRun(
        run.ids_S[:length],
        run.logits_SV[:length],
        Noise(noise.error_P[:length], noise.norm_P[:length], noise.max_abs_P[:length]),
    )


def _check_sizes(where: str, arrays: Any) -> None:
    """Refuse an archive that would unpack to more than a reference ever needs."""
    total = sum(info.file_size for info in arrays.zip.infolist())
    if total > 4 * _MAX_ELEMENTS:
        raise _refuse(where, f"would unpack to {total:,} bytes")


def _refuse(where: str, found: str) -> UnjudgedError:
    return UnjudgedError(
        where,
        found,
        expected="an .npz file with input_ids [S] (integers) and logits [S, V] (finite floats)",
        next_step="`assay verify OUT -r MODEL --save-logits FILE` writes one.",
    )
