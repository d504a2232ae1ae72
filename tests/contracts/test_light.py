"""What an import costs, and that export needs neither torch nor transformers."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
REFERENCE = ("torch", "transformers", "accelerate")
HEAVY = (
    *REFERENCE, "numpy", "ml_dtypes", "onnx", "onnx_ir", "onnxruntime", "onnxruntime_genai",
    "numba", "llvmlite", "tokenizers", "gguf", "safetensors", "jinja2", "huggingface_hub",
)  # fmt: skip


def find_loaded(program: str) -> set[str]:
    """Which heavy packages a fresh interpreter has loaded after a program."""
    program += "\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    modules = json.loads(done.stdout.splitlines()[-1])
    return {name.split(".")[0] for name in modules} & set(HEAVY)


LOOK_UPS = """
import assay
block = type("MixtralSparseMoeBlock", (), {})()
tree = type("Tree", (), {"named_modules": lambda self: [("mlp", block)]})()
assert assay.is_moe(block) and assay.match_moe_block(block) is assay.get_spec("mixtral")
assert assay.observed_expert_layout(block) is None
assert assay.list_all_possible("block_names") and len(assay.get_specs()) > 100
assert assay.sync_moe_gate_up_amax(tree) == 0
for ask in (assay.get_expert_linear_names, assay.get_experts_list):
    try:
        ask(block)
        raise AssertionError
    except NotImplementedError:
        pass
"""
LIGHT = {
    "assay": "import assay",
    "spec and models": "import assay.spec, assay.models",
    "specs through assay": "import assay; assay.get_specs(); assay.get_spec('llama')",
    "every look-up": LOOK_UPS,
    "errors": "from assay import AssayError",
    "the parser": "from assay.cli.main import build_parser; build_parser()",
    "models list": "from assay.cli import main; main(['models', 'list'])",
    "env": "from assay.cli import main; main(['env'])",
}


@pytest.mark.parametrize("program", LIGHT.values(), ids=LIGHT)
def test_a_light_import(program: str) -> None:
    """proves: S1, B12. Control: test_heavy_imports_are_seen."""
    assert find_loaded(program) == set()


def test_what_the_registry_costs(record_property: Callable[[str, object], None]) -> None:
    """The time of a warm import is recorded, not judged; what it loads is. proves: S1

    Control: test_heavy_imports_are_seen. Measured on two cores: 0.06 s.
    """
    program = (
        "import time; start = time.perf_counter(); import assay.spec, assay.models;"
        "print(time.perf_counter() - start)"
    )
    command = [sys.executable, "-c", program]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(3)]
    seconds = min(float(run.stdout) for run in runs)
    record_property("seconds", round(seconds, 3))
    print(f"import assay.spec, assay.models: {seconds:.3f} s, best of 3")
    assert find_loaded("import assay.spec, assay.models") == set()


def test_heavy_imports_are_seen() -> None:
    """The control: the main path does load numpy and onnx_ir, and never torch. proves: S1"""
    loaded = find_loaded("import assay; assay.export")
    assert {"numpy", "onnx_ir"} <= loaded
    assert not loaded & {*REFERENCE, "onnxruntime", "numba"}


# Python imports sitecustomize at its start, in child processes too.
BLOCK = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {REFERENCE}:
            raise ModuleNotFoundError(f"No module named {{name!r}} (blocked)", name=name)
sys.meta_path.insert(0, Blocked())
"""


@pytest.fixture
def without_torch(tmp_path: Path) -> dict[str, str]:
    """An environment in which torch, transformers and accelerate can't be imported."""
    (tmp_path / "block").mkdir()
    (tmp_path / "block" / "sitecustomize.py").write_text(BLOCK)
    paths = [tmp_path / "block", REPOSITORY / "src"]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}


def run(command: list[object], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A command's outcome."""
    return subprocess.run(
        [str(part) for part in command], env=env, capture_output=True, text=True, cwd="/"
    )


def test_export_without_torch(llama: Path, room: Path, without_torch: dict[str, str]) -> None:
    """Exported, loaded once and generated from. proves: B11, B12

    Control: the block works, and verify says what is missing.
    """
    assay = [sys.executable, "-m", "assay"]
    done = run([*assay, "export", "-m", llama, "-o", room / "out", "-p", "int4"], without_torch)
    assert done.returncode == 0, done.stderr
    assert "loaded once" in done.stdout
    assert "not verified: assay[verify] isn't installed" in done.stdout
    spoken = run([*assay, "generate", room / "out", "w1", "-n", 2, "--json"], without_torch)
    assert spoken.returncode == 0, spoken.stderr
    assert "token_ids" in json.loads(spoken.stdout)
    for name in REFERENCE:
        blocked = run([sys.executable, "-c", f"import {name}"], without_torch)
        assert "(blocked)" in blocked.stderr
    judged = run([*assay, "verify", room / "out", "-r", llama], without_torch)
    assert judged.returncode == 2
    assert "assay[verify]" in judged.stderr


@pytest.fixture(scope="session")
def export_only_python() -> Path:
    """The interpreter of a venv with requirements/export-only.txt, made once and kept."""
    requirements = REPOSITORY / "requirements" / "export-only.txt"
    folder = REPOSITORY / ".cache" / "export-only-venv"
    python, ready = folder / "bin" / "python", folder / ".ready"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if not ready.is_file() or ready.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", requirements], check=True)
        ready.write_text(wanted)
    return python


@pytest.mark.real
def test_export_in_an_environment_of_its_own(
    llama: Path, room: Path, export_only_python: Path
) -> None:
    """A venv that never saw torch. proves: B11, B12. Control: there, torch isn't."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY / "src")}
    code = "import importlib.util as u; print([u.find_spec(n) for n in ('torch', 'transformers')])"
    assert run([export_only_python, "-c", code], env).stdout.strip() == "[None, None]"
    assert run([export_only_python, "-c", "import assay; print(assay.export)"], env).returncode == 0
    export = [export_only_python, "-m", "assay", "export", "-m", llama, "-p", "int4"]
    export += ["--no-verify"]
    done = run([*export, "-o", room / "out"], env)
    assert done.returncode == 0, done.stderr
    assert "loaded once" in done.stdout
    here = run([sys.executable, *export[1:], "-o", room / "here"], {**os.environ, **env})
    assert here.returncode == 0, here.stderr
    for name in ("model.onnx", "model.onnx.data", "genai_config.json"):
        assert (room / "out" / name).read_bytes() == (room / "here" / name).read_bytes()
