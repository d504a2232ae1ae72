# proves: P9
"""Folders of any shape are read by their own signature, and edited without touching the disk."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from assay.errors import RuntimeFolderError
from assay.verification import open_candidate
from assay.verification.all_positions import bypass_last_position, set_accuracy_level
from assay.verification.folder import open_folder


@pytest.fixture
def folder(tiny, tmp_path):
    return tiny.FolderWriter(tiny.build_model()).write(tmp_path / "folder")


def edit(folder, change):
    path = folder / "model.onnx"
    proto = onnx.load(path, load_external_data=False)
    change(proto)
    onnx.save(proto, path)


def digest(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_bypass_gives_every_position_and_touches_no_file(folder, ids):
    before = digest(folder)
    edited = open_candidate(folder)
    shipped = open_candidate(folder, all_positions=False)
    assert (edited.bypassed, edited.covers_all_positions) == (True, True)
    assert (shipped.bypassed, shipped.covers_all_positions) == (False, False)
    every = edited.prefill(ids[:40])
    last, _ = shipped.feed(shipped.start(), ids[None, :40])
    assert every.shape == (40, 256)
    np.testing.assert_allclose(every[-1], last[0, -1], rtol=1e-5, atol=1e-6)
    assert digest(folder) == before


def test_unknown_picker_falls_back_to_decoding(folder, ids):
    """A last position taken in an unknown way: token by token gives the same logits."""
    truth = open_candidate(folder).prefill(ids[:20])

    def hide(proto):
        for node in proto.graph.node:
            if node.output[0] == "last_hidden":
                node.op_type, node.domain = "ReduceMax", ""
                node.input[1] = "axes_1"
                del node.attribute[:]
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray([1], np.int64), "axes_1"))

    edit(folder, hide)
    candidate = open_candidate(folder)
    assert not candidate.covers_all_positions
    np.testing.assert_allclose(candidate.prefill(ids[:20]), truth, rtol=1e-4, atol=1e-5)


def head_graph(*middle, extra=()):
    nodes = [
        helper.make_node("SimplifiedLayerNormalization", ["x", "w"], ["normed"]),
        *middle,
        helper.make_node("MatMul", ["picked", "head"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "head",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", "S", 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["B", 1, 8])],
        [numpy_helper.from_array(np.asarray(a, t), n) for n, a, t in extra],
    )
    return helper.make_model(graph)


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        (
            [helper.make_node("Gather", ["normed", "i"], ["picked"], axis=1)],
            [("i", [-1], np.int64)],
        ),
        (
            [
                helper.make_node("Gather", ["normed", "i"], ["g"], axis=1),
                helper.make_node("Unsqueeze", ["g", "a"], ["picked"]),
            ],
            [("i", -1, np.int64), ("a", [1], np.int64)],
        ),
        (
            [helper.make_node("Slice", ["normed", "b", "e", "a"], ["picked"])],
            [("b", [-1], np.int64), ("e", [9999], np.int64), ("a", [1], np.int64)],
        ),
    ],
    ids=["gather", "gather and unsqueeze", "slice"],
)
def test_pickers_that_are_known(nodes, constants):
    edited = bypass_last_position(head_graph(*nodes, extra=constants), "logits")
    assert edited is not None
    assert edited.graph.node[-1].input[0] == "normed"


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        (
            [helper.make_node("Gather", ["normed", "i"], ["picked"], axis=2)],
            [("i", [-1], np.int64)],
        ),
        (
            [helper.make_node("Gather", ["normed", "i"], ["picked"], axis=1)],
            [("i", [0, 1], np.int64)],
        ),
        ([helper.make_node("Gather", ["normed", "i"], ["picked"], axis=1)], [("i", -1, np.int64)]),
        ([helper.make_node("Identity", ["normed"], ["picked"])], []),
    ],
    ids=["another axis", "two positions", "rank lost", "every position"],
)
def test_pickers_that_must_stay(nodes, constants):
    assert bypass_last_position(head_graph(*nodes, extra=constants), "logits") is None


def test_accuracy_level_is_forced_in_a_copy(tiny, tmp_path):
    writer = tiny.FolderWriter(tiny.build_model(), bits=4, accuracy_level=4)
    proto = open_folder(writer.write(tmp_path)).proto
    levels = [
        {a.name: a.i for a in n.attribute}["accuracy_level"]
        for n in set_accuracy_level(proto, 0).graph.node
        if n.op_type == "MatMulNBits"
    ]
    assert set(levels) == {0}
    assert any(
        a.i == 4 for n in proto.graph.node for a in n.attribute if a.name == "accuracy_level"
    )


def test_chunks_and_single_tokens_agree_with_one_prefill(folder, ids):
    candidate = open_candidate(folder)
    whole = candidate.prefill(ids[:30])
    state = candidate.start()
    parts = []
    for start, stop in ((0, 1), (1, 12), (12, 29), (29, 30)):
        logits, state = candidate.feed(state, ids[None, start:stop])
        parts.append(logits[0])
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-4, atol=1e-5)


def test_int32_inputs_and_renamed_caches(folder, ids):
    truth = open_candidate(folder).prefill(ids[:16])

    def rename(proto):
        for value in proto.graph.input:
            if value.name in ("input_ids", "attention_mask", "position_ids"):
                value.type.tensor_type.elem_type = TensorProto.INT32
        for values in (proto.graph.input, proto.graph.output):
            for value in values:
                value.name = new_name(value.name)
        for node in proto.graph.node:
            for names in (node.input, node.output):
                names[:] = [new_name(name) for name in names]

    def new_name(name):
        name = name.replace("past_key_values.", "old_")
        return name.replace("present.", "new_") if name.startswith("present.") else name

    edit(folder, rename)
    config = json.loads((folder / "genai_config.json").read_text())
    decoder = config["model"]["decoder"]
    decoder["inputs"] |= {"past_key_names": "old_%d.key", "past_value_names": "old_%d.value"}
    decoder["outputs"] |= {"present_key_names": "new_%d.key", "present_value_names": "new_%d.value"}
    (folder / "genai_config.json").write_text(json.dumps(config))
    candidate = open_candidate(folder)
    assert {s.past for s in candidate.folder.signature.slots} >= {"old_0.key", "old_1.value"}
    np.testing.assert_array_equal(candidate.prefill(ids[:16]), truth)


def test_a_folder_without_genai_config_uses_the_usual_names(folder, ids):
    truth = open_candidate(folder).prefill(ids[:16])
    (folder / "genai_config.json").unlink()
    np.testing.assert_array_equal(open_candidate(folder).prefill(ids[:16]), truth)


def test_symbolic_head_size_comes_from_the_config(folder, ids):
    truth = open_candidate(folder).prefill(ids[:16])

    def hide(proto):
        for value in proto.graph.input:
            dims = value.type.tensor_type.shape.dim
            if len(dims) == 4:
                dims[3].dim_param = "cache_width"

    edit(folder, hide)
    np.testing.assert_array_equal(open_candidate(folder).prefill(ids[:16]), truth)


def test_an_input_that_nobody_knows_is_named(folder):
    def add(proto):
        proto.graph.input.append(
            helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, ["B", 3, 8, 8])
        )

    edit(folder, add)
    with pytest.raises(RuntimeFolderError, match="pixel_values"):
        open_candidate(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "model.onnx").unlink(), r"model.onnx isn't there"),
        (lambda f: (f / "model.onnx").write_bytes(b"\x08\x0aonnx?"), "not a readable ONNX file"),
        (lambda f: (f / "genai_config.json").write_text("{"), "not valid JSON"),
        (lambda f: (f / "model.onnx.data").unlink(), "can't load the graph"),
        (lambda f: (f / "model.onnx.data").write_bytes(b"short"), "can't load the graph"),
    ],
    ids=["no graph", "bad graph", "bad config", "no weights", "truncated weights"],
)
def test_a_damaged_folder_is_a_clear_error(folder, damage, message):
    damage(folder)
    with pytest.raises(RuntimeFolderError, match=message):
        open_candidate(folder)
