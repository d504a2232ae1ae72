"""The command line: one module a verb; flags become one call."""

from assay.cli.main import main

__all__ = ["main"]
