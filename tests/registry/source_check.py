"""Facts of a router that no number shows, read from transformers' source.

A softmax's chosen weights add up to more than any published eps, so neither the eps nor whether it
is added or a floor can be seen in them. A softmax in half precision is the one in float32, rounded.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator

from torch import nn

from assay.spec import ModelSpec
from assay.spec.experts import Router
from assay.spec.markers import Marker
from assay.spec.moe import MoESpec
from tests.registry.blocks import Block, is_layer, list_text_blocks
from tests.registry.identity_check import find_text_spec
from tests.registry.interpret import find_score_router, resolve_part
from tests.registry.tiny import OLD

__all__ = ["check_source", "find_written_math", "read_source"]

_NORMALIZES = re.compile(r"sum\(|/=|prob_eps")
_EXPERTS = ("experts", "shared_expert", "shared_experts", "shared_mlp")


def read_source(block: Block) -> str:
    """The source of the block's class and of what it holds, but for experts and torch's own."""
    return "\n".join(map(_read_class, dict.fromkeys(_list_classes(block.module))))


@functools.cache
def _read_class(cls: type) -> str:
    return inspect.getsource(cls)


def _list_classes(module: nn.Module) -> Iterator[type]:
    if not type(module).__module__.startswith("torch."):
        yield type(module)
    for name, child in module.named_children():
        if name == "router" if is_layer(module) else name not in _EXPERTS:
            yield from _list_classes(child)


def find_written_math(block: Block) -> str:
    """`scores` where the block's source computes anything in float32, else `model`."""
    is_float = re.search(r"torch\.float|\.float\(|float32", read_source(block)) is not None
    return "scores" if is_float else "model"


def check_source(spec: ModelSpec, moe: MoESpec) -> list[str]:
    """The eps of the sum, and whether it is added or a floor."""
    blocks = list_text_blocks(spec, moe)
    plain = find_score_router(moe.router)
    if OLD or not blocks or not isinstance(plain, Router):
        return []
    router: Router = resolve_part(find_text_spec(spec, blocks[0].config), plain, blocks[0].config)
    if router.normalize == "none":
        return []
    lines = [line for line in read_source(blocks[0]).splitlines() if _NORMALIZES.search(line)]
    text = "\n".join(lines)
    wrong = []
    floor = re.search(r"clamp|max\(|min=", text) is not None
    if floor != (router.normalize == "sum_at_least"):
        wrong.append(f"normalize is {router.normalize}, a floor in the source is {floor}")
    said = {float(number) for number in re.findall(r"\d+e-\d+", text)}
    wanted = set() if isinstance(plain.normalize_eps, Marker) else {router.normalize_eps} - {0.0}
    if said != wanted:
        wrong.append(f"normalize_eps is {router.normalize_eps}, the source has {said}")
    return wrong
