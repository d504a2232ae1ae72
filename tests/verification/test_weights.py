# proves: P7
"""Decoding agrees with ONNX Runtime's own kernels, and the grid's rules reject what is off it."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from assay.errors import RuntimeFolderError
from assay.verification.folder import ModelFolder, open_folder
from assay.verification.packed_nodes import find_packed_tensors
from assay.verification.weight_match import Parameters, match_by_value
from assay.verification.weight_proof import prove_weights
from assay.verification.weights import decode_rows

N, K = 24, 96


def graph_folder(tmp_path, node, arrays, inputs, output):
    initializers = [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    graph = helper.make_graph([node], "one", inputs, [output], initializers)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return ModelFolder(tmp_path, tmp_path / "model.onnx", proto, {}, None)


def run(folder, **feeds):
    session = onnxruntime.InferenceSession(
        folder.proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)[0]


def decode(folder):
    (tensor,) = find_packed_tensors(folder)
    blocks = list(decode_rows(folder, tensor, block_elements=5 * K))
    assert len(blocks) > 1
    return np.concatenate([rows.weight_NK for _, rows in blocks])


@pytest.mark.parametrize(
    ("bits", "zeros"),
    [
        (2, "none"),
        (2, "packed"),
        (4, "none"),
        (4, "packed"),
        (4, "float"),
        (8, "none"),
        (8, "packed"),
    ],
)
def test_matmul_weights_are_what_the_kernel_computes_with(tmp_path, bits, zeros):
    rng = np.random.default_rng(bits)
    group, groups = 32, 3
    arrays = {
        "B": rng.integers(0, 256, (N, groups, group * bits // 8), dtype=np.uint8),
        "scales": rng.normal(size=(N, groups)).astype(np.float32),
    }
    if zeros == "packed":
        shape = (N, -(-groups * bits // 8))
        arrays["zero_points"] = rng.integers(0, 256, shape, dtype=np.uint8)
    elif zeros == "float":
        arrays["zero_points"] = rng.normal(8, 2, size=(N, groups)).astype(np.float32)
    node = helper.make_node(
        "MatMulNBits",
        ["A", *arrays],
        ["Y"],
        domain="com.microsoft",
        N=N,
        K=K,
        bits=bits,
        block_size=group,
        accuracy_level=0,
    )
    folder = graph_folder(
        tmp_path,
        node,
        arrays,
        [helper.make_tensor_value_info("A", TensorProto.FLOAT, [K, K])],
        helper.make_tensor_value_info("Y", TensorProto.FLOAT, [K, N]),
    )
    kernel = run(folder, A=np.eye(K, dtype=np.float32)).T
    np.testing.assert_allclose(decode(folder), kernel, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_embedding_rows_are_what_the_kernel_gathers(tmp_path, bits, zeros):
    rng = np.random.default_rng(bits)
    groups = 3
    arrays = {
        "data": rng.integers(0, 256, (N, K * bits // 8), dtype=np.uint8),
        "scales": rng.normal(size=(N, groups)).astype(np.float32),
    }
    if zeros:
        shape = (N, -(-groups * bits // 8))
        arrays["zero_points"] = rng.integers(0, 256, shape, dtype=np.uint8)
    names = ["data", "ids", "scales", *(["zero_points"] if zeros else [])]
    node = helper.make_node(
        "GatherBlockQuantized",
        names,
        ["Y"],
        domain="com.microsoft",
        bits=bits,
        block_size=32,
        gather_axis=0,
        quantize_axis=1,
    )
    folder = graph_folder(
        tmp_path,
        node,
        arrays,
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [N])],
        helper.make_tensor_value_info("Y", TensorProto.FLOAT, [N, K]),
    )
    np.testing.assert_array_equal(decode(folder), run(folder, ids=np.arange(N)))


def prove(tiny, tmp_path, model=None, **options):
    model = model or tiny.build_model(tied=options.pop("tied", False))
    faults = {k: options.pop(k) for k in list(options) if k in tiny.Faults.__annotations__}
    writer = tiny.FolderWriter(model, tiny.Faults(**faults), **{"bits": 4, **options})
    folder = open_folder(writer.write(tmp_path))
    return prove_weights(folder, model), model, folder


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("manifest", [True, False])
def test_rounding_to_nearest_is_on_its_grid(tiny, tmp_path, bits, symmetric, half, manifest):
    fidelities, _, _ = prove(
        tiny, tmp_path, bits=bits, symmetric=symmetric, half=half, with_manifest=manifest
    )
    assert len(fidelities) == 5 * tiny.LAYERS + 1
    assert all(f.passed and f.off_grid == f.wide_groups == 0 for f in fidelities)
    low, high = {4: (0.05, 0.15), 8: (0.003, 0.01)}[bits]
    assert all(low < f.rel_l2 < high for f in fidelities)
    assert {len(f.tensors) for f in fidelities} == {1, 3}


@pytest.mark.parametrize(
    ("fault", "is_encoding"),
    [
        ({"abs_scales": True}, True),
        ({"swap_nibbles": True}, True),
        ({"scale_factor": 1.05}, False),
        ({"q_head_scale": 1.05}, False),
    ],
)
def test_planted_fault_leaves_the_grid(tiny, tmp_path, fault, is_encoding):
    fidelities, _, _ = prove(tiny, tmp_path, **fault)
    worst = max(fidelities, key=lambda f: f.rel_l2)
    assert not all(f.passed for f in fidelities)
    assert worst.encoding_fault is is_encoding
    if is_encoding:
        assert 1.3 < worst.rel_l2 < 1.6
    if "q_head_scale" in fault:
        assert [f.packed for f in fidelities if not f.passed] == [
            "model.layers.0.self_attn.qkv_proj.packed"
        ]


def test_a_needlessly_wide_step_is_not_excused_by_itself(tiny, tmp_path, monkeypatch):
    """Half a step of a grid four times too coarse would allow any fault."""
    right = tiny.quantize

    def coarse(weight, bits, *, symmetric):
        _, scales, zeros = right(weight, 2 * bits, symmetric=symmetric)
        scales = scales * 64.0
        groups = weight.reshape(len(weight), -1, tiny.GROUP)
        codes = np.clip(np.rint(groups / scales[..., None]) + 8, 0, 15).astype(np.uint8)
        return tiny._pack(codes, bits), scales.astype(np.float32), zeros

    monkeypatch.setattr(tiny, "quantize", coarse)
    fidelities, _, _ = prove(tiny, tmp_path)
    assert all(f.wide_groups > 0.9 for f in fidelities)
    assert not any(f.passed for f in fidelities)


def test_decoded_values_take_the_place_of_the_originals(tiny, tmp_path):
    before = tiny.build_model().state_dict()["model.layers.1.self_attn.k_proj.weight"].numpy()
    _, model, folder = prove(tiny, tmp_path)
    packed = next(t for t in find_packed_tensors(folder) if "layers.1.self_attn.qkv" in t.packed)
    decoded = np.concatenate([r.weight_NK for _, r in decode_rows(folder, packed)])
    after = model.state_dict()["model.layers.1.self_attn.k_proj.weight"].numpy()
    np.testing.assert_array_equal(after, decoded[64:96])
    assert not np.array_equal(after, before)


def test_shared_embedding_and_head_stay_tied(tiny, tmp_path):
    fidelities, model, _ = prove(tiny, tmp_path, tied=True)
    assert len(fidelities) == 5 * tiny.LAYERS + 1
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_a_head_packed_alone_leaves_the_embedding_as_it_is(tiny, tmp_path):
    """The checkpoint ties them, the folder doesn't: the reference must follow the folder."""
    model = tiny.build_model(tied=True)
    original = model.get_input_embeddings().weight.detach().clone()
    writer = tiny.FolderWriter(model, bits=4)
    model.config.tie_word_embeddings = False  # the writer then keeps a float embedding
    writer.state["lm_head.weight"] = writer.state["model.embed_tokens.weight"]
    prove_weights(open_folder(writer.write(tmp_path)), model)
    np.testing.assert_array_equal(model.get_input_embeddings().weight.detach(), original)
    assert not np.array_equal(model.get_output_embeddings().weight.detach(), original)


