"""Fewer channels: a model with the weakest of them taken out of every layer that allows it."""

from pytest_modelperf.graph.narrowing.narrow import Kept, Narrowed, write_narrowed

__all__ = ["Kept", "Narrowed", "write_narrowed"]
