"""Makes the tiny decoder reachable: tests run in importlib mode, without a path to siblings."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


def _load(name: str) -> ModuleType:
    qualified = f"_verification_{name}"
    if qualified not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            qualified, Path(__file__).with_name(f"{name}.py")
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[qualified] = module
        spec.loader.exec_module(module)
    return sys.modules[qualified]


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)  # tiny models: threads cost more than they give
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny() -> ModuleType:
    return _load("tiny_decoder")


@pytest.fixture(scope="session")
def ids():
    return np.random.default_rng(5).integers(3, 256, 800)


@pytest.fixture(scope="module")
def checkpoint(model, tmp_path_factory):
    """The module's own `model` as a checkpoint folder."""
    path = tmp_path_factory.mktemp("checkpoint")
    model.save_pretrained(path)
    return path


@pytest.fixture
def export(tiny, model, tmp_path):
    """Writes the module's `model` as a folder by hand; faults and options are arguments."""

    def write(name="out", **options):
        faults = {k: options.pop(k) for k in list(options) if k in tiny.Faults.__annotations__}
        return tiny.FolderWriter(model, tiny.Faults(**faults), **options).write(tmp_path / name)

    return write
