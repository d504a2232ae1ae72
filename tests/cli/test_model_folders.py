"""A model type is one folder: a new one is found, a broken one is called broken.

proves: S1, S2, B1. Each test drops folders into a copy of the package and runs the commands there;
nothing else in the copy is touched.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
FACTS = """
from assay.spec import ConfigSpec, ModelSpec, register
from assay.spec.moe import MoESpec
from assay.spec.moe_patterns import (
    GATE_UP, ITERABLE_THEN_FUSED, LLAMA_NAMES, experts, per_expert_files, softmax_router,
)

register(
    ModelSpec(
        model_type="madeup",
        architectures=("MadeupForCausalLM",),
        config_spec=ConfigSpec(defaults={}),
        moe_spec=MoESpec(
            block_names=("MadeupBlock",),
            expert_linear_names=LLAMA_NAMES,
            gate_up_pair=GATE_UP,
            layouts=ITERABLE_THEN_FUSED,
            router=softmax_router(),
            experts=experts("num_experts"),
            files=(per_expert_files(),),
        ),
    )
)
"""
# What may be wrong with a specs.py -> what is said of it, its line, and the kind of error.
FAULTS = {
    "syntax": ("x = 1\nregister(ModelSpec(\n", ":2: SyntaxError: '\\(' was never closed"),
    "indentation": ("def f():\nreturn 1\n", ":2: IndentationError: "),
    "import": ("\nimport assay.nowhere\n", ":2: ModuleNotFoundError: No module named"),
    "name": ("from assay.spec import ModelSpek\n", ":1: ImportError: cannot import name"),
    "value": ("\n\n1 / 0\n", ":3: ZeroDivisionError: "),
    "nothing": ("", ": ValueError: it registers nothing"),
    "another": (FACTS.replace('"madeup"', '"else"'), ": ValueError: it registers else"),
    "twice": (FACTS.replace('"madeup"', '"llama"'), r":\d+: ValueError: model_type 'llama' is"),
    "late": (FACTS + "\nregister(None)\n", f":{FACTS.count(chr(10)) + 2}: AttributeError: "),
}

Package = tuple[Path, Callable[..., subprocess.CompletedProcess[str]]]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package."""
    target = tmp_path_factory.mktemp("src")
    shutil.copytree(REPOSITORY / "src" / "assay", target / "assay")
    return target


@pytest.fixture
def package(copied: Path) -> Package:
    """The copy's models folder, the test's to add to; and Python that runs there."""
    models = copied / "assay" / "models"
    shutil.rmtree(models / "madeup", ignore_errors=True)

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(copied), "COLUMNS": "200"}
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, env=env, capture_output=True, text=True, cwd="/")

    return models, run


