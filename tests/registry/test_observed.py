"""What a module shows of its experts, on made-up modules of every layout.

proves: S8 (the layout is read off the module)
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from assay.spec import observed_expert_layout
from assay.spec.observed import find_experts
from tests.registry.fakes import E, H, I, block, expert, fused, iterable, name_class, tree


def observe(experts: Any) -> Any:
    """The layout of a block with these experts."""
    return observed_expert_layout(block("Something", experts))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("names", "gated"),
    [
        (("gate_proj", "up_proj", "down_proj"), True),
        (("w1", "w3", "w2"), True),
        (("a", "b"), False),
    ],
)
def test_iterable(names: tuple[str, ...], gated: bool, bias: bool) -> None:
    """Names, bias and gate of the first expert."""
    seen = observe(iterable(names, bias=bias))
    assert (seen.kind, seen.path, seen.names, seen.num_experts) == ("iterable", "experts", names, E)
    assert (seen.has_gate, seen.has_bias) == (gated, bias)


def test_iterable_with_gate_and_up_in_one() -> None:
    """Twice as many rows as down has columns. Control: as many are no gate."""
    both = tree(gate_up_proj=nn.Linear(H, 2 * I), down_proj=nn.Linear(I, H))
    assert observe(nn.ModuleList([both])).has_gate
    assert not observe(iterable(("up_proj", "down_proj"))).has_gate


def test_identity_experts_are_none() -> None:
    """What has no linears among the experts isn't one."""
    experts = nn.ModuleList([nn.Identity(), expert(), expert(), nn.Identity()])
    assert observe(experts).num_experts == 2
    assert find_experts(block("X", experts)) == [experts[1], experts[2]]


def test_numbered_names() -> None:
    """`expert_3` counts as `3` does, in the order of the modules. Control: other names don't."""
    experts = nn.ModuleDict({f"expert_{n}": expert() for n in range(12)})
    assert observe(experts).num_experts == 12
    assert find_experts(block("X", experts))[11] is experts["expert_11"]
    assert observe(nn.ModuleDict({"0_first": expert(), "1_second": expert()})) is None
    assert observe(nn.ModuleDict({"first": expert(), "second": expert()})) is None


