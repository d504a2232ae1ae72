"""One folder for every form of export, shared by the tests that look into folders."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from assay.pipeline import export
from tests.pipeline.tiny import write_llama


@dataclass(frozen=True)
class Form:
    """One way to export. tied: the checkpoint's head is its embedding."""

    precision: str
    tied: bool
    attention: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """As pytest shows it."""
        more = ["asymmetric" if key == "symmetric" else f"{key}-{self.options[key]}"
                for key in self.options]  # fmt: skip
        return "-".join([self.precision, "tied" if self.tied else "untied", self.attention, *more])


FORMATS: list[tuple[str, dict[str, Any]]] = [
    ("fp32", {}),
    ("fp16", {}),
    ("int8", {}),
    ("int8", {"symmetric": False}),
    ("int4", {"head": "int4"}),
    ("int4", {"head": "int4", "symmetric": False}),
]
FORMS = [
    Form(precision, tied, attention, options)
    for precision, options in FORMATS
    for tied in (False, True)
    for attention in ("gqa", "decomposed")
]


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Untied, and tied with widths that end in a partial group."""
    place = tmp_path_factory.mktemp("checkpoints")
    return {
        False: write_llama(place / "untied"),
        True: write_llama(
            place / "tied", tie_word_embeddings=True, hidden_size=72, intermediate_size=88
        ),
    }


@pytest.fixture(scope="session")
def folders(
    checkpoints: dict[bool, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Every form's folder, by id; not loaded in GenAI (test_load_once.py does)."""
    place = tmp_path_factory.mktemp("folders")
    for form in FORMS:
        export(
            checkpoints[form.tied],
            place / form.id,
            precision=form.precision,
            attention=form.attention,
            check_loading=False,
            **form.options,
        )
    return {form.id: place / form.id for form in FORMS}


@pytest.fixture(params=FORMS, ids=lambda form: form.id)
def folder(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Path:
    """One form's folder after the other."""
    return folders[request.param.id]
