"""A recording, or a profile that somebody has already, as data frames of pandas."""

from pytest_modelperf.tracing.frames import Frames

__all__ = ["Frames"]
