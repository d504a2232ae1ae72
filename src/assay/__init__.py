"""assay: a Hugging Face language model in, a verified runtime folder out."""

from __future__ import annotations

__version__ = "0.1.0"
