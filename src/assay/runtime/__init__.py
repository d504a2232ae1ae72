"""Run a finished folder: load it once, generate, bench, and tune its session options."""

from __future__ import annotations

from ._bench import BenchReport, bench
from ._folder import GenaiFolder, read_folder
from ._generate import Generation, LoadedModel, generate, open_model
from ._load_once import LoadReport, load_once
from ._machine import (
    Machine,
    describe_machine,
    read_available_bytes,
    release_freed_memory,
    wait_until_quiet,
)
from ._tune import TUNE_NAME, tune
from ._tune_report import TuneReport

__all__ = [
    "TUNE_NAME",
    "BenchReport",
    "GenaiFolder",
    "Generation",
    "LoadReport",
    "LoadedModel",
    "Machine",
    "TuneReport",
    "bench",
    "describe_machine",
    "generate",
    "load_once",
    "open_model",
    "read_available_bytes",
    "read_folder",
    "release_freed_memory",
    "tune",
    "wait_until_quiet",
]
