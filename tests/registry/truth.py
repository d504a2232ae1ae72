"""Which modules of a model are MoE blocks, derived without a name and without the registry.

An expert's parameter has an expert dimension (3-D parameters with one entry an expert, equal
parameters of as many sibling modules, flat parameters with all experts' rows); a router's is a
matrix with a row an expert. A block is a module that holds both, and none of whose children does.
"""

from __future__ import annotations

import re

import torch

from tests.registry.tiny import NUM_EXPERTS

__all__ = ["find_blocks", "find_expert_parameters"]

# A router may have rows for experts that give nothing, or for shared ones.
_ROUTER_ROWS = range(NUM_EXPERTS, NUM_EXPERTS + 4)
_NUMBER = re.compile(r"(?:^|_)(\d+)$")


def find_expert_parameters(module: torch.nn.Module) -> set[str]:
    """Names of the parameters with an expert dimension, biases included, below a module."""
    found = set()
    for path, child in module.named_modules():
        held = dict(child.named_parameters(recurse=False))
        stacked = [n for n, p in held.items() if p.ndim == 3 and p.shape[0] == NUM_EXPERTS]
        more = range(NUM_EXPERTS, NUM_EXPERTS + 4) if stacked else ()
        stacked += [n for n, p in held.items() if p.ndim == 3 and p.shape[0] in more]
        rows = [n for n, p in held.items() if stacked and p.ndim == 2 and p.shape[0] == NUM_EXPERTS]
        found |= {f"{path}.{name}".lstrip(".") for name in {*stacked, *rows}}
        flat = {
            n: tuple(p.shape)
            for n, p in held.items()
            if p.ndim == 2 and not p.shape[0] % NUM_EXPERTS
        }
        if len(flat) == 3 and len(set(flat.values())) == 1:
            found |= {f"{path}.{name}".lstrip(".") for name in flat}
        if _has_equal_siblings(child):
            found |= {
                f"{path}.{name}".lstrip(".") for name, p in child.named_parameters() if p.ndim <= 2
            }
    return found


def _has_equal_siblings(module: torch.nn.Module) -> bool:
    held = {
        name: child
        for name, child in module.named_children()
        if next(child.parameters(), None) is not None
    }
    children = [child for name, child in held.items() if _NUMBER.search(name)]
    if len(children) != len(held) or len(children) != NUM_EXPERTS:
        return False
    shapes = {
        tuple((name, tuple(p.shape)) for name, p in child.named_parameters()) for child in children
    }
    return len(shapes) == 1 and len(next(iter(shapes))) >= 2


def find_blocks(model: torch.nn.Module) -> dict[str, set[str]]:
    """Path of every MoE block -> its expert parameters, relative to it."""
    experts = find_expert_parameters(model)
    routers = {
        name
        for name, p in model.named_parameters(remove_duplicate=False)
        if p.ndim == 2 and p.shape[0] in _ROUTER_ROWS and name not in experts
    }
    both = {
        path
        for path in _parents(experts)
        if any(name.startswith(_prefix(path)) for name in routers)
    }
    blocks = {
        path
        for path in both
        if not any(other != path and other.startswith(_prefix(path)) for other in both)
    }
    return {
        path: {name[len(_prefix(path)) :] for name in experts if name.startswith(_prefix(path))}
        for path in sorted(blocks)
    }


def _parents(names: set[str]) -> set[str]:
    return {
        ".".join(parts[:end])
        for parts in (name.split(".") for name in names)
        for end in range(len(parts))
    }


def _prefix(path: str) -> str:
    return f"{path}." if path else ""
