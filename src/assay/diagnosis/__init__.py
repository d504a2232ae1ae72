"""The doctor: why doesn't a folder compute what its checkpoint computes?

It shares no code with the builder, and reads any tool's folder.
"""

from __future__ import annotations

from assay.diagnosis.doctor import diagnose_folder
from assay.diagnosis.finding import Cause, Diagnosis
from assay.diagnosis.hypothesis import Hypothesis, Variant

__all__ = ["Cause", "Diagnosis", "Hypothesis", "Variant", "diagnose_folder"]
