"""Pandas data frames of a recording or of a stored profile."""

from pytest_modelperf.tracing.frames import Frames

__all__ = ["Frames"]