def test_linears_without_a_plain_weight() -> None:
    """A packed linear has in_features and out_features. Control: a part with neither is none."""

    def packed(inputs: int, outputs: int) -> nn.Module:
        weight = torch.zeros(outputs * inputs // 2)
        return tree(qweight=weight, in_features=inputs, out_features=outputs)

    one = tree(w1=packed(H, I), w3=packed(H, I), w2=packed(I, H), norm=nn.LayerNorm(H))
    assert observe(nn.ModuleList([one])).names == ("w1", "w3", "w2")


def test_a_plain_list_does_not_say_what_it_holds() -> None:
    """Layers and attentions aren't experts, MLPs are read as such. Control: under another name."""
    assert observed_expert_layout(iterable()).kind == "iterable"  # type: ignore[union-attr]
    layers = nn.ModuleList([tree(norm=nn.LayerNorm(H), fc1=nn.Linear(H, I), fc2=nn.Linear(I, H))])
    heads = nn.ModuleList([tree(**{name: nn.Linear(H, H) for name in "qkvo"})])
    uneven = nn.ModuleList([tree(fc1=nn.Linear(H, I), fc2=nn.Linear(H, I))])
    for modules in (layers, heads, uneven):
        assert observed_expert_layout(modules) is None
        assert observe(modules) is not None
    assert observed_expert_layout(name_class(iterable(), "ManyExperts")).kind == "iterable"  # type: ignore[union-attr]


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("gated", [True, False])
def test_fused(transposed: bool, bias: bool, gated: bool) -> None:
    """Shapes say how they lie; whether rows alternate, they can't.

    Without a gate the two parameters are each other's transposes, whichever way they lie.
    """
    names = ("gate_up_proj", "down_proj") if gated else ("up_proj", "down_proj")
    container = fused(names, transposed=transposed, bias=bias, gated=gated)
    for seen, path in ((observe(container), "experts"), (observed_expert_layout(container), "")):
        assert seen is not None
        assert (seen.kind, seen.path, seen.names, seen.num_experts) == ("fused", path, names, E)
        assert (seen.has_bias, seen.has_gate) == (bias, gated)
        assert seen.is_transposed is (transposed if gated else None)
        assert seen.is_concatenated is None


def test_flags_are_believed() -> None:
    """transformers 5 says what shapes can't. Control: a flag that is no bool isn't one."""
    flags: dict[str, Any] = {"is_concatenated": False, "is_transposed": True, "has_bias": True}
    seen = observe(fused(**flags, has_gate=True))
    assert (seen.is_concatenated, seen.is_transposed, seen.has_bias) == (False, True, True)
    assert observe(fused(is_concatenated=True)).is_concatenated is True
    assert observe(fused(has_gate=False, is_concatenated=True)).is_concatenated is None
    assert observe(fused(is_transposed=None, is_concatenated="no")).is_concatenated is None
    assert observe(fused(is_transposed=None)).is_transposed is False


def test_shapes_that_do_not_tell() -> None:
    """Square experts lie either way, packed ones neither: None, and no guess."""
    square = tree("X", up_proj=torch.zeros(E, H, H), down_proj=torch.zeros(E, H, H))
    square = tree(
        "X", **{n: nn.Parameter(p) for n, p in vars(square).items() if torch.is_tensor(p)}
    )
    assert observe(square).is_transposed is None
    packed = {
        "gate_up_proj": nn.Parameter(torch.zeros(E, 2 * I, H // 2)),
        "down_proj": nn.Parameter(torch.zeros(E, H, I // 2)),
    }
    assert observe(tree(**packed)).is_transposed is None
    assert observe(tree(**packed)).has_gate


def test_a_bias_is_one_of_the_experts() -> None:
    """The router's, in the same module, isn't."""
    container = fused()
    container.e_score_correction_bias = nn.Parameter(torch.zeros(E))
    assert not observed_expert_layout(container).has_bias  # type: ignore[union-attr]


def test_gate_and_up_as_two_parameters() -> None:
    """All three are named."""
    seen = observe(fused(("gate_proj", "up_proj", "down_proj")))
    assert seen.names == ("gate_proj", "up_proj", "down_proj")
    assert (seen.has_gate, seen.is_concatenated, seen.is_transposed) == (True, None, None)


def test_modules_with_3d_weights() -> None:
    """granitemoe's in transformers 4: one module for each projection."""
    first = tree(weight=nn.Parameter(torch.zeros(E, 2 * I, H)))
    down = tree(weight=nn.Parameter(torch.zeros(E, H, I)))
    seen = observed_expert_layout(tree("X", input_linear=first, output_linear=down))
    assert seen is not None
    assert (seen.kind, seen.path, seen.names) == ("fused", "", ("input_linear", "output_linear"))
    assert (seen.has_gate, seen.is_transposed) == (True, False)


@pytest.mark.parametrize("names", [("fc1", "fc2"), ("input_linear", "output_linear")])
def test_known_names_without_a_block(names: tuple[str, str]) -> None:
    """A container on its own. Control: under names that nobody knows it shows nothing."""
    seen = observed_expert_layout(fused(names))
    assert seen is not None and (seen.names, seen.has_gate, seen.path) == (names, True, "")
    assert observed_expert_layout(fused(("first", "second"))) is None


def test_other_names_of_fused_parameters() -> None:
    """Under `experts` they are named as they stand. Control: elsewhere, 3-D is no expert."""
    held = {
        "w13": nn.Parameter(torch.zeros(E, 2 * I, H)),
        "w2": nn.Parameter(torch.zeros(E, H, I)),
    }
    seen = observe(tree("X", **held))
    assert (seen.kind, seen.names, seen.num_experts) == ("fused", ("w13", "w2"), E)
    assert seen.is_transposed is None and seen.is_concatenated is None and seen.has_gate
    assert not observe(fused(("first", "second"), gated=False)).has_gate
    assert observed_expert_layout(tree("Attention", **held)) is None
    odd = {**held, "w2": nn.Parameter(torch.zeros(E + 1, H, I))}
    assert observe(tree("X", **odd)) is None


def test_flat_and_by_projection() -> None:
    """DBRX's: as it is, and split into linears."""
    flat = {name: nn.Parameter(torch.zeros(E * I, H)) for name in ("w1", "v1", "w2")}
    mlp = tree("DbrxExpertGLU", **flat, moe_num_experts=E)
    seen = observe(tree("DbrxExperts", mlp=mlp))
    assert (seen.kind, seen.path, seen.num_experts) == ("flat", "experts.mlp", E)
    assert observed_expert_layout(mlp).kind == "flat"  # type: ignore[union-attr]

    def split(bias: bool) -> nn.Module:
        names = ("w1_linear", "v1_linear", "w2_linear")
        lists = {n: nn.ModuleList(nn.Linear(H, I, bias=bias) for _ in range(E)) for n in names}
        return tree("Split", mlp=tree("GLU", **lists))

    seen = observe(split(bias=True))
    assert (seen.kind, seen.path, seen.num_experts) == ("by_projection", "experts.mlp", E)
    assert set(seen.names) == {"w1_linear", "v1_linear", "w2_linear"}
    assert (seen.has_gate, seen.has_bias) == (True, True)
    assert not observe(split(bias=False)).has_bias


def test_nothing_is_there() -> None:
    """No crash on what has no experts, or no modules at all."""
    for module in (nn.Linear(H, H), nn.ModuleList(), tree(experts=None), object(), None):
        assert observed_expert_layout(module) is None
        assert find_experts(module) == []
    assert observe(None) is None and observe(nn.ModuleList()) is None
    assert observed_expert_layout(tree(experts=8)) is None
