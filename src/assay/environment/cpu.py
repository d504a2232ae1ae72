"""The processor's name and the vector extensions that decide which kernels run."""

from __future__ import annotations

import os
import platform
from pathlib import Path

__all__ = ["parse_cpu_features", "parse_processor", "read_cpuinfo"]

# The kernel's flag: our name. Only what onnxruntime's CPU kernels choose by.
_X86 = (
    "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni",
    "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
)  # fmt: skip
_ARM = {
    "asimd": "neon",
    "asimdhp": "fp16",
    "asimddp": "dotprod",
    "i8mm": "i8mm",
    "bf16": "bf16",
    "sve": "sve",
    "sve2": "sve2",
    "sme": "sme",
}
_NAMES = {**{flag: flag for flag in _X86}, **_ARM}


def read_cpuinfo() -> str:
    """Linux's /proc/cpuinfo, or "" where there is none."""
    file = Path("/proc/cpuinfo")
    return file.read_text(errors="replace") if os.access(file, os.R_OK) else ""


def parse_cpu_features(cpuinfo: str) -> tuple[str, ...] | None:
    """Vector extensions of the first processor; None where the text doesn't list any flags.

    x86 lists `flags`, ARM `Features`, whose asimd is neon and asimddp dotprod.
    """
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            flags = set(value.split())
            return tuple(name for flag, name in _NAMES.items() if flag in flags)
    return None


def parse_processor(cpuinfo: str) -> str:
    """The model's name; the architecture where the text doesn't tell."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Hardware") and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()
