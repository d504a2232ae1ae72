"""Who may import whom: the contracts hold, and each one fails when it is broken."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
LINTER = Path(sys.executable).parent / "lint-imports"

LAYERS = "A room imports only rooms below it"
JUDGE = "The judge shares no code with the builder"
TORCH = "torch and transformers only where a reference is run"
MODELS = "Model folders never import each other"
DATA = "Specs are data"


@dataclass(frozen=True)
class Plant:
    """A line added to a module, and the contract that it breaks."""

    module: str
    line: str
    contract: str

    @property
    def id(self) -> str:
        """As pytest shows it."""
        return f"{self.module.removesuffix('.py')}: {self.line.split()[-1]}"


PLANTS = [
    Plant("spec/rules.py", "import torch", TORCH),
    Plant("models/llama/specs.py", "import torch", TORCH),
    Plant("checkpoint/_open.py", "from transformers import AutoConfig", TORCH),
    Plant("quantization/_rows.py", "import torch", TORCH),
    Plant("writers/folder.py", "import accelerate", TORCH),
    Plant("runtime/_generate.py", "def late():\n    from transformers import AutoTokenizer", TORCH),
    Plant("pipeline.py", "import torch.nn", TORCH),
    Plant("cli/export.py", "import torch", TORCH),
    Plant("verification/metrics.py", "from assay.graph import ExportOptions", JUDGE),
    Plant("verification/weights.py", "from assay.quantization import Grid", JUDGE),
    Plant("verification/judge.py", "import assay.models", JUDGE),
    Plant("verification/judge.py", "from assay.blocks import rope_tables", JUDGE),
    Plant("verification/folder.py", "import assay.writers.onnx_genai", JUDGE),
    Plant("models/llama/specs.py", "from assay.models.gemma import specs", MODELS),
    Plant("runtime/_load_once.py", "import assay.writers", LAYERS),
    Plant("checkpoint/_open.py", "from assay.spec import get_spec", LAYERS),
    Plant("errors.py", "import assay.version", LAYERS),
    Plant("environment/report.py", "import assay.runtime", LAYERS),
    Plant("environment/packages.py", "import assay.checkpoint", LAYERS),
    Plant("blocks/rope.py", "import assay.models.llama.specs", LAYERS),
    Plant("writers/folder.py", "from assay.pipeline import export", LAYERS),
    Plant("spec/rope.py", "import numpy", DATA),
    Plant("models/gpt2/specs.py", "import onnx_ir", DATA),
]


def copy_project(folder: Path) -> Path:
    """The sources and the contracts, to be broken."""
    ignore = shutil.ignore_patterns("__pycache__", "*.txt")
    shutil.copytree(REPOSITORY / "src", folder / "src", ignore=ignore)
    shutil.copyfile(REPOSITORY / "pyproject.toml", folder / "pyproject.toml")
    return folder


def lint(folder: Path) -> tuple[int, dict[str, bool]]:
    """Run the linter on a copy: its exit code, and which contracts are kept."""
    done = subprocess.run(
        [str(LINTER), "--no-cache", "--no-logo"],
        cwd=folder,
        env={"PYTHONPATH": str(folder / "src"), "PATH": ""},
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    assert any("Analyzed" in line for line in lines), done.stdout + done.stderr
    kept = {line.rsplit(" ", 1)[0]: True for line in lines if line.endswith(" KEPT")}
    broken = {line.rsplit(" ", 1)[0]: False for line in lines if line.endswith(" BROKEN")}
    return done.returncode, {**kept, **broken}


def test_the_contracts_hold(tmp_path: Path) -> None:
    """proves: B4, P9. Control: every plant below."""
    code, contracts = lint(copy_project(tmp_path))
    assert code == 0
    assert len(contracts) == 5
    assert all(contracts.values())


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.id)
def test_a_forbidden_import_breaks_its_contract(plant: Plant, tmp_path: Path) -> None:
    """proves: P9, S1. Control: test_the_contracts_hold; and no torch contract breaks otherwise."""
    project = copy_project(tmp_path)
    module = project / "src" / "assay" / plant.module
    module.write_text(f"{module.read_text(encoding='utf-8')}\n{plant.line}\n", encoding="utf-8")
    code, contracts = lint(project)
    assert code == 1
    broken = [name for name, kept in contracts.items() if not kept]
    assert any(name.startswith(plant.contract) for name in broken), broken
    if plant.contract in (TORCH, MODELS):
        assert len(broken) == 1


def test_every_room_is_under_a_contract() -> None:
    """A room that is added must be put in its place. proves: P9. Control: one left out is found.

    In parentheses stands a place for a room that isn't there yet.
    """
    import ast

    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    start = text.index("layers = [") + len("layers = ")
    layers = ast.literal_eval(text[start : text.index("]", start) + 1])
    names = [room.strip() for layer in layers for room in layer.split("|")]
    placed = {name.strip("()") for name in names}
    optional = {name.strip("()") for name in names if name.startswith("(")}
    rooms = {
        f"assay.{path.stem}"
        for path in (REPOSITORY / "src" / "assay").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    } - {"assay.__init__", "assay.__main__"}
    assert placed - optional <= rooms <= placed
    assert not rooms <= placed - {"assay.spec"}
