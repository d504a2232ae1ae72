"""Compiled kernels are kept on disk where that is possible, and work where it isn't."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import assay

PROGRAM = """
import numpy, assay, assay.quantization
half = assay.quantization.convert_rows(numpy.full(3, 0.1, "f"), "f2")
assert half.tolist() == [0.0999755859375] * 3
from assay.quantization import kernels
stats = kernels.narrow.stats
print(assay.__file__, sum(stats.cache_hits.values()), sum(stats.cache_misses.values()), sep="|")
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, with compiled kernels left behind."""
    copy = tmp_path / "site" / "assay"
    source = Path(assay.__file__).parent
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def run_program(package: Path, home: Path) -> tuple[int, int, str]:
    """Hits and misses of numba's cache in a fresh process, and what it wrote to stderr."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("NUMBA_", "XDG_", "PYTHON"))
    }
    environment |= {"HOME": str(home), "PYTHONPATH": str(package.parent)}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    place, hits, misses = result.stdout.strip().split("|")
    assert Path(place).parent == package
    return int(hits), int(misses), result.stderr


# proves: B12
def test_second_process_compiles_nothing(package: Path, tmp_path: Path) -> None:
    assert run_program(package, tmp_path)[:2] == (0, 1)
    assert run_program(package, tmp_path)[:2] == (1, 0)
    # The control: changed source is compiled anew, never answered from the cache.
    kernels = package / "quantization" / "kernels.py"
    kernels.write_text(kernels.read_text() + "\n")
    assert run_program(package, tmp_path)[:2] == (0, 1)


# proves: B12
def test_read_only_install_uses_the_users_cache(package: Path, tmp_path: Path) -> None:
    # A file in the way: unlike a mode, it stops root as well.
    (package / "quantization" / "__pycache__").touch()
    assert run_program(package, tmp_path) == (0, 1, "")
    assert run_program(package, tmp_path) == (1, 0, "")
    assert list((tmp_path / ".cache" / "numba").rglob("*.nbc"))


# proves: B12
def test_no_place_for_a_cache_still_works_and_says_so(package: Path, tmp_path: Path) -> None:
    (package / "quantization" / "__pycache__").touch()
    home = tmp_path / "home"
    home.touch()
    hits, misses, errors = run_program(package, home)
    assert (hits, misses) == (0, 1)
    assert errors.count("NUMBA_CACHE_DIR") == 1
