"""The folder in onnxruntime-genai: it loads, prefills and generates what the reference would."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.errors import RuntimeFolderError
from assay.verification.float_proof import NOISE_FACTOR
from assay.verification.metrics import compare_logits
from assay.verification.reference import ReferenceRun
from assay.verification.text import HARD_TEXTS, MESSAGES
from assay.verification.verdict import Check

__all__ = ["Generation", "generate_in_genai", "has_genai", "judge_generation"]

_CHILD = Path(__file__).with_name("genai_child.py")
_TIMEOUT_SECONDS = 1800

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Generation:
    """What onnxruntime-genai gave: logits [V] after the prompt, and the tokens that follow.

    text: what its tokenizer made of text.HARD_TEXTS and MESSAGES; None without one.
    """

    logits_V: npt.NDArray[np.float32]
    tokens_N: Ids
    text: dict[str, Any] | None = None


def has_genai() -> bool:
    """Whether onnxruntime-genai is installed; it isn't imported here."""
    return importlib.util.find_spec("onnxruntime_genai") is not None


def generate_in_genai(folder: Path, ids_S: Ids, num_tokens: int) -> Generation:
    """Greedy generation in a child process.

    Raises RuntimeFolderError with the child's last words when it fails, crashes or hangs.
    """
    with tempfile.TemporaryDirectory(prefix="assay-genai-") as room:
        output = Path(room) / "generation.npz"
        request = {
            "folder": str(folder.resolve()),
            "ids": [int(i) for i in ids_S],
            "num_tokens": num_tokens,
            "output": str(output),
            "texts": HARD_TEXTS,
            "messages": MESSAGES,
        }
        try:
            child = subprocess.run(
                [sys.executable, str(_CHILD)],
                input=json.dumps(request),
                cwd=room,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as exc:
            raise RuntimeFolderError(
                str(folder), f"onnxruntime-genai didn't finish in {_TIMEOUT_SECONDS} s"
            ) from exc
        if child.returncode or not output.is_file():
            last_words = "\n".join(child.stderr.strip().splitlines()[-4:])
            raise RuntimeFolderError(
                str(folder),
                f"onnxruntime-genai ended with code {child.returncode}: {last_words}",
                next_step="The folder can't be run there as it is.",
            )
        with np.load(output) as arrays:
            text = json.loads(str(arrays["text"]))
            return Generation(arrays["logits"], arrays["tokens"].astype(np.int64), text)


def judge_generation(generation: Generation, run: ReferenceRun, *, must_agree: bool) -> Check:
    """Hold each generated token against the reference's own choice at that point.

    run: the reference on prompt and generated tokens together. Up to the first difference its
    choices are its own greedy text; after it they are what it would say next. A different token
    is accepted only where the reference's margin is within the noise there (twice NOISE_FACTOR
    times the noise of a logit).
    must_agree: False for quantized folders, whose text may part from the original's; then the
    agreement is only reported.
    """
    tokens_N = generation.tokens_N
    num_tokens = len(tokens_N)
    if not num_tokens:
        return Check("genai", False, detail="it generated no token")
    logits_NV = run.logits_SV[-num_tokens - 1 : -1]
    noise_N = run.noise.max_abs_P[-num_tokens - 1 : -1]
    noise_N = np.maximum(noise_N, noise_N.mean())  # low by chance at single tokens
    margins_N = logits_NV.max(1) - logits_NV[np.arange(num_tokens), tokens_N]
    beyond_N = np.flatnonzero(margins_N > 2 * NOISE_FACTOR * noise_N)
    first = compare_logits(generation.logits_V[None], logits_NV[:1])
    passed = first.finite and (not must_agree or not len(beyond_N))
    return Check(
        "genai",
        passed,
        metrics={
            "num_tokens": num_tokens,
            "num_agreeing": int((margins_N <= 0).sum()),
            "num_beyond_noise": len(beyond_N),
            "prefill_rel_l2": first.rel_l2,
            "prefill_corr": first.corr,
            "tokens": [int(t) for t in tokens_N],
        },
        detail=_tell_parting(margins_N, noise_N if must_agree else None),
    )


def _tell_parting(margins_N: Floats, noise_N: Floats | None) -> str:
    """Where the text first parts from the reference's, and how sure the reference is there."""
    parted_N = np.flatnonzero(margins_N > 0)
    if not len(parted_N):
        return ""
    step = int(parted_N[0])
    told = f"parts from the reference at token {step}, where that leads by {margins_N[step]:.3g}"
    if noise_N is None:
        return told
    return f"{told} (noise allows {2 * NOISE_FACTOR * noise_N[step]:.3g})"
