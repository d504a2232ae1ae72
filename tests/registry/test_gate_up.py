"""One weight range for gate and up of each expert.

proves: S9. Every amax here is drawn at random, so that the maximum is neither of the two.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import assay.models  # noqa: F401  (registers every spec)
from assay.spec import get_spec, sync_moe_gate_up_amax
from assay.spec.moe import FUSED, FUSED_TRANSPOSED
from assay.spec.packed_amax import find_packing
from tests.registry.fakes import LLAMA, E, H, I, Quantizer, block, fused, iterable, name_class, tree

MIXTRAL = ("w1", "w3", "w2")


@contextmanager
def no_warning() -> Iterator[None]:
    """Any warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def sync(model: nn.Module, model_type: str | None = None) -> int:
    """How many pairs were changed; nothing is warned of."""
    with no_warning():
        return sync_moe_gate_up_amax(model, model_type)


def quantize(module: nn.Module, *shape: int) -> nn.Module:
    """A quantizer for every linear, its amax of a shape."""
    for child in list(module.modules()):
        if isinstance(child, nn.Linear):
            child.weight_quantizer = Quantizer(torch.rand(shape))
    return module


def read(module: nn.Module, name: str) -> Tensor:
    """The amax of a linear of an expert."""
    return getattr(module, name).weight_quantizer.amax  # type: ignore[no-any-return]


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    """Every amax, by the name of its quantizer."""
    return {
        name: child.amax.clone()
        for name, child in module.named_modules()
        if isinstance(child, Quantizer) and child.amax is not None and not child.amax.is_meta
    }


def is_same(module: nn.Module, before: dict[str, Tensor]) -> bool:
    """Whether no amax has changed."""
    now = snapshot(module)
    return now.keys() == before.keys() and all(torch.equal(now[k], before[k]) for k in now)