def test_weights_of_another_model_are_not_matched(tiny, tmp_path):
    _, _, folder = prove(tiny, tmp_path, with_manifest=False)
    other = Parameters(tiny.build_model(seed=1))
    right = Parameters(tiny.build_model())
    for tensor in find_packed_tensors(folder):
        assert match_by_value(folder, tensor, other) is None
        assert match_by_value(folder, tensor, right) is not None


def test_names_are_found_by_their_ends(tiny):
    parameters = Parameters(tiny.build_model())
    name = "model.layers.1.mlp.up_proj.weight"
    assert parameters.find(name) == name
    assert parameters.find("language_model." + name) == name
    assert parameters.find("layers.1.mlp.up_proj.weight") == name
    assert parameters.find("model.layers.7.mlp.up_proj.weight") is None
    assert parameters.find("model.layers.1.mlp.other.weight") is None


def test_manifest_that_does_not_add_up_is_refused(tiny, tmp_path):
    _, model, folder = prove(tiny, tmp_path)
    entry = folder.manifest["weights"]["model.layers.0.self_attn.qkv_proj"]
    entry["parts"].pop()
    with pytest.raises(RuntimeFolderError, match="lists 96 rows for it, the graph 128"):
        prove_weights(folder, model)
    del entry["parts"]
    with pytest.raises(RuntimeFolderError, match="which checkpoint rows"):
        prove_weights(folder, model)


def test_truncated_codes_are_named(tiny, tmp_path):
    _, model, folder = prove(tiny, tmp_path)
    data = tmp_path / "model.onnx.data"
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(RuntimeFolderError, match="aren't all there"):
        prove_weights(folder, model)


def test_external_and_inner_weights_read_the_same(tiny, tmp_path):
    _, _, folder = prove(tiny, tmp_path)
    inner = onnx.load(str(tmp_path / "model.onnx"))
    memory = ModelFolder(tmp_path, folder.graph_path, inner, {}, None)
    for a, b in zip(find_packed_tensors(folder), find_packed_tensors(memory), strict=True):
        for (_, x), (_, y) in zip(decode_rows(folder, a), decode_rows(memory, b), strict=True):
            np.testing.assert_array_equal(x.weight_NK, y.weight_NK)
