"""The judge: does a folder on disk compute what its checkpoint computes?

It shares no code with the builder. torch and transformers are imported only when a reference is
run, onnxruntime only when a graph is.
"""

from __future__ import annotations

from assay.verification.candidate import Candidate, open_candidate
from assay.verification.float_proof import (
    FloatReference,
    bound_float32,
    judge_float32,
    measure_reference,
)
from assay.verification.judge import verify_folder
from assay.verification.reference import load_reference
from assay.verification.settings import SETTINGS
from assay.verification.verdict import Check, Verdict

__all__ = [
    "SETTINGS",
    "Candidate",
    "Check",
    "FloatReference",
    "Verdict",
    "bound_float32",
    "judge_float32",
    "load_reference",
    "measure_reference",
    "open_candidate",
    "verify_folder",
]