@pytest.mark.parametrize("shape", [(), (1,), (I, 1), (I, H // 2)])
@pytest.mark.parametrize(
    ("name", "names", "model_type"),
    [
        ("MixtralSparseMoeBlock", MIXTRAL, "mixtral"),
        ("MixtralSparseMoeBlock", MIXTRAL, None),
        ("Qwen3MoeSparseMoeBlock", LLAMA, "qwen3_moe"),
        ("QuantFooSparseMoeBlock", LLAMA, None),  # nobody's: every declared pair is tried
        ("QuantFooSparseMoeBlock", MIXTRAL, "never_heard_of"),
    ],
)
def test_linears_of_experts(
    name: str, names: tuple[str, str, str], model_type: str | None, shape: tuple[int, ...]
) -> None:
    """Gate and up take the maximum, elementwise. Control: down and the router keep theirs."""
    model = tree(mlp=quantize(block(name, iterable(names)), *shape))
    before = snapshot(model)
    assert sync(model, model_type) == E
    gate, up, down = names
    for number, expert in enumerate(model.mlp.experts):  # type: ignore[union-attr, arg-type]
        path = f"mlp.experts.{number}"
        wanted = before[f"{path}.{gate}.weight_quantizer"].maximum(
            before[f"{path}.{up}.weight_quantizer"]
        )
        assert torch.equal(read(expert, gate), wanted) and torch.equal(read(expert, up), wanted)
        assert torch.equal(read(expert, down), before[f"{path}.{down}.weight_quantizer"])
        assert read(expert, gate) is not read(expert, up)
    gate_amax = model.mlp.gate.weight_quantizer.amax  # type: ignore[union-attr]
    assert torch.equal(gate_amax, before["mlp.gate.weight_quantizer"])


def test_a_second_time_changes_nothing() -> None:
    """The maximum of two equals is what it was."""
    model = tree(mlp=quantize(block("MixtralSparseMoeBlock", iterable(MIXTRAL)), I, 1))
    sync(model)
    before = snapshot(model)
    sync(model)
    assert is_same(model, before)


def test_the_type_comes_from_the_configs() -> None:
    """The root's, its text part's, the block's own. Control: under another type it is nobody's."""

    def make(**facts: Any) -> nn.Module:
        experts = iterable(MIXTRAL)
        return tree(mlp=quantize(block("MixtralSparseMoeBlock", experts)), **facts)

    mixtral = SimpleNamespace(model_type="mixtral")
    for config in (mixtral, SimpleNamespace(model_type="x", text_config=mixtral)):
        assert sync(make(config=config)) == E
    model = make()
    model.mlp.config = mixtral
    assert sync(model) == E
    own = tree(mixer=quantize(block("NemotronHMoE", iterable(LLAMA))))
    assert sync(own) == 0
    own.mixer.config = mixtral
    assert sync(own) == E, "of mixtral's blocks it is none, so that every pair is tried"
    dense = make(config=SimpleNamespace(model_type="nemotron_h"))
    assert sync(dense) == E, "nobody's, so that every declared pair is tried"


def test_a_spec_without_a_pair_is_left_alone() -> None:
    """nemotron_h has no gate. Control: nobody's block with the same linears is changed."""
    names = ("gate_proj", "up_proj", "down_proj")
    ungated = fused(("up_proj", "down_proj"), gated=False)
    for fake in (iterable(names), ungated, fused(is_concatenated=True)):
        model = tree(mixer=quantize(block("NemotronHMoE", fake)))
        fake.gate_up_proj_weight_quantizer = Quantizer(torch.rand(E, 2 * I, 1))
        before = snapshot(model)
        assert sync(model, "nemotron_h") == sync(model) == 0
        assert is_same(model, before)
    control = fused(is_concatenated=True)
    control.gate_up_proj_weight_quantizer = Quantizer(torch.rand(E, 2 * I, 1))
    assert sync(tree(mixer=block("FooMoELayer", control))) == 1
    assert sync(tree(mixer=quantize(block("FooMoELayer", iterable(names))))) == E


def test_dense_and_shared_mlps_are_left_alone() -> None:
    """Only experts are changed. Control: beside them, the experts are."""
    mlp = iterable(LLAMA)[0]
    sparse = block("Qwen3MoeSparseMoeBlock", iterable(LLAMA), shared_expert=iterable(LLAMA)[1])
    model = quantize(tree(mlp=mlp, sparse=sparse))
    before = snapshot(model)
    assert sync(model) == E
    after = snapshot(model)
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed and all(name.startswith("sparse.experts.") for name in changed)


def test_meta_tensors_are_skipped_with_a_warning() -> None:
    """The pair is named, the others are done. Control: without one, no warning."""
    model = tree(mlp=quantize(block("MixtralSparseMoeBlock", iterable(MIXTRAL)), I, 1))
    experts: Any = model.mlp.experts
    experts[1].w3.weight_quantizer.amax = torch.rand(I, 1, device="meta")
    before = snapshot(model)
    with pytest.warns(UserWarning, match=r"mlp: .*expert 1.*w1 and w3.*meta"):
        assert sync_moe_gate_up_amax(model) == E - 1
    assert torch.equal(read(experts[1], "w1"), before["mlp.experts.1.w1.weight_quantizer"])
    assert torch.equal(read(experts[0], "w1"), read(experts[0], "w3"))
    container = fused(is_concatenated=True)
    container.gate_up_proj_weight_quantizer = Quantizer(torch.rand(E, 2 * I, 1, device="meta"))
    with pytest.warns(UserWarning, match="meta"):
        assert sync_moe_gate_up_amax(tree(mlp=block("MixtralSparseMoeBlock", container))) == 0


def test_amax_that_is_missing() -> None:
    """Of both: nothing to do. Of one: a warning, since an engine would read only that one."""
    model = tree(mlp=quantize(block("MixtralSparseMoeBlock", iterable(MIXTRAL))))
    experts: Any = model.mlp.experts
    for name in ("w1", "w3"):
        getattr(experts[0], name).weight_quantizer.amax = None
    del experts[1].w1.weight_quantizer, experts[1].w3.weight_quantizer
    assert sync(model) == E - 2
    experts[2].w3.weight_quantizer.amax = None
    with pytest.warns(UserWarning, match=r"expert 2.*w3 has no amax"):
        assert sync_moe_gate_up_amax(model) == 0
    assert sync(tree(mlp=block("MixtralSparseMoeBlock", iterable(MIXTRAL)))) == 0


def test_amax_of_different_shapes() -> None:
    """A warning, and no broadcast. Control: equal shapes are changed."""
    model = tree(mlp=quantize(block("MixtralSparseMoeBlock", iterable(MIXTRAL)), I, 1))
    model.mlp.experts[0].w1.weight_quantizer.amax = torch.rand(1)  # type: ignore[index, union-attr]
    with pytest.warns(UserWarning, match="shapes"):
        assert sync_moe_gate_up_amax(model) == E - 1


def test_any_object_with_an_amax_will_do() -> None:
    """The protocol asks for no class. Control: without an amax there is nothing to change."""
    expert: Any = SimpleNamespace()
    linear = nn.Linear(H, I)
    linear.weight_quantizer = SimpleNamespace(amax=torch.tensor([1.0, 5.0]))  # type: ignore[assignment]
    other = nn.Linear(H, I)
    other.weight_quantizer = SimpleNamespace(amax=torch.tensor([2.0, 3.0]))  # type: ignore[assignment]
    expert = tree(w1=linear, w3=other, w2=nn.Linear(I, H))
    assert sync(tree(mlp=block("MixtralSparseMoeBlock", nn.ModuleList([expert])))) == 1
    assert linear.weight_quantizer.amax.tolist() == [2.0, 5.0]
    assert other.weight_quantizer.amax.tolist() == [2.0, 5.0]


def halves(amax: Tensor, axis: int, *, interleaved: bool) -> tuple[Tensor, Tensor]:
    """The gate's and the up's part of an amax."""
    size = amax.shape[axis]
    numbers = torch.arange(size)
    gate = numbers % 2 == 0 if interleaved else numbers < size // 2
    return amax.index_select(axis, numbers[gate]), amax.index_select(axis, numbers[~gate])


# class, transposed, interleaved; flags that transformers 5 sets, or the spec's word for it.
FUSED_BLOCKS = {
    "flags": ("Qwen3MoeSparseMoeBlock", False, False, {"is_concatenated": True}),
    "mixtral's own word": ("MixtralSparseMoeBlock", False, False, {}),
    "gpt_oss's own word": ("GptOssMLP", True, True, {}),
    "llama4's own word": ("Llama4TextMoe", True, False, {}),
    "interleaved by flag": ("GptOssMLP", True, True, {"is_concatenated": False}),
    "nobody's, by flag": ("FooMoELayer", False, True, {"is_concatenated": False}),
}


@pytest.mark.parametrize("form", ["rows", "blocks", "flat", "an expert"])
@pytest.mark.parametrize("case", FUSED_BLOCKS)
def test_a_fused_parameter(case: str, form: str) -> None:
    """Gate and up share each row's maximum. Control: another split of the rows gives another."""
    name, transposed, interleaved, flags = FUSED_BLOCKS[case]
    container = fused(transposed=transposed, **flags)
    axis = 2 if transposed else 1
    groups = {"rows": 1, "blocks": 2, "flat": 2, "an expert": 1}[form]
    shape = (E, groups, 2 * I) if transposed else (E, 2 * I, groups)
    before = torch.rand(shape)
    if form == "an expert":
        container.gate_up_proj_weight_quantizers = nn.ModuleList(map(Quantizer, before.clone()))
    elif form == "flat" and not transposed:
        container.gate_up_proj_weight_quantizer = Quantizer(before.clone().view(E * 2 * I, groups))
    else:
        container.gate_up_proj_weight_quantizer = Quantizer(before.clone())
    container.down_proj_weight_quantizer = Quantizer(torch.rand(E, H, 1))
    down = container.down_proj_weight_quantizer.amax.clone()  # type: ignore[union-attr, operator]
    model = tree(mlp=block(name, container))
    assert sync(model) == (E if form == "an expert" else 1)
    if form == "an expert":
        quantizers: Any = container.gate_up_proj_weight_quantizers
        after = torch.stack([quantizer.amax for quantizer in quantizers])
    else:
        after = container.gate_up_proj_weight_quantizer.amax.view(shape)  # type: ignore[union-attr, operator]
    gate, up = halves(before, axis, interleaved=interleaved)
    for part in halves(after, axis, interleaved=interleaved):
        assert torch.equal(part, gate.maximum(up))
    assert not torch.equal(*halves(after, axis, interleaved=not interleaved))
    assert torch.equal(container.down_proj_weight_quantizer.amax, down)  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", [(), (1,), (E, 1, 1), (E, 1, H), (E,), (E, 1)])
def test_an_amax_that_gate_and_up_share_already(shape: tuple[int, ...]) -> None:
    """For the tensor, or for each expert: nothing to do, and nothing to warn of."""
    container = fused(is_concatenated=True)
    container.gate_up_proj_weight_quantizer = Quantizer(torch.rand(shape))
    model = tree(mlp=block("MixtralSparseMoeBlock", container))
    before = snapshot(model)
    assert sync(model) == 0
    assert is_same(model, before)


def test_a_packing_that_nobody_knows() -> None:
    """Nobody's block without a flag: a warning, no guess. Control: shared already, no warning."""
    container = fused()
    model = tree(mlp=block("FooMoELayer", container))
    container.gate_up_proj_weight_quantizer = Quantizer(torch.rand(E, 2 * I, 1))
    before = snapshot(model)
    with pytest.warns(UserWarning, match=r"mlp: .*gate_up_proj.*alternate"):
        assert sync_moe_gate_up_amax(model) == 0
    assert is_same(model, before)
    container.gate_up_proj_weight_quantizer.amax = torch.rand(E, 1, 1)  # type: ignore[union-attr]
    assert sync(model) == 0


def test_an_amax_that_does_not_fit() -> None:
    """Its rows are no rows of the weight: a warning."""
    container = fused(is_concatenated=True)
    container.gate_up_proj_weight_quantizer = Quantizer(torch.rand(E, 2 * I + 1, 1))
    with pytest.warns(UserWarning, match=rf"mlp: .*doesn't show {2 * I} rows"):
        assert sync_moe_gate_up_amax(tree(mlp=block("MixtralSparseMoeBlock", container))) == 0


def test_what_the_spec_says_fits_what_is_seen() -> None:
    """Of a spec's fused layouts, those that the module doesn't contradict. Control: none agree."""
    spec = get_spec("mixtral")
    assert spec.moe_spec is not None
    alternating = dataclasses.replace(FUSED_TRANSPOSED, is_concatenated=False)
    layouts = (("4.57.0", alternating), ("5.0.0", FUSED))
    both = dataclasses.replace(spec, moe_spec=dataclasses.replace(spec.moe_spec, layouts=layouts))
    weights = {"gate_up_proj": (E, 2 * I, H // 2), "down_proj": (E, H, I // 2)}  # packed
    packed = {name: nn.Parameter(torch.zeros(shape)) for name, shape in weights.items()}
    for experts, axis, concatenated in (
        (fused(), 1, True),
        (fused(transposed=True), 2, False),
        (tree("Experts", **packed), None, None),
        (tree("Experts", **packed, is_concatenated=False), 2, False),
        (tree("Experts", **packed, is_concatenated=True), 1, True),
        (tree("Experts", **packed, is_transposed=True), 2, False),
    ):
        packing = find_packing(block("X", experts), both)
        assert (packing.axis, packing.is_concatenated) == (axis, concatenated)
        assert find_packing(block("X", fused()), None).is_concatenated is None
    model = tree(mlp=block("X", tree("Experts", **packed)))
    model.mlp.experts.gate_up_proj_weight_quantizer = Quantizer(torch.rand(E, 2 * I, 1))  # type: ignore[union-attr]
    name_class(model.mlp, "FooMoELayer")  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="whether the weight is transposed"):
        assert sync_moe_gate_up_amax(model) == 0


def test_gate_and_up_as_two_fused_parameters() -> None:
    """One quantizer each. Control: down's stays."""
    container = fused(LLAMA)
    for name in LLAMA:
        setattr(container, f"{name}_weight_quantizer", Quantizer(torch.rand(E, I, 1)))
    model = tree(mlp=block("Qwen3MoeSparseMoeBlock", container))
    before = snapshot(model)
    assert sync(model) == 1
    after = snapshot(model)
    path = "mlp.experts.{}_proj_weight_quantizer"
    wanted = before[path.format("gate")].maximum(before[path.format("up")])
    assert torch.equal(after[path.format("gate")], wanted)
    assert torch.equal(after[path.format("up")], wanted)
    assert torch.equal(after[path.format("down")], before[path.format("down")])


def test_dbrx_split_by_projection() -> None:
    """A list of linears for each of w1, v1 and w2. Control: lists of other lengths are no pairs."""

    def make(count: int) -> nn.Module:
        names = {"w1_linear": E, "v1_linear": count, "w2_linear": E}
        lists = {k: nn.ModuleList(nn.Linear(H, I) for _ in range(n)) for k, n in names.items()}
        experts = tree("DbrxExperts", mlp=tree("GLU", **lists))
        return tree(ffn=quantize(block("DbrxFFN", experts), I, 1))

    model = make(E)
    before = snapshot(model)
    assert sync(model, "dbrx") == E
    mlp: Any = model.ffn.experts.mlp  # type: ignore[union-attr]
    for number in range(E):
        path = f"ffn.experts.mlp.{{}}_linear.{number}.weight_quantizer"
        wanted = before[path.format("w1")].maximum(before[path.format("v1")])
        for name in ("w1", "v1"):
            assert torch.equal(read(getattr(mlp, f"{name}_linear"), str(number)), wanted)
        assert torch.equal(read(mlp.w2_linear, str(number)), before[path.format("w2")])
    with pytest.warns(UserWarning, match=f"{E} and {E - 1}"):
        assert sync_moe_gate_up_amax(make(E - 1), "dbrx") == 0


def test_experts_without_a_gate() -> None:
    """Rows of up alone are no pair, whatever they are called. Control: with a gate they are."""
    for names, gated in ((("up_proj", "down_proj"), False), (("fc1", "fc2"), True)):
        container = fused(names, gated=gated)
        setattr(container, f"{names[0]}_weight_quantizer", Quantizer(torch.rand(E, I, 1)))
        model = tree(mlp=block("FooMoELayer", container))
        before = snapshot(model)
        if not gated:
            assert sync(model) == 0
        else:
            with pytest.warns(UserWarning, match="alternate"):
                assert sync_moe_gate_up_amax(model) == 0
        assert is_same(model, before)


def test_experts_that_two_blocks_share() -> None:
    """Counted once. Control: two blocks of their own count twice."""
    experts = quantize(iterable(MIXTRAL))
    first, second = (block("MixtralSparseMoeBlock", experts) for _ in range(2))
    assert sync(tree(a=first, b=second)) == E
    container = fused(is_concatenated=True)
    container.gate_up_proj_weight_quantizer = Quantizer(torch.rand(E, 2 * I, 1))
    first, second = (block("MixtralSparseMoeBlock", container) for _ in range(2))
    assert sync(tree(a=first, b=second)) == 1
    other = quantize(iterable(MIXTRAL))
    pair = (block("MixtralSparseMoeBlock", held) for held in (experts, other))
    assert sync(tree(**dict(zip("ab", pair, strict=True)))) == 2 * E


def test_half_a_pair_is_none() -> None:
    """Of the pairs tried, one whose gate alone is there. Control: with both, it is one."""
    linears = {n: nn.ModuleList(nn.Linear(H, I) for _ in range(E)) for n in ("w1", "w2")}
    experts = tree("Experts", **linears)
    assert sync(tree(mlp=quantize(block("FooMoELayer", experts)))) == 0
    experts.w3 = nn.ModuleList(nn.Linear(H, I) for _ in range(E))
    assert sync(tree(mlp=quantize(block("FooMoELayer", experts)))) == E


def test_a_tree_without_experts() -> None:
    """Nothing to do. Control: with a block below it, there is."""
    assert sync(nn.Linear(1, 1)) == 0
    assert sync(tree(mlp=block("MixtralSparseMoeBlock", None))) == 0
    deep = tree(a=tree(b=quantize(block("MixtralSparseMoeBlock", iterable(MIXTRAL)))))
    assert sync(deep) == E
    assert sync(quantize(block("MixtralSparseMoeBlock", iterable(MIXTRAL)))) == E
