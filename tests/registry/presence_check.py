"""Which types the registry must have, told without asking it for them."""

from __future__ import annotations

from assay.spec.registry import get_spec, has_spec
from tests.registry.export_check import FOLDED
from tests.registry.identity_check import list_text_types
from tests.registry.names_check import GROUPED
from tests.registry.norms import find_weight_plus_one_norms
from tests.registry.test_inventory import NO_SPEC
from tests.registry.tiny import UNBUILT, build, has_type
from tests.registry.truth import find_blocks
from tests.twins.cases import TWINS

__all__ = ["find_need"]

# Parts of a larger model, and models that no config class of this release names.
NAMED = ("qwen3_omni_moe",)

DRAFTERS = {
    "gemma4_assistant": "a small drafter beside gemma4, whose decoder is one without experts"
}


def find_need(model_type: str) -> str | None:
    """Why the registry must have a type; None where it needn't."""
    if model_type in TWINS:
        return "it is exported"
    if model_type in FOLDED or model_type in GROUPED or model_type in NAMED:
        return "its checkpoints are folded or grouped, or only its parts can be built"
    if not has_type(model_type):
        return None
    if model_type not in DRAFTERS:
        texts = [name for name in _list_texts(model_type) if get_spec(name).moe_spec is not None]
        if texts:
            return f"its text decoder {texts[0]} has experts"
    if model_type in UNBUILT:
        return None
    model = build(model_type)
    blocks = [type(model.get_submodule(path)).__name__ for path in find_blocks(model)]
    if any(name not in NO_SPEC for name in blocks):
        return "it has experts"
    return "its norms store w - 1" if find_weight_plus_one_norms(model) else None


def _list_texts(model_type: str) -> list[str]:
    try:
        return [name for name in list_text_types(model_type) if has_spec(name)]
    except ValueError:  # a config of three other models', that can't be made without them
        return []
