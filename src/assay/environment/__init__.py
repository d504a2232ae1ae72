"""What takes part in a run: interpreter, processor, packages, and where they come from.

At the bottom of the house: the standard library alone, so that it answers where packages are
broken. Nothing is imported to look at it; only `read_providers` runs onnxruntime, in a child.
"""

from assay.environment.providers import Providers, read_providers
from assay.environment.report import Environment, read_environment
from assay.environment.strays import Stray

__all__ = ["Environment", "Providers", "Stray", "read_environment", "read_providers"]
