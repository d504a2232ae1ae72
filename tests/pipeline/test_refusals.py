"""Each fault of a checkpoint or an option is one clear error, and leaves nothing.

Beside every fault stands its control: the same export with the fault mended succeeds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.errors import (
    AssayError,
    CheckpointError,
    ConfigError,
    OptionError,
    UnknownArchitectureError,
    WeightError,
)
from assay.pipeline import export
from tests.pipeline.tiny import LEFT_OUT, Tensors, make_config, make_tensors, write_llama

DOWN = "model.layers.1.mlp.down_proj.weight"
NORM = "model.layers.1.input_layernorm.weight"
GATE = "model.layers.0.mlp.gate_proj.weight"


@dataclass(frozen=True)
class Fault:
    """kind: of error. words: of its message. checkpoint and options: of the failing export;
    mended: what differs in the one that succeeds."""

    kind: type[AssayError]
    words: tuple[str, ...]
    checkpoint: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    mended: dict[str, Any] = field(default_factory=dict)
    mended_options: dict[str, Any] = field(default_factory=dict)


def with_value(name: str, value: float) -> dict[str, Any]:
    """A checkpoint with one value of one tensor replaced."""

    def change(tensors: Tensors) -> None:
        tensors[name][3, ...] = value

    return {"change": change}


def with_tensor(name: str, *shape: int) -> dict[str, Any]:
    """A checkpoint with one tensor more."""

    def change(tensors: Tensors) -> None:
        tensors[name] = np.zeros(shape, np.float32)

    return {"change": change}


def without_tensor(name: str) -> dict[str, Any]:
    """A checkpoint with one tensor less."""

    def change(tensors: Tensors) -> None:
        del tensors[name]

    return {"change": change}


def int4(**more: Any) -> dict[str, Any]:
    """Options of an int4 export."""
    return {"precision": "int4", **more}


GEMMA = {"model_type": "gemma", "hidden_act": "gelu", "tie_word_embeddings": True}
SMALL = {"tensors": make_tensors(make_config())}
DAMAGED = "The checkpoint is damaged"

CONFIG_FAULTS = {
    "unknown key": Fault(
        ConfigError,
        ("config.json", "frobnicate = 3", "--ignore-config-key frobnicate"),
        {"frobnicate": 3},
        mended={"frobnicate": 3},
        mended_options={"ignore_config_keys": ("frobnicate",)},
    ),
    "misspelt key": Fault(
        ConfigError,
        ("rope_thetta", "did you mean 'rope_theta'"),
        {"rope_thetta": 5e5, "rope_theta": LEFT_OUT},
        mended={"rope_theta": 5e5},
    ),
    "refused value": Fault(
        ConfigError,
        ("use_bidirectional_attention = True", "False or None"),
        {**GEMMA, "use_bidirectional_attention": True},
        mended={**GEMMA, "use_bidirectional_attention": False},
    ),
    "encoder-decoder": Fault(
        ConfigError,
        ("is_encoder_decoder = True", "False"),
        {"is_encoder_decoder": True},
        mended={"is_encoder_decoder": False},
    ),
    "unknown model_type": Fault(
        UnknownArchitectureError,
        ("'lama'", "llama", "assay models list"),
        {"model_type": "lama"},
    ),
    "unknown rope": Fault(
        ConfigError,
        ("'spiral'", "yarn"),
        {"rope_scaling": {"rope_type": "spiral", "factor": 2.0}},
        mended={"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    ),
    "leftover rope parameter": Fault(
        ConfigError,
        ("linear", "beta_fast"),
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "beta_fast": 3}},
        mended={"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    ),
    "end token": Fault(
        ConfigError,
        ("eos_token_id is '</s>'", "an integer"),
        {"eos_token_id": "</s>"},
        mended={"eos_token_id": [2]},
    ),
    "search option": Fault(
        ConfigError,
        ("temperature is 'hot'", "a number"),
        {"generation": {"temperature": "hot"}},
        mended={"generation": {"temperature": 1}},
    ),
    "heads": Fault(
        ConfigError,
        ("layer 0", "4 attention heads", "3 key/value heads"),
        {"num_key_value_heads": 3, **SMALL},
    ),
}

TENSOR_FAULTS = {
    "unmapped": Fault(
        WeightError,
        ("model.layers.0.self_attn.q_norm.bias", "no place in the spec", "ignored with a reason"),
        with_tensor("model.layers.0.self_attn.q_norm.bias", 16),
        mended=with_tensor("model.layers.0.self_attn.rotary_emb.inv_freq", 8),
    ),
    "missing": Fault(
        WeightError,
        ("model.layers.1.mlp.down_proj.weight is missing", "[64, 96]"),
        without_tensor(DOWN),
    ),
    "missing bias": Fault(
        WeightError,
        ("model.layers.0.self_attn.q_proj.bias is missing",),
        {"attention_bias": True},
        mended={"attention_bias": False},
    ),
    "missing head": Fault(
        WeightError,
        ("lm_head.weight is missing",),
        without_tensor("lm_head.weight"),
        mended={**without_tensor("lm_head.weight"), "tie_word_embeddings": True, **SMALL},
    ),
    "wrong shape": Fault(
        WeightError,
        (GATE, "[96, 64]", "[104, 64]", "config.json"),
        {"intermediate_size": 104, **SMALL},
        mended={"intermediate_size": 96, **SMALL},
    ),
    "NaN in int4": Fault(WeightError, (DOWN, "row 3", DAMAGED), with_value(DOWN, np.nan), int4()),
    "infinity in int8": Fault(
        WeightError, (DOWN, "row 3", DAMAGED), with_value(DOWN, np.inf), {"precision": "int8"}
    ),
    "NaN in fp32": Fault(WeightError, (DOWN, "[3, 0]", "nan", DAMAGED), with_value(DOWN, np.nan)),
    "NaN in a norm": Fault(WeightError, (NORM, "nan", DAMAGED), with_value(NORM, np.nan), int4()),
    "fp16 overflow": Fault(
        WeightError,
        (DOWN, "1e+06", "float16", "65504"),
        with_value(DOWN, 1e6),
        {"precision": "fp16"},
        with_value(DOWN, 1e6),
        {"precision": "fp32"},
    ),
    "fp16 overflow of a norm": Fault(
        WeightError,
        (NORM, "float16"),
        with_value(NORM, 1e6),
        {"precision": "fp16"},
        with_value(NORM, 1e4),
        {"precision": "fp16"},
    ),
    "fp16 overflow of a scale": Fault(
        WeightError,
        (f"scales of {DOWN}", "float16"),
        with_value(DOWN, 1e6),
        {"precision": "fp16", "keep": ("*.down_proj=int4",)},
        with_value(DOWN, 1e5),
        {"precision": "fp16", "keep": ("*.down_proj=int4",)},
    ),
}

OPTION_FAULTS = {
    "bf16 on cpu": Fault(
        OptionError,
        ("-p bf16 -e cpu", "no bf16 kernels", "Use fp32"),
        options={"precision": "bf16"},
        mended_options={"precision": "fp32"},
    ),
    "precision": Fault(OptionError, ("-p", "'int3'", "int4"), options={"precision": "int3"}),
    "provider": Fault(OptionError, ("-e", "'tpu'", "cpu"), options={"execution_provider": "tpu"}),
    "head format": Fault(OptionError, ("--head", "'int5'", "int8"), options=int4(head="int5")),
    "keep format": Fault(
        OptionError,
        ("--keep *=q4", "'q4'", "int8"),
        options=int4(keep=("*=q4",)),
        mended_options=int4(keep=("*=int8",)),
    ),
    "keep without a format": Fault(
        OptionError,
        ("--keep *.down_proj", "PATTERN=FORMAT"),
        options=int4(keep=("*.down_proj",)),
        mended_options=int4(keep=("*.down_proj=fp16",)),
    ),
    "keep that matches nothing": Fault(
        OptionError,
        ("--keep *.dwn_proj", "matches no projection", "Quote it"),
        options=int4(keep=("*.down_proj=fp16", "*.dwn_proj=fp16")),
        mended_options=int4(keep=("*.down_proj=fp16", "*.up_proj=fp16")),
    ),
    "group size": Fault(
        OptionError,
        ("group_size", "48", "32", "256"),
        options=int4(group_size=48),
        mended_options=int4(group_size=64),
    ),
    "group size below": Fault(OptionError, ("group_size", "8"), options=int4(group_size=8)),
    "attention": Fault(
        OptionError, ("--attention", "'flash'", "gqa"), options={"attention": "flash"}
    ),
    "accuracy level": Fault(OptionError, ("--accuracy-level", "3"), options={"accuracy_level": 3}),
    "negative length": Fault(
        OptionError, ("--context-length", "-1"), options={"context_length": -1}
    ),
    "length beyond the model's": Fault(
        OptionError,
        ("--context-length 129", "128"),
        options={"context_length": 129},
        mended_options={"context_length": 128},
    ),
    "name": Fault(OptionError, ("precison", "precision"), options={"precison": "int4"}),
}

FAULTS = {**CONFIG_FAULTS, **TENSOR_FAULTS, **OPTION_FAULTS}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_one_clear_error(fault: Fault, tmp_path: Path, room: Path) -> None:
    """proves: B3, B10. Control: the fault mended, the same export succeeds."""
    checkpoint = write_llama(tmp_path / "checkpoint", **fault.checkpoint)
    with pytest.raises(AssayError) as caught:
        export(checkpoint, room / "deep" / "out", check_loading=False, **fault.options)
    check_error(caught.value, fault)
    assert list(room.iterdir()) == [], "a failed export left something"

    mended = write_llama(tmp_path / "mended", **fault.mended)
    export(mended, room / "deep" / "out", check_loading=False, **fault.mended_options)
    assert sorted(path.name for path in room.iterdir()) == ["deep"]
    assert [path.name for path in (room / "deep").iterdir()] == ["out"]


def check_error(error: AssayError, fault: Fault) -> None:
    """One error of the right kind that says where, what was found, and what to do."""
    message = str(error)
    assert type(error) is fault.kind, message
    assert error.where
    assert error.found
    assert error.expected or error.next_step or "heads" in message, message
    for word in fault.words:
        assert word in message, message
    assert len(message.splitlines()) <= 4


def test_a_truncated_file_is_refused(tmp_path: Path, room: Path) -> None:
    """proves: B3. Control: the whole file is taken."""
    checkpoint = write_llama(tmp_path / "checkpoint")
    file = checkpoint / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    with pytest.raises(CheckpointError, match="is truncated") as caught:
        export(checkpoint, room / "out", check_loading=False)
    assert f"{len(whole) - 100:,}" in caught.value.found
    assert f"{len(whole):,}" in caught.value.expected
    assert "download it again" in caught.value.next_step
    assert list(room.iterdir()) == []
    file.write_bytes(whole)
    export(checkpoint, room / "out", check_loading=False)


def test_a_file_truncated_while_it_is_read_is_refused(tmp_path: Path, room: Path) -> None:
    """The header was good, so only reading finds it. proves: B3. Control: untouched, it exports."""
    checkpoint = write_llama(tmp_path / "checkpoint")
    file = checkpoint / "model.safetensors"

    class Truncating:
        """Cuts the file when the writing begins."""

        def start(self, stage: str, total_bytes: int = 0) -> None:
            if stage == "write":
                file.write_bytes(file.read_bytes()[:5000])

        def advance(self, num_bytes: int) -> None:
            pass

    with pytest.raises(CheckpointError, match="ends at byte") as caught:
        export(checkpoint, room / "out", check_loading=False, progress=Truncating())
    assert "while it is read" in caught.value.next_step
    assert list(room.iterdir()) == []
    export(write_llama(tmp_path / "untouched"), room / "out", check_loading=False)


def test_a_row_of_a_later_chunk_is_found(
    tmp_path: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad weight is named by its tensor and rows, however the tensor is cut. proves: B3"""
    monkeypatch.setattr("assay.writers.onnx_genai.data_writer.CHUNK_ELEMENTS", 96 * 10)

    def change(tensors: Tensors) -> None:
        tensors[DOWN][37] = np.nan

    checkpoint = write_llama(tmp_path / "checkpoint", change=change)
    with pytest.raises(WeightError) as caught:
        export(checkpoint, room / "out", check_loading=False, precision="int4")
    assert f"{DOWN}, rows 30 to 40 counted from 0" == caught.value.where
    assert "row 7" in caught.value.found
    monkeypatch.undo()
    with pytest.raises(WeightError, match="row 37 ") as caught:  # control: in one chunk
        export(checkpoint, room / "out", check_loading=False, precision="int4")
    assert caught.value.where == DOWN
