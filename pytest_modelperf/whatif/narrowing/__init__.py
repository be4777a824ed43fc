"""Remove the weakest channels from every layer that allows it."""

from pytest_modelperf.whatif.narrowing.narrow import Narrowed, UnchangedLayer, write_narrowed

__all__ = ["Narrowed", "UnchangedLayer", "write_narrowed"]
