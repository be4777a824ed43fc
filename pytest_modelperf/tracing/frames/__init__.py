"""A recording, or a profile that somebody has already, as data frames of pandas."""

from pytest_modelperf.tracing.frames.view import Frames

__all__ = ["Frames"]
