"""Spec and config in, decoder graph out; and what an execution provider can take."""

from assay.graph.decoder import DecoderGraph, build_decoder_graph

__all__ = ["DecoderGraph", "build_decoder_graph"]