def write(models: Path, text: str) -> Path:
    """The folder of a made-up type."""
    folder = models / "madeup"
    folder.mkdir()
    (folder / "specs.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the made-up type: llama's files, under another model type."""
    from tests.pipeline.tiny import write_llama

    folder = write_llama(tmp_path_factory.mktemp("checkpoint") / "madeup")
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_type": "madeup"}))
    return folder


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_specs_py_is_called_broken(package: Package, fault: str) -> None:
    """With file, line and reason. Control: the other types work, and unknown ones are unknown."""
    models, run = package
    text, said = FAULTS[fault]
    said = re.escape(str(write(models, text) / "specs.py")) + said
    show = run("-m", "assay", "models", "show", "madeup")
    assert show.returncode == 2
    assert re.search(f"^assay: {said}", show.stderr, re.MULTILINE)
    assert "isn't unsupported" in show.stderr
    assert "no spec is registered" not in show.stderr
    listing = run("-m", "assay", "models", "list", "--json")
    assert listing.returncode == 0
    found = json.loads(listing.stdout)
    (broken,) = found["broken"]
    assert broken["model_type"] == "madeup"
    assert re.match(said, f"{broken['where']}: {broken['found']}")
    types = {row["model_type"] for row in found["models"]}
    assert "llama" in types and not types & {"madeup", "else"}
    assert run("-m", "assay", "models", "show", "llama").returncode == 0
    unknown = run("-m", "assay", "models", "show", "madeupp")
    assert unknown.returncode == 2 and "no spec is registered" in unknown.stderr


def test_every_verb_calls_it_broken(package: Package, checkpoint: Path, room: Path) -> None:
    """Also look-ups. Control: mended, the same commands say something else."""
    models, run = package
    file = write(models, "import assay.nowhere\n") / "specs.py"
    export = ("-m", "assay", "export", "-m", checkpoint, "-o", room / "out", "--no-verify")
    program = (
        "import assay, types\n"
        "for ask in (assay.get_spec, lambda t: assay.is_moe(object(), t),"
        " lambda t: assay.match_moe_block(object(), t)):\n"
        "    try: print(ask('madeup'))\n"
        "    except assay.AssayError as exc: print(type(exc).__name__, type(exc.__cause__))\n"
        "print(assay.get_spec('llama').model_type, assay.is_moe(object()))\n"
    )
    done = run(*export)
    assert done.returncode == 2 and f"{file}:1: ModuleNotFoundError" in done.stderr
    assert list(room.iterdir()) == []
    assert run(*export, "--dry-run").returncode == 2
    listing = run("-m", "assay", "models", "list").stdout
    assert f"{'madeup':<22} broken   {file}:1: ModuleNotFoundError" in listing
    inspected = run("-m", "assay", "inspect", checkpoint)
    assert inspected.returncode == 0 and f"not exportable: {file}:1:" in inspected.stdout
    asked = run("-c", program)
    broken = "BrokenSpecError <class 'ModuleNotFoundError'>\n"
    assert asked.stdout == broken * 3 + "llama False\n", asked.stderr
    file.write_text(FACTS)
    assert "broken" not in run("-m", "assay", "models", "list").stdout
    assert run("-c", program).stdout.endswith("False\nNone\nllama False\n")


def test_a_new_type_is_one_folder(package: Package, checkpoint: Path, room: Path) -> None:
    """Facts alone: listed, looked up, and said to be no export yet. Control: without the folder."""
    models, run = package
    program = (
        "import assay\n"
        "block = type('QuantMadeupBlock', (type('MadeupBlock', (), {}),), {})()\n"
        "print(assay.is_moe(block, 'madeup'), assay.match_moe_block(block) is not None)\n"
        "print(len(assay.get_specs()))\n"
    )
    before = run("-c", program).stdout.splitlines()
    assert before[0] == "False False"
    write(models, FACTS)
    after = run("-c", program).stdout.splitlines()
    assert after == ["True True", str(int(before[1]) + 1)]
    listing = run("-m", "assay", "models", "list").stdout
    assert f"{'madeup':<22} facts    MadeupForCausalLM" in listing
    show = run("-m", "assay", "models", "show", "madeup")
    assert show.returncode == 0 and "exports: False" in show.stdout
    assert "expert_linear_names" in show.stdout
    export = ("-m", "assay", "export", "-m", checkpoint, "-o", room / "out", "--no-verify")
    for more in ((), ("--dry-run",), ("--json",)):
        done = run(*export, *more)
        assert done.returncode == 2
        assert "can't be exported yet" in done.stderr + done.stdout
        assert "no spec is registered" not in done.stderr + done.stdout
    assert list(room.iterdir()) == []
    assert "can't be exported yet" in run("-m", "assay", "inspect", checkpoint).stdout


def test_a_folder_without_a_specs_py(package: Package) -> None:
    """Not passed over. Control: caches and private folders are no types."""
    models, run = package
    (models / "madeup").mkdir()
    (models / "__pycache__").mkdir(exist_ok=True)
    (models / ".tmp").mkdir(exist_ok=True)
    broken = json.loads(run("-m", "assay", "models", "list", "--json").stdout)["broken"]
    assert [row["model_type"] for row in broken] == ["madeup"]
    assert "FileNotFoundError" in broken[0]["found"]
