"""A recording or a stored profile as data frames of pandas."""

from pytest_modelperf.tracing.frames.view import Frames

__all__ = ["Frames"]
