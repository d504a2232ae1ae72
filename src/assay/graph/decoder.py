"""From a decoder's plan to its graph: inputs, embedding, layers, final norm, head, outputs."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from assay.blocks.build import Build, GraphInputs
from assay.blocks.embedding import emit_embedding, emit_head, emit_last_position
from assay.blocks.emitter import MICROSOFT, ONNX_OPSET, Emitter
from assay.blocks.initializers import Initializer
from assay.blocks.layer import LayerState, Residual, emit_layer, emit_residual_norm
from assay.blocks.precision import PrecisionPlan
from assay.errors import OptionError
from assay.spec.vocabulary import LAYER, DecoderPlan
from assay.spec.weights import WeightMap

__all__ = ["DecoderGraph", "build_decoder_graph"]

IR_VERSION = 10


@dataclass(frozen=True)
class DecoderGraph:
    """A finished graph without data, and what it stores.

    num_cache_slots: pairs of past and present tensors. shares_cache_buffer: whether past and
    present may be one buffer.
    """

    model: ir.Model
    initializers: tuple[Initializer, ...]
    num_cache_slots: int
    shares_cache_buffer: bool

    @property
    def input_names(self) -> list[str]:
        """Names of the graph's inputs."""
        return [str(value.name) for value in self.model.graph.inputs]


def build_decoder_graph(
    plan: DecoderPlan,
    weights: WeightMap,
    precision: PrecisionPlan,
    *,
    name: str,
    attention_form: str = "gqa",
    all_positions: bool = False,
) -> DecoderGraph:
    """Build the graph of a decoder.

    name: the graph's. attention_form: `gqa` or `decomposed`. all_positions: logits for every
    position [batch, sequence, vocab] instead of the last one [batch, 1, vocab].
    Raises WeightError where the checkpoint's tensors don't fit, OptionError for a keep pattern
    that matches nothing.
    """
    emitter = Emitter(precision.float_dtype)
    build = Build(emitter, weights, precision, GraphInputs(emitter), attention_form)
    state = LayerState(
        Residual(
            emit_embedding(build, plan.embedding, plan.head, plan.vocab_size, plan.hidden_size)
        )
    )
    for index, layer in enumerate(plan.layers):
        path = plan.layers_name.replace(LAYER, str(index))
        emit_layer(build, state, layer, path, plan.hidden_size)
    hidden, _ = emit_residual_norm(build, state.residual, plan.final_norm, "", plan.hidden_size)
    if not all_positions:
        hidden = emit_last_position(build, hidden, plan.hidden_size)
    logits = emit_head(build, hidden, plan.head, plan.embedding, plan.vocab_size, plan.hidden_size)
    emitter.add_output(logits, "logits")
    emitter.outputs.insert(0, emitter.outputs.pop())
    weights.check_all_used()
    _check_keep_patterns(build)
    return DecoderGraph(
        _finish(emitter, name),
        tuple(emitter.initializers.values()),
        state.slot,
        not any(node.op_type == "Softmax" for node in emitter.nodes),
    )


def _check_keep_patterns(build: Build) -> None:
    unmatched = build.precision.list_unmatched(build.linear_paths)
    if unmatched:
        raise OptionError(
            f"--keep {unmatched[0]}",
            "the pattern matches no projection",
            expected=f"a pattern over module paths such as {build.linear_paths[0]}",
            next_step="Quote it, so that the shell leaves its * alone.",
        )


def _finish(emitter: Emitter, name: str) -> ir.Model:
    graph = ir.Graph(
        emitter.inputs,
        emitter.outputs,
        nodes=emitter.nodes,
        opset_imports={"": ONNX_OPSET, MICROSOFT: 1},
        name=name,
    )
    return ir.Model(graph, ir_version=IR_VERSION, producer_name="assay")
