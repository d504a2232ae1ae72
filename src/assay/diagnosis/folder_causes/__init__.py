"""Faults that no logits show, and those that keep a graph from running: the files themselves."""

from __future__ import annotations

from assay.diagnosis.folder_causes.examine import examine_files, examine_graph_file
from assay.diagnosis.folder_causes.table import FOLDER_CAUSES

__all__ = ["FOLDER_CAUSES", "examine_files", "examine_graph_file"]
