"""What the tests of the main path and of the command line share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest


class Outcome(NamedTuple):
    """What a command gave back."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama's checkpoint; leave it as it is."""
    from tests.pipeline.tiny import write_llama

    return write_llama(tmp_path_factory.mktemp("checkpoint") / "tiny-llama")


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """An empty folder for outputs, so that a test sees whatever is left behind."""
    path = tmp_path / "room"
    path.mkdir()
    return path


@pytest.fixture
def assay_command(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """assay_command("export", "-m", ...) runs a command in this process."""
    from assay.cli import main

    def run(*arguments: object) -> Outcome:
        capfd.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as exc:  # argparse's own way out
            code = int(exc.code or 0)
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return run
