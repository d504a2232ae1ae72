"""The environment of this process: packages as they really are, processor, providers."""

from __future__ import annotations

import importlib
import json
import os
import sys
from importlib import metadata
from pathlib import Path

import pytest

from assay.environment import read_environment, read_providers
from assay.environment.cpu import parse_cpu_features, parse_processor, read_cpuinfo
from tests.environment.installing import put_package

X86 = """processor\t: 0
model name\t: Some Processor @ 2.0GHz
flags\t\t: fpu sse4_2 avx avx2 fma f16c avx512f avx512_vnni amx_tile amx_int8

processor\t: 1
flags\t\t: fpu
"""
ARM = """processor\t: 0
Features\t: fp asimd aes asimdhp asimddp sve i8mm bf16
"""


def test_packages_are_told_as_they_are_imported() -> None:
    """Versions and places are those that importing gives. proves: B13

    Control: a place that isn't the package's own differs.
    """
    told = read_environment().to_json()["packages"]
    for name in ("numpy", "onnxruntime", "onnx_ir", "assay"):
        module = importlib.import_module(name)
        assert told[name]["imported_from"] == module.__file__
        assert told[name]["version"] == module.__version__
    assert told["onnxruntime"]["imported_from"] != told["numpy"]["imported_from"]
    home = metadata.distribution("numpy").locate_file("numpy")
    assert told["numpy"]["installed_at"] == str(home)


def test_this_environment_is_plain_data() -> None:
    """proves: B13, P10. Control: what isn't installed has no version."""
    environment = read_environment()
    told = json.loads(json.dumps(environment.to_json(), allow_nan=False))
    assert told["executable"] == sys.executable
    assert told["working_directory"] == os.getcwd()
    assert told["packages"]["torch"]["version"] == metadata.version("torch")
    assert "optimum" not in told["packages"]
    text = environment.to_text()
    assert told["packages"]["torch"]["imported_from"] in text
    versions = environment.to_versions()
    assert versions["onnxruntime-genai"] == metadata.version("onnxruntime-genai")
    assert all(isinstance(value, str) for value in versions.values())


def test_a_block_in_the_import_system_reads_as_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    """proves: B13. Control: without the block it is there."""

    class Blocker:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "tokenizers":
                raise ModuleNotFoundError(name)

    def find() -> object:
        return read_environment().to_json()["packages"]["tokenizers"]["imported_from"]

    assert find() is not None
    monkeypatch.delitem(sys.modules, "tokenizers", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Blocker(), *sys.meta_path])
    assert find() is None


def test_a_shadow_is_told_beside_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verdict's flat environment says it too. proves: B13. Control: before it was put there."""
    before = read_environment()
    assert [stray for stray in before.strays if stray.package == "onnxruntime_genai"] == []
    put_package(tmp_path, "onnxruntime_genai")
    monkeypatch.delitem(sys.modules, "onnxruntime_genai", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    environment = read_environment()
    (stray,) = set(environment.shadows) - set(before.shadows)
    assert stray.path == str(tmp_path / "onnxruntime_genai")
    assert not environment.is_sound
    assert f"shadowed by {stray.path}" in environment.to_versions()["onnxruntime-genai"]
    assert "shadowed" not in before.to_versions()["onnxruntime-genai"]
    assert "SHADOWED" in environment.to_text()


def test_processors() -> None:
    """proves: P10. Control: a text without flags says nothing, which isn't "none"."""
    features = ("avx", "avx2", "fma", "f16c", "avx512f", "avx512_vnni", "amx_tile", "amx_int8")
    assert parse_cpu_features(X86) == features
    assert parse_cpu_features(ARM) == ("neon", "fp16", "dotprod", "i8mm", "bf16", "sve")
    assert parse_cpu_features("flags : fpu") == ()
    assert parse_cpu_features("") is None
    assert parse_processor(X86) == "Some Processor @ 2.0GHz"
    assert parse_processor("") != ""


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="Linux tells its processor there")
def test_this_processor() -> None:
    """proves: P10. Control: the flags are the file's own."""
    features = parse_cpu_features(read_cpuinfo())
    assert features is not None
    flags = read_cpuinfo().split()
    assert ("avx2" in features) == ("avx2" in flags)


def test_providers_of_the_installed_onnxruntime() -> None:
    """proves: B13. Control: the broken installs below."""
    import onnxruntime

    found = read_providers(sys.path)
    assert found.error == ""
    assert list(found.names) == onnxruntime.get_available_providers()


BROKEN = {
    "it raises": "raise ImportError('libcudart.so.12 not found')",
    "it exits": "raise SystemExit(0)",
    "it crashes": "import os; os.abort()",
    "it is empty": "",
    "it prints": "print('[1]'); print('{')",
    "it answers with nonsense": "get_available_providers = lambda: 7",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_onnxruntime_is_an_answer(how: str, tmp_path: Path) -> None:
    """proves: B13. Control: one that answers, and prints beside it, is heard."""
    put_package(tmp_path / "bad", "onnxruntime", BROKEN[how])
    found = read_providers([str(tmp_path / "bad"), *sys.path])
    assert found.names == ()
    assert found.error
    if how == "it raises":
        assert "libcudart" in found.error
    good = "print('hello')\nget_available_providers = lambda: ['CPUExecutionProvider']"
    put_package(tmp_path / "good", "onnxruntime", good)
    found = read_providers([str(tmp_path / "good"), *sys.path])
    assert (found.names, found.error) == (("CPUExecutionProvider",), "")


def test_an_onnxruntime_that_hangs(tmp_path: Path) -> None:
    """proves: B13. Control: above, one that answers."""
    put_package(tmp_path, "onnxruntime", "import time; time.sleep(60)")
    assert "timed out" in read_providers([str(tmp_path), *sys.path], timeout_s=1).error
