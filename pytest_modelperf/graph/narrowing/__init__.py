"""Fewer channels: a model with the weakest of them taken out of every layer that allows it."""

from pytest_modelperf.graph.narrowing.narrow import Narrowed, UnchangedLayer, write_narrowed

__all__ = ["Narrowed", "UnchangedLayer", "write_narrowed"]
