"""A tiny llama-like decoder twice: in transformers, and as an ONNX folder written by hand.

The graph is built with onnx.helper from the model's own weights, independent of assay's builder,
so that the judge is tested before and beside it. Every fault that a test plants is an argument.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

VOCAB, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, LAYERS, GROUP = 256, 64, 4, 2, 16, 2, 32
EPS, THETA, WINDOW = 1e-5, 10000.0, 16


def build_model(
    *, std: float = 0.1, window: bool = False, tied: bool = False, seed: int = 0
) -> torch.nn.Module:
    """A seeded model: biases away from 0 (llama) or a window of 16 (mistral), norms away from 1."""
    shared: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 128,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": 1024,
        "rms_norm_eps": EPS,
        "tie_word_embeddings": tied,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    if window:
        config: Any = MistralConfig(sliding_window=WINDOW, **shared)
        kind: Any = MistralForCausalLM
    else:
        config, kind = LlamaConfig(attention_bias=True, **shared), LlamaForCausalLM
    model = kind._from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.copy_(1 + 0.2 * noise)
            else:
                parameter.copy_((0.3 if name.endswith("bias") else std) * noise)
    return model


@dataclass
class Faults:
    """What to get wrong; the defaults are right."""

    eps: float = EPS
    theta: float = THETA
    window_offset: int = 0
    q_head_scale: float = 1.0
    abs_scales: bool = False
    drop_bias: bool = False
    ignore_padding: bool = False
    first_position: bool = False
    scale_factor: float = 1.0  # of every quantization scale
    swap_nibbles: bool = False


@dataclass
class FolderWriter:
    """Collects one graph and writes it as a folder."""

    model: torch.nn.Module
    faults: Faults = field(default_factory=Faults)
    bits: int = 0  # 0: float weights
    symmetric: bool = True
    half: bool = False
    last_position: bool = True
    with_position_ids: bool = True
    with_manifest: bool = True
    accuracy_level: int = 0
    nodes: list[Any] = field(default_factory=list)
    initializers: list[Any] = field(default_factory=list)
    manifest: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state = {k: v.numpy() for k, v in self.model.state_dict().items()}
        self.config: Any = self.model.config
        self.dtype = np.float16 if self.half else np.float32
        self.element = TensorProto.FLOAT16 if self.half else TensorProto.FLOAT
        self.window = getattr(self.config, "sliding_window", None)

    def constant(self, name: str, array: Any) -> str:
        if all(tensor.name != name for tensor in self.initializers):
            self.initializers.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def weight(self, name: str, array: Any) -> str:
        return self.constant(name, np.asarray(array).astype(self.dtype))

    def ints(self, *values: int) -> str:
        return self.constant("ints_" + "_".join(map(str, values)), np.asarray(values, np.int64))

    def op(
        self, kind: str, inputs: list[str], name: str, *, num_outputs: int = 1, **attributes: Any
    ) -> str:
        contrib = {"GroupQueryAttention", "MatMulNBits", "GatherBlockQuantized"}
        outputs = [name] + [f"{name}/{i}" for i in range(1, num_outputs)]
        self.nodes.append(
            helper.make_node(
                kind,
                inputs,
                outputs,
                name=f"node/{name}",
                domain="com.microsoft" if kind in contrib else "",
                **attributes,
            )
        )
        return name

    def norm(self, value: str, tensor: str) -> str:
        weight = self.weight(tensor, self.state[tensor])
        return self.op(
            "SimplifiedLayerNormalization",
            [value, weight],
            tensor + "/out",
            axis=-1,
            epsilon=self.faults.eps,
            stash_type=1,
        )

    def linear(self, value: str, name: str, tensors: list[str]) -> str:
        """One projection of stacked weights, float or packed, with biases where there are any."""
        weight_NK = np.concatenate([self.state[t] for t in tensors])
        if tensors[0].endswith("layers.0.self_attn.q_proj.weight"):
            weight_NK = weight_NK.copy()
            weight_NK[HEAD_DIM : 2 * HEAD_DIM] *= self.faults.q_head_scale
        if self.bits:
            out = self.packed_linear(value, name, weight_NK, tensors)
        else:
            out = self.op("MatMul", [value, self.weight(f"{name}.weight", weight_NK.T)], name)
        biases = [t.replace(".weight", ".bias") for t in tensors]
        if biases[0] in self.state and not self.faults.drop_bias:
            bias = self.weight(f"{name}.bias", np.concatenate([self.state[b] for b in biases]))
            out = self.op("Add", [out, bias], f"{name}/biased")
        return out

    def packed(self, name: str, weight_NK: Any, tensors: list[str], kind: str) -> list[str]:
        """Quantize in the plainest way; returns the names of codes, scales and zero points."""
        packed, scales, zeros = quantize(weight_NK, self.bits, symmetric=self.symmetric)
        if self.faults.abs_scales:
            scales = np.abs(scales)
        if self.faults.swap_nibbles:
            packed = (packed >> 4) | (packed << 4)
        scales = scales * np.float32(self.faults.scale_factor)
        names = [self.constant(f"{name}.packed", packed), self.weight(f"{name}.scales", scales)]
        if zeros is not None:
            names.append(self.constant(f"{name}.zero_points", zeros))
        self.manifest[name] = {
            "kind": kind,
            "bits": self.bits,
            "group_size": GROUP,
            "symmetric": self.symmetric,
            "inputs": weight_NK.shape[1],
            "initializers": {
                "packed": names[0],
                "scales": names[1],
                "zero_points": names[2] if zeros is not None else None,
            },
            "parts": [
                {"tensor": t, "rows": [[0, len(self.state[t]), 1]], "transposed": False}
                for t in tensors
            ],
        }
        return names

    def packed_linear(self, value: str, name: str, weight_NK: Any, tensors: list[str]) -> str:
        names = self.packed(name, weight_NK, tensors, "matmul")
        return self.op(
            "MatMulNBits",
            [value, *names],
            name,
            N=len(weight_NK),
            K=weight_NK.shape[1],
            bits=self.bits,
            block_size=GROUP,
            accuracy_level=self.accuracy_level,
        )

    def embed(self) -> str:
        name = "model.embed_tokens.weight"
        table = self.state[name]
        if not (self.bits and self.config.tie_word_embeddings):
            return self.op("Gather", [self.weight(name, table), "input_ids"], "embedded")
        names = self.packed("lm_head", table, [name], "embedding")
        flat = self.op("Reshape", [names[0], self.ints(VOCAB, -1)], "embedding_codes")
        return self.op(
            "GatherBlockQuantized",
            [flat, "input_ids", *names[1:]],
            "embedded",
            bits=self.bits,
            block_size=GROUP,
            gather_axis=0,
            quantize_axis=1,
        )

    def mask_inputs(self) -> list[str]:
        """seqlens_k and total length for GroupQueryAttention, and an additive mask [B, 1, S, T].

        Without position ids it is the usual form: lengths from the mask, right padding only.
        """
        self.op("Cast", ["attention_mask"], "mask_int", to=TensorProto.INT32)
        self.op("Shape", ["mask_int"], "mask_shape")
        self.op("Gather", ["mask_shape", self.constant("one", np.asarray(1, np.int64))], "total64")
        self.op("Cast", ["total64"], "total", to=TensorProto.INT32)
        one = self.constant("one32", np.asarray(1, np.int32))
        if not self.with_position_ids:
            self.op("ReduceSum", ["mask_int", self.ints(1)], "lengths", keepdims=0)
            return [self.op("Sub", ["lengths", one], "seqlens"), "total", ""]
        self.op("ReduceMax", ["mask_int", self.ints(1)], "zeros_B", keepdims=0)
        self.op("Mul", ["zeros_B", self.constant("zero32", np.asarray(0, np.int32))], "none_B")
        self.op("Sub", ["total", one], "last")
        self.op("Add", ["none_B", "last"], "seqlens")
        if self.faults.ignore_padding:
            return ["seqlens", "total", ""]
        self.op("Cast", ["attention_mask"], "mask_float", to=self.element)
        self.op("Sub", [self.weight("one_float", 1.0), "mask_float"], "masked")
        self.op("Mul", ["masked", self.weight("minus", -30000.0)], "bias_BT")
        self.op("Unsqueeze", ["bias_BT", self.ints(1, 2)], "bias_B11T")
        self.op("Shape", ["input_ids"], "ids_shape")
        self.op(
            "Concat",
            [
                self.op("Gather", ["ids_shape", self.ints(0)], "num_rows"),
                self.ints(1),
                self.op("Gather", ["ids_shape", self.ints(1)], "num_new"),
                self.op("Unsqueeze", ["total64", self.ints(0)], "total_1"),
            ],
            "bias_shape",
            axis=0,
        )
        return ["seqlens", "total", self.op("Expand", ["bias_B11T", "bias_shape"], "bias")]

    def rotary_tables(self) -> list[str]:
        exponent = torch.arange(0, HEAD_DIM, 2, dtype=torch.int64).float() / HEAD_DIM
        inverse = 1.0 / (self.faults.theta**exponent)
        angles = torch.arange(1024).float()[:, None] @ inverse[None]
        return [
            self.weight("cos_cache", angles.cos().numpy()),
            self.weight("sin_cache", angles.sin().numpy()),
        ]

    def attention(self, value: str, layer: int, lengths: list[str], tables: list[str]) -> str:
        base = f"model.layers.{layer}.self_attn"
        kinds = ("q", "k", "v")
        qkv = self.linear(value, f"{base}.qkv_proj", [f"{base}.{k}_proj.weight" for k in kinds])
        window = self.window + self.faults.window_offset if self.window else -1
        past = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        present = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        self.nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [qkv, "", "", *past, lengths[0], lengths[1], *tables, "", lengths[2]],
                [f"{base}/attended", *present],
                name=f"node/{base}",
                domain="com.microsoft",
                num_heads=HEADS,
                kv_num_heads=KV_HEADS,
                do_rotary=1,
                local_window_size=window,
                scale=HEAD_DIM**-0.5,
            )
        )
        return self.linear(f"{base}/attended", f"{base}.o_proj", [f"{base}.o_proj.weight"])

    def mlp(self, value: str, layer: int) -> str:
        base = f"model.layers.{layer}.mlp"
        gate = self.linear(value, f"{base}.gate_proj", [f"{base}.gate_proj.weight"])
        up = self.linear(value, f"{base}.up_proj", [f"{base}.up_proj.weight"])
        act = self.op("Mul", [gate, self.op("Sigmoid", [gate], f"{base}/sigmoid")], f"{base}/silu")
        inner = self.op("Mul", [act, up], f"{base}/inner")
        return self.linear(inner, f"{base}.down_proj", [f"{base}.down_proj.weight"])

    def head(self, hidden: str) -> str:
        hidden = self.norm(hidden, "model.norm.weight")
        if self.last_position:
            index = self.ints(0 if self.faults.first_position else -1)
            hidden = self.op("Gather", [hidden, index], "last_hidden", axis=1)
        if not (self.bits and self.config.tie_word_embeddings):
            return self.linear(hidden, "lm_head", ["lm_head.weight"])
        entry = self.manifest["lm_head"]["initializers"]
        names = [n for n in (entry["packed"], entry["scales"], entry["zero_points"]) if n]
        return self.op(
            "MatMulNBits",
            [hidden, *names],
            "lm_head",
            N=VOCAB,
            K=HIDDEN,
            bits=self.bits,
            block_size=GROUP,
            accuracy_level=self.accuracy_level,
        )

    def write(self, folder: Path) -> Path:
        """Build the whole graph and write model.onnx, model.onnx.data, configs and manifest."""
        hidden = self.embed()
        lengths, tables = self.mask_inputs(), self.rotary_tables()
        for layer in range(LAYERS):
            base = f"model.layers.{layer}"
            normed = self.norm(hidden, f"{base}.input_layernorm.weight")
            attended = self.attention(normed, layer, lengths, tables)
            hidden = self.op("Add", [hidden, attended], f"{base}/after_attention")
            normed = self.norm(hidden, f"{base}.post_attention_layernorm.weight")
            hidden = self.op("Add", [hidden, self.mlp(normed, layer)], f"{base}/out")
        self.op("Identity", [self.head(hidden)], "logits")
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save_model(
            self._model(),
            str(folder / "model.onnx"),
            save_as_external_data=True,
            location="model.onnx.data",
            size_threshold=64,
        )
        (folder / "genai_config.json").write_text(json.dumps(self._genai_config()))
        if self.with_manifest:
            (folder / "manifest.json").write_text(json.dumps({"weights": self.manifest}))
        return folder

    def _model(self) -> onnx.ModelProto:
        def value(name: str, kind: int, *dims: Any) -> Any:
            return helper.make_tensor_value_info(name, kind, dims)

        caches_in, caches_out = [], []
        for layer in range(LAYERS):
            for kind in ("key", "value"):
                shape = ("B", KV_HEADS, "P", HEAD_DIM), ("B", KV_HEADS, "T", HEAD_DIM)
                caches_in.append(value(f"past_key_values.{layer}.{kind}", self.element, *shape[0]))
                caches_out.append(value(f"present.{layer}.{kind}", self.element, *shape[1]))
        inputs = [
            value("input_ids", TensorProto.INT64, "B", "S"),
            value("attention_mask", TensorProto.INT64, "B", "T"),
        ]
        if self.with_position_ids:
            inputs.append(value("position_ids", TensorProto.INT64, "B", "S"))
        logits = value("logits", self.element, "B", 1 if self.last_position else "S", VOCAB)
        graph = helper.make_graph(
            self.nodes, "tiny", inputs + caches_in, [logits, *caches_out], self.initializers
        )
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def _genai_config(self) -> dict[str, Any]:
        inputs = {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        }
        if self.with_position_ids:
            inputs["position_ids"] = "position_ids"
        decoder = {
            "filename": "model.onnx",
            "head_size": HEAD_DIM,
            "hidden_size": HIDDEN,
            "num_attention_heads": HEADS,
            "num_hidden_layers": LAYERS,
            "num_key_value_heads": KV_HEADS,
            "session_options": {"provider_options": []},
            "inputs": inputs,
            "outputs": {
                "logits": "logits",
                "present_key_names": "present.%d.key",
                "present_value_names": "present.%d.value",
            },
        }
        model = {
            "type": "llama",
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
            "vocab_size": VOCAB,
            "context_length": 1024,
            "decoder": decoder,
        }
        return {"model": model, "search": {"max_length": 1024, "past_present_share_buffer": False}}


def quantize(weight_NK: Any, bits: int, *, symmetric: bool) -> tuple[Any, Any, Any]:
    """Round to nearest: codes [N, G, group*bits/8], scales [N, G], packed zero points or None."""
    weight_NGI = weight_NK.reshape(len(weight_NK), -1, GROUP)
    top = (1 << bits) - 1
    if symmetric:
        index = np.abs(weight_NGI).argmax(2)[..., None]
        scales = np.take_along_axis(weight_NGI, index, 2)[..., 0] / -float(1 << (bits - 1))
        zeros = np.full(scales.shape, 1 << (bits - 1))
    else:
        low, high = np.minimum(weight_NGI.min(2), 0), np.maximum(weight_NGI.max(2), 0)
        scales = (high - low) / top
        zeros = np.rint(-low / scales)
    scales = scales.astype(np.float32)
    codes = np.clip(np.rint(weight_NGI / scales[..., None]) + zeros[..., None], 0, top)
    packed = _pack(codes.astype(np.uint8), bits)
    return packed, scales, None if symmetric else _pack(zeros.astype(np.uint8), bits)


def _pack(codes: Any, bits: int) -> Any:
    if bits == 8:
        return codes
    if codes.shape[-1] % 2:
        codes = np.concatenate([codes, np.zeros_like(codes[..., :1])], axis=-1)
    return codes[..., 0::2] | (codes[..., 1::2] << 4)
