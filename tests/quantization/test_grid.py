"""The grid's options and the room that it asks for."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from assay.errors import OptionError
from assay.quantization import Grid, allocate_rows


# proves: B10
@pytest.mark.parametrize(
    ("bits", "group_size", "named"),
    [(2, 32, "4 or 8"), (3, 32, "4 or 8"), (4, 96, "16, 32, 64, 128 or 256"), (8, 0, "256")],
)
def test_impossible_grid_names_what_is_allowed(bits: int, group_size: int, named: str) -> None:
    with pytest.raises(OptionError, match=named):
        Grid(bits=bits, group_size=group_size, symmetric=True)


# proves: B10
def test_room_has_the_shapes_of_matmulnbits() -> None:
    # 100 inputs in groups of 32: 4 groups, the last of 4 inputs.
    four = allocate_rows(6, 100, Grid(bits=4, group_size=32, symmetric=False))
    assert four.packed.shape == (6, 4, 16)
    assert four.scales.shape == (6, 4)
    assert four.zero_points is not None
    assert four.zero_points.shape == (6, 2)
    eight = allocate_rows(6, 100, Grid(bits=8, group_size=32, symmetric=False))
    assert eight.packed.shape == (6, 4, 32)
    assert eight.zero_points is not None
    assert eight.zero_points.shape == (6, 4)
    assert allocate_rows(6, 65, Grid(bits=4, group_size=32, symmetric=True)).zero_points is None
    odd = allocate_rows(6, 65, Grid(bits=4, group_size=32, symmetric=False))
    assert odd.zero_points is not None
    assert odd.zero_points.shape == (6, 2)
    assert four.packed.dtype == np.uint8
    assert four.scales.dtype == np.float32


# proves: B12
def test_import_leaves_numba_and_onnxruntime_alone() -> None:
    program = (
        "import sys, assay.quantization as q;"
        "q.Grid(bits=4, group_size=32, symmetric=True);"
        "print(sorted({'numba', 'onnxruntime', 'onnx_ir', 'torch'} & set(sys.modules)));"
        # the control: first use does import numba
        "import numpy; q.convert_rows(numpy.ones((1, 1), 'f'), 'f');"
        "print('numba' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.split("\n")[:2] == ["[]", "True"]
